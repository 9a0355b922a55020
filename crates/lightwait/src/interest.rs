//! What tokio's callers ask of a socket's readiness, and how they are told of it; for all sockets.

use lightwait_core::Readiness;
use tokio::io::{Interest, Ready};

/// The kinds of readiness that `interest` asks for.
pub(crate) fn wanted(interest: Interest) -> Readiness {
    let mut wanted = Readiness::EMPTY;
    if interest.is_readable() {
        wanted |= Readiness::READABLE;
    }
    if interest.is_writable() {
        wanted |= Readiness::WRITABLE;
    }
    wanted
}

/// Converts a readiness to tokio's type, restricted to `interest`. A socket that is closed fails
/// every call at once; `is_at_end` tells whether there is nothing more to read of another.
pub(crate) fn as_ready(
    readiness: Readiness,
    interest: Interest,
    is_at_end: impl FnOnce() -> bool,
) -> Ready {
    let is_closed = readiness.contains(Readiness::CLOSED);
    let mut ready = Ready::EMPTY;
    if interest.is_readable() {
        if is_closed || readiness.contains(Readiness::READABLE) {
            ready |= Ready::READABLE;
        }
        if is_closed || is_at_end() {
            ready |= Ready::READ_CLOSED;
        }
    }
    if interest.is_writable() {
        if is_closed || readiness.contains(Readiness::WRITABLE) {
            ready |= Ready::WRITABLE;
        }
        if is_closed {
            ready |= Ready::WRITE_CLOSED;
        }
    }
    ready
}
