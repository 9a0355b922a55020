//! A box that a byte may stand beside.
//!
//! A box is aligned to eight bytes, so an enum of a box and a byte would take sixteen. Every
//! connection carries one: this one takes nine.

use alloc::boxed::Box;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// A box without an alignment.
#[repr(Rust, packed)]
pub(super) struct Tight<T>(Box<T>);

impl<T> Tight<T> {
    pub(super) fn new(value: T) -> Self {
        Tight(Box::new(value))
    }
}

#[allow(clippy::explicit_auto_deref, reason = "no reference to the box itself can be taken")]
impl<T> Deref for Tight<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &*self.0
    }
}

#[allow(clippy::explicit_auto_deref, reason = "no reference to the box itself can be taken")]
impl<T> DerefMut for Tight<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut *self.0
    }
}

impl<T: Clone> Clone for Tight<T> {
    fn clone(&self) -> Self {
        Tight::new(T::clone(self))
    }
}

impl<T: fmt::Debug> fmt::Debug for Tight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
