//! An attempt at a call: done, or to be made once more.

use lightwait_core::Instant;

use crate::errno::Errno;

/// How a call stands after an attempt.
#[derive(Debug)]
pub enum Progress<T> {
    /// It is done.
    Done(T),
    /// It must wait for the world to change, or for this time, when it must be tried once more.
    Wait(Option<Instant>),
}

/// What an attempt at a call comes to.
pub type Attempt<T> = Result<Progress<T>, Errno>;

/// A call that is done.
pub fn done<T>(value: T) -> Attempt<T> {
    Ok(Progress::Done(value))
}
