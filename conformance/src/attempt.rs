//! An attempt at a call: it is done, or the caller must make it again.

use lightwait_core::Instant;

use crate::errno::Errno;

/// How a call stands after an attempt.
#[derive(Debug)]
pub enum Progress<T> {
    /// It is done.
    Done(T),
    /// It must wait until the world changes, or until this time; then the caller tries it again.
    Wait(Option<Instant>),
}

/// The outcome of an attempt at a call.
pub type Attempt<T> = Result<Progress<T>, Errno>;

/// A finished call.
pub fn done<T>(value: T) -> Attempt<T> {
    Ok(Progress::Done(value))
}
