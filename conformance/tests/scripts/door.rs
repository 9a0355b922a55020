//! The C interface as safe functions: one of each of its calls, with buffers that live long enough.
#![allow(unsafe_code, reason = "the interface is a table of C functions")]

mod address;

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;

use libc::{c_ulong, epoll_event, iovec, msghdr, pollfd, socklen_t, timeval};
use lightwait_conformance::interface::{Init, Interface};

use address::{RawAddress, storage};

/// The return value of a call, and errno after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) value: i64,
    pub(crate) errno: i32,
}

/// A stack behind its table of functions.
pub(crate) struct Door {
    table: Interface,
}

// SAFETY: the interface is called from two threads by its own contract: packetdrill makes the calls
// that block on a second one.
unsafe impl Send for Door {}
// SAFETY: as above; the stack locks what it shares.
unsafe impl Sync for Door {}

impl Drop for Door {
    fn drop(&mut self) {
        // SAFETY: the table was filled in by `init`, and this is its last use.
        unsafe { (self.table.free)(self.table.userdata) }
    }
}

/// The buffer of a call that may be NULL.
pub(crate) type Buffer<'a> = Option<&'a mut [u8]>;

fn pointer(buffer: Buffer<'_>) -> *mut c_void {
    buffer.map_or(ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast())
}

fn answer(value: impl Into<i64>) -> Answer {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Answer { value: value.into(), errno }
}

fn long(value: isize) -> i64 {
    value as i64
}

impl Door {
    /// A fresh stack.
    ///
    /// # Errors
    ///
    /// When it refuses the flags.
    pub(crate) fn open(init: Init, flags: Option<&str>) -> Result<Self, String> {
        let flags = flags.map(CString::new).transpose().map_err(|error| error.to_string())?;
        let flags_pointer = flags.as_ref().map_or(ptr::null(), |flags| flags.as_ptr());
        let mut table = MaybeUninit::<Interface>::zeroed();
        // SAFETY: `flags` outlives the call and the table is as large as the callee expects. The
        // original ignores what is returned; a table without functions would be a call to NULL.
        let result = unsafe { init(flags_pointer, table.as_mut_ptr()) };
        if result != 0 {
            return Err(format!("packetdrill_interface_init returned {result} for these flags"));
        }
        // SAFETY: `init` succeeded, and by its contract it has filled in every word.
        Ok(Self { table: unsafe { table.assume_init() } })
    }

    fn user(&self) -> *mut c_void {
        self.table.userdata
    }

    pub(crate) fn socket(&self, domain: c_int, kind: c_int, protocol: c_int) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.socket)(self.user(), domain, kind, protocol) })
    }

    pub(crate) fn bind(&self, fd: c_int, address: SocketAddr) -> Answer {
        let raw = RawAddress::from(address);
        // SAFETY: `raw` holds an address of that length.
        answer(unsafe { (self.table.bind)(self.user(), fd, raw.pointer(), raw.length()) })
    }

    pub(crate) fn listen(&self, fd: c_int, backlog: c_int) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.listen)(self.user(), fd, backlog) })
    }

    /// Also returns the address of the accepted peer.
    pub(crate) fn accept(&self, fd: c_int) -> (Answer, Option<SocketAddr>) {
        let mut raw = RawAddress::empty();
        let mut length = storage();
        // SAFETY: `raw` has room for any address, and `length` says how much.
        let value = unsafe { (self.table.accept)(self.user(), fd, raw.room(), &raw mut length) };
        (answer(value), raw.decode(length))
    }

    /// None: an address of family AF_UNSPEC.
    pub(crate) fn connect(&self, fd: c_int, address: Option<SocketAddr>) -> Answer {
        let raw = address.map_or_else(RawAddress::empty, RawAddress::from);
        // SAFETY: `raw` holds an address of that length.
        answer(unsafe { (self.table.connect)(self.user(), fd, raw.pointer(), raw.length()) })
    }

    pub(crate) fn read(&self, fd: c_int, buffer: Buffer<'_>, count: usize) -> Answer {
        // SAFETY: the buffer is `count` bytes long, or NULL.
        answer(long(unsafe { (self.table.read)(self.user(), fd, pointer(buffer), count) }))
    }

    pub(crate) fn recv(&self, fd: c_int, buffer: Buffer<'_>, count: usize, flags: c_int) -> Answer {
        // SAFETY: the buffer is `count` bytes long, or NULL.
        answer(long(unsafe { (self.table.recv)(self.user(), fd, pointer(buffer), count, flags) }))
    }

    /// Also returns the sender.
    pub(crate) fn recvfrom(
        &self,
        fd: c_int,
        buffer: Buffer<'_>,
        count: usize,
        flags: c_int,
    ) -> (Answer, Option<SocketAddr>) {
        let mut raw = RawAddress::empty();
        let mut length = storage();
        // SAFETY: the buffer is `count` bytes long, or NULL; `raw` has room for any address.
        let answer = answer(long(unsafe {
            (self.table.recvfrom)(
                self.user(),
                fd,
                pointer(buffer),
                count,
                flags,
                raw.room(),
                &raw mut length,
            )
        }));
        (answer, raw.decode(length))
    }

    pub(crate) fn write(&self, fd: c_int, buffer: Buffer<'_>, count: usize) -> Answer {
        // SAFETY: the buffer is `count` bytes long, or NULL.
        answer(long(unsafe { (self.table.write)(self.user(), fd, pointer(buffer), count) }))
    }

    pub(crate) fn send(&self, fd: c_int, buffer: Buffer<'_>, count: usize, flags: c_int) -> Answer {
        // SAFETY: the buffer is `count` bytes long, or NULL.
        answer(long(unsafe { (self.table.send)(self.user(), fd, pointer(buffer), count, flags) }))
    }

    pub(crate) fn sendto(
        &self,
        fd: c_int,
        buffer: Buffer<'_>,
        count: usize,
        flags: c_int,
        address: Option<SocketAddr>,
    ) -> Answer {
        let raw = address.map_or_else(RawAddress::empty, RawAddress::from);
        // SAFETY: the buffer is `count` bytes long, or NULL; `raw` holds an address of that length.
        answer(long(unsafe {
            (self.table.sendto)(
                self.user(),
                fd,
                pointer(buffer),
                count,
                flags,
                raw.pointer(),
                raw.length(),
            )
        }))
    }

    /// Over buffers of these lengths, whose bytes it returns, too.
    pub(crate) fn readv(&self, fd: c_int, lengths: &[usize]) -> (Answer, Vec<u8>) {
        let mut vectors = Vectors::new(lengths, false);
        let count = vectors.count();
        // SAFETY: `count` vectors; each describes a buffer that lives in `vectors`.
        let answer = answer(long(unsafe {
            (self.table.readv)(self.user(), fd, vectors.raw.as_mut_ptr(), count)
        }));
        (answer, vectors.bytes())
    }

    /// Out of buffers of these lengths: zeros, or the pattern of a datagram.
    pub(crate) fn writev(&self, fd: c_int, lengths: &[usize], is_datagram: bool) -> Answer {
        let mut vectors = Vectors::new(lengths, is_datagram);
        let count = vectors.count();
        // SAFETY: `count` vectors; each describes a buffer that lives in `vectors`.
        answer(long(unsafe {
            (self.table.writev)(self.user(), fd, vectors.raw.as_mut_ptr(), count)
        }))
    }

    /// Into buffers of these lengths; and what came back beside the result.
    pub(crate) fn recvmsg(
        &self,
        fd: c_int,
        lengths: &[usize],
        mut control: Vec<u8>,
        message_flags: c_int,
        flags: c_int,
    ) -> (Answer, Message) {
        let mut vectors = Vectors::new(lengths, false);
        let mut name = RawAddress::empty();
        let mut header = vectors.header(&mut name, &mut control);
        header.msg_flags = message_flags;
        // SAFETY: every pointer of `header` is to a local that outlives the call.
        let value = unsafe { (self.table.recvmsg)(self.user(), fd, &raw mut header, flags) };
        let answer = answer(long(value));
        control.truncate(header.msg_controllen);
        (answer, Message { flags: header.msg_flags, control, bytes: vectors.bytes() })
    }

    /// Out of buffers of these lengths, to `address`: zeros, or the pattern of a datagram.
    pub(crate) fn sendmsg(
        &self,
        fd: c_int,
        (lengths, is_datagram): (&[usize], bool),
        mut control: Vec<u8>,
        address: SocketAddr,
        flags: c_int,
    ) -> Answer {
        let mut vectors = Vectors::new(lengths, is_datagram);
        let mut name = RawAddress::from(address);
        let length = name.length();
        let mut header = vectors.header(&mut name, &mut control);
        header.msg_namelen = length;
        // SAFETY: every pointer of `header` is to a local that outlives the call.
        answer(long(unsafe { (self.table.sendmsg)(self.user(), fd, &raw const header, flags) }))
    }

    pub(crate) fn fcntl(&self, fd: c_int, command: c_int, argument: c_ulong) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.fcntl)(self.user(), fd, command, argument) })
    }

    /// And the number that it left.
    pub(crate) fn ioctl(&self, fd: c_int, command: c_ulong) -> (Answer, i32) {
        let mut number = 0i32;
        // SAFETY: what the scripts' requests write is an int.
        let value = unsafe {
            (self.table.ioctl)(self.user(), fd, command, (&raw mut number).cast::<c_void>())
        };
        (answer(value), number)
    }

    pub(crate) fn close(&self, fd: c_int) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.close)(self.user(), fd) })
    }

    pub(crate) fn shutdown(&self, fd: c_int, how: c_int) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.shutdown)(self.user(), fd, how) })
    }

    /// And the length that it left; `value` is one byte longer than what is asked for.
    pub(crate) fn getsockopt(
        &self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: &mut [u8],
        mut length: socklen_t,
    ) -> (Answer, socklen_t) {
        // SAFETY: `value` has room for `length` bytes.
        let result = unsafe {
            (self.table.getsockopt)(
                self.user(),
                fd,
                level,
                name,
                value.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        (answer(result), length)
    }

    pub(crate) fn setsockopt(
        &self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: &[u8],
        length: socklen_t,
    ) -> Answer {
        // A script may claim more than it gives; the rest is zeros then, never foreign memory.
        let mut padded = value.to_vec();
        padded.resize(padded.len().max(length as usize), 0);
        // SAFETY: `padded` is at least `length` bytes long.
        answer(unsafe {
            (self.table.setsockopt)(self.user(), fd, level, name, padded.as_ptr().cast(), length)
        })
    }

    pub(crate) fn poll(&self, fds: &mut [pollfd], timeout: c_int) -> Answer {
        let count = fds.len() as libc::nfds_t;
        // SAFETY: that many entries.
        answer(unsafe { (self.table.poll)(self.user(), fds.as_mut_ptr(), count, timeout) })
    }

    pub(crate) fn epoll_create(&self, size: c_int) -> Answer {
        // SAFETY: a call by value.
        answer(unsafe { (self.table.epoll_create)(self.user(), size) })
    }

    pub(crate) fn epoll_ctl(
        &self,
        epoll: c_int,
        op: c_int,
        fd: c_int,
        mut event: epoll_event,
    ) -> Answer {
        // SAFETY: the event outlives the call.
        answer(unsafe { (self.table.epoll_ctl)(self.user(), epoll, op, fd, &raw mut event) })
    }

    pub(crate) fn epoll_wait(
        &self,
        epoll: c_int,
        events: &mut [epoll_event],
        count: c_int,
        timeout: c_int,
    ) -> Answer {
        // SAFETY: `events` has room for `count`.
        answer(unsafe {
            (self.table.epoll_wait)(self.user(), epoll, events.as_mut_ptr(), count, timeout)
        })
    }

    pub(crate) fn pipe(&self) -> (Answer, [c_int; 2]) {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors.
        let value = unsafe { (self.table.pipe)(self.user(), ends.as_mut_ptr()) };
        (answer(value), ends)
    }

    pub(crate) fn splice(
        &self,
        from: (c_int, i64),
        to: (c_int, i64),
        length: usize,
        flags: u32,
    ) -> Answer {
        let (mut from_offset, mut to_offset) = (from.1, to.1);
        // SAFETY: both offsets outlive the call.
        answer(unsafe {
            (self.table.splice)(
                self.user(),
                from.0,
                &raw mut from_offset,
                to.0,
                &raw mut to_offset,
                length,
                flags,
            )
        })
    }

    /// One packet to the stack.
    pub(crate) fn inject(&self, packet: &[u8]) -> c_int {
        // SAFETY: that many bytes.
        unsafe { (self.table.netdev_send)(self.user(), packet.as_ptr().cast(), packet.len()) }
    }

    /// The next packet of the stack and when it left, in microseconds. None: try again.
    pub(crate) fn sniff(&self) -> Option<(Vec<u8>, i64)> {
        let mut bytes = vec![0; 65_536];
        let mut length = bytes.len();
        let mut usecs = 0i64;
        // SAFETY: `length` is the room that there is.
        let result = unsafe {
            (self.table.netdev_receive)(
                self.user(),
                bytes.as_mut_ptr().cast(),
                &raw mut length,
                &raw mut usecs,
            )
        };
        bytes.truncate(length);
        (result == 0).then_some((bytes, usecs))
    }

    pub(crate) fn usleep(&self, usecs: u32) {
        // SAFETY: a call by value.
        unsafe { (self.table.usleep)(self.user(), usecs) };
    }

    /// The stack's time, in microseconds.
    pub(crate) fn now_usecs(&self) -> i64 {
        let mut time = timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: room for a time; the second argument has no meaning any more.
        unsafe { (self.table.gettimeofday)(self.user(), &raw mut time, ptr::null_mut()) };
        time.tv_sec * 1_000_000 + time.tv_usec
    }
}

/// What `recvmsg` leaves beside its result.
pub(crate) struct Message {
    pub(crate) flags: c_int,
    pub(crate) control: Vec<u8>,
    /// The bytes of its buffers.
    pub(crate) bytes: Vec<u8>,
}

/// Buffers, and the vectors that describe them.
struct Vectors {
    buffers: Vec<Vec<u8>>,
    raw: Vec<iovec>,
}

impl Vectors {
    /// Buffers full of zeros, or of the pattern if `is_datagram`.
    fn new(lengths: &[usize], is_datagram: bool) -> Self {
        let all = match is_datagram {
            true => crate::packet::pattern(lengths.iter().sum()),
            false => vec![0; lengths.iter().sum()],
        };
        let mut rest = &all[..];
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        for length in lengths {
            let (buffer, more) = rest.split_at(*length);
            buffers.push(buffer.to_vec());
            rest = more;
        }
        let raw = buffers
            .iter_mut()
            .map(|buffer| iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
            .collect();
        Self { buffers, raw }
    }

    fn bytes(&self) -> Vec<u8> {
        self.buffers.concat()
    }

    fn count(&self) -> c_int {
        c_int::try_from(self.raw.len()).unwrap_or(c_int::MAX)
    }

    fn header(&mut self, name: &mut RawAddress, control: &mut Vec<u8>) -> msghdr {
        // SAFETY: a message header of zeros is one without name, vectors and control messages.
        let mut header: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_name = name.room().cast();
        header.msg_namelen = storage();
        header.msg_iov = self.raw.as_mut_ptr();
        header.msg_iovlen = self.raw.len();
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
        header
    }
}
