//! What the calls that move data take and return, of streams and of datagrams.

use libc::c_int;
use lightwait_core::Instant;

/// The room for read bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many bytes fit.
    pub len: usize,
    /// The pointer is null.
    pub is_null: bool,
}

/// The state of a read between attempts.
#[derive(Debug, Default)]
pub struct Reading {
    pub(crate) bytes: Vec<u8>,
    /// Bytes passed over with MSG_TRUNC.
    pub(crate) skipped: usize,
    pub(crate) until: Option<Instant>,
}

/// The result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The bytes for the caller's buffer.
    pub bytes: Vec<u8>,
    /// The return value of the call: with MSG_TRUNC it may exceed the number of bytes.
    pub len: usize,
    /// The sender of a datagram, as bytes of its `sockaddr`.
    pub from: Vec<u8>,
    /// The flags that `recvmsg` reports.
    pub flags: c_int,
    /// The control messages.
    pub control: Vec<Control>,
}

/// The state of a write between attempts.
#[derive(Debug, Default)]
pub struct Writing {
    /// Bytes taken so far.
    pub written: usize,
    pub(crate) until: Option<Instant>,
}

/// What a call sends.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its bytes; `None` for a null pointer.
    pub data: Option<&'a [u8]>,
    /// The receiver, as bytes of its `sockaddr`.
    pub to: Option<&'a [u8]>,
    /// Control messages in C's layout.
    pub control: &'a [u8],
}

impl<'a> Message<'a> {
    /// Bytes alone.
    pub fn of(data: Option<&'a [u8]>) -> Self {
        Message { data, to: None, control: &[] }
    }
}

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// `cmsg_level`.
    pub level: c_int,
    /// `cmsg_type`.
    pub kind: c_int,
    /// What follows its header.
    pub data: Vec<u8>,
}
