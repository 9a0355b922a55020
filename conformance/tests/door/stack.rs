//! A door, called through the C interface as packetdrill calls it.
#![allow(unsafe_code, reason = "calls a C interface")]

use std::ffi::{CString, c_int, c_ulong, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use lightwait_conformance::abi::packetdrill_interface_init;
use lightwait_conformance::address::Family;
use lightwait_conformance::interface::Interface;

/// The outcome of a call: its return value, or errno.
pub(crate) type Outcome = Result<i64, i32>;

/// One stack. Cheap to clone; every clone may be used by another thread.
#[derive(Clone)]
pub(crate) struct Stack(Arc<Table>);

struct Table(Interface);

// SAFETY: the interface may be called from several threads, that is its purpose.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the last user frees it.
        unsafe { (self.0.free)(self.0.userdata) };
    }
}

/// What `recvmsg` leaves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) result: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) control: Vec<u8>,
    pub(crate) flags: c_int,
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a message header of zeros is one without name, vectors and control messages.
    unsafe { std::mem::zeroed() }
}

fn outcome(result: i64) -> Outcome {
    if result >= 0 {
        return Ok(result);
    }
    Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

impl Stack {
    pub(crate) fn new(flags: &str) -> Stack {
        Stack::try_new(flags).expect("flags make sense")
    }

    pub(crate) fn try_new(flags: &str) -> Result<Stack, i32> {
        let flags = CString::new(flags).expect("no zeros");
        let mut out = std::mem::MaybeUninit::<Interface>::uninit();
        // SAFETY: a C string, and room for the table.
        let result = unsafe { packetdrill_interface_init(flags.as_ptr(), out.as_mut_ptr()) };
        outcome(result.into())?;
        // SAFETY: filled in, since it succeeded.
        Ok(Stack(Arc::new(Table(unsafe { out.assume_init() }))))
    }

    /// As packetdrill does it: whatever the result, the table is used.
    pub(crate) fn unchecked(flags: &str) -> Stack {
        let flags = CString::new(flags).expect("no zeros");
        let mut out = std::mem::MaybeUninit::<Interface>::uninit();
        // SAFETY: a C string, and room for the table, which is filled in in any case.
        let table = unsafe {
            packetdrill_interface_init(flags.as_ptr(), out.as_mut_ptr());
            out.assume_init()
        };
        Stack(Arc::new(Table(table)))
    }

    /// `gettimeofday`, packetdrill's first call.
    pub(crate) fn clock(&self) -> Outcome {
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: room for the time.
        let told =
            unsafe { (self.table().gettimeofday)(self.data(), &raw mut now, ptr::null_mut()) };
        outcome(told.into())
    }

    fn table(&self) -> &Interface {
        &self.0.0
    }

    fn data(&self) -> *mut c_void {
        self.table().userdata
    }

    // ---- sockets

    pub(crate) fn socket(&self, domain: c_int) -> c_int {
        self.socket_of(domain, libc::SOCK_STREAM, libc::IPPROTO_TCP).expect("a socket") as c_int
    }

    pub(crate) fn socket_of(&self, domain: c_int, kind: c_int, protocol: c_int) -> Outcome {
        // SAFETY: plain numbers.
        outcome(unsafe { (self.table().socket)(self.data(), domain, kind, protocol) }.into())
    }

    pub(crate) fn bind(&self, fd: c_int, family: Family, to: SocketAddr) -> Outcome {
        self.bind_bytes(fd, &family.encode(to))
    }

    pub(crate) fn bind_bytes(&self, fd: c_int, to: &[u8]) -> Outcome {
        let len = to.len() as u32;
        // SAFETY: the slice is valid.
        outcome(unsafe { (self.table().bind)(self.data(), fd, to.as_ptr().cast(), len) }.into())
    }

    pub(crate) fn listen(&self, fd: c_int, backlog: c_int) -> Outcome {
        // SAFETY: plain numbers.
        outcome(unsafe { (self.table().listen)(self.data(), fd, backlog) }.into())
    }

    pub(crate) fn accept(&self, fd: c_int) -> Result<(c_int, Vec<u8>), i32> {
        let (mut peer, mut len) = (vec![0u8; 128], 128u32);
        // SAFETY: room of that length.
        let fd = unsafe {
            (self.table().accept)(self.data(), fd, peer.as_mut_ptr().cast(), &raw mut len)
        };
        let fd = outcome(fd.into())?;
        peer.truncate(len as usize);
        Ok((fd as c_int, peer))
    }

    pub(crate) fn connect(&self, fd: c_int, family: Family, to: SocketAddr) -> Outcome {
        self.connect_bytes(fd, &family.encode(to))
    }

    pub(crate) fn connect_bytes(&self, fd: c_int, to: &[u8]) -> Outcome {
        let len = to.len() as u32;
        // SAFETY: the slice is valid.
        outcome(unsafe { (self.table().connect)(self.data(), fd, to.as_ptr().cast(), len) }.into())
    }

    pub(crate) fn shutdown(&self, fd: c_int, how: c_int) -> Outcome {
        // SAFETY: plain numbers.
        outcome(unsafe { (self.table().shutdown)(self.data(), fd, how) }.into())
    }

    pub(crate) fn close(&self, fd: c_int) -> Outcome {
        // SAFETY: plain numbers.
        outcome(unsafe { (self.table().close)(self.data(), fd) }.into())
    }

    pub(crate) fn fcntl(&self, fd: c_int, command: c_int, argument: c_int) -> Outcome {
        // SAFETY: plain numbers.
        outcome(
            unsafe { (self.table().fcntl)(self.data(), fd, command, argument as c_ulong) }.into(),
        )
    }

    pub(crate) fn set_nonblocking(&self, fd: c_int) {
        self.fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK).expect("O_NONBLOCK");
    }

    pub(crate) fn ioctl(&self, fd: c_int, request: c_ulong) -> Result<c_int, i32> {
        let mut number: c_int = -1;
        // SAFETY: an int to be written to.
        let result = unsafe {
            (self.table().ioctl)(self.data(), fd, request, (&raw mut number).cast::<c_void>())
        };
        outcome(result.into()).map(|_| number)
    }

    pub(crate) fn set_option(&self, fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Outcome {
        let (start, len) = (value.as_ptr().cast(), value.len() as u32);
        // SAFETY: the slice is valid.
        outcome(
            unsafe { (self.table().setsockopt)(self.data(), fd, level, name, start, len) }.into(),
        )
    }

    pub(crate) fn set(&self, fd: c_int, level: c_int, name: c_int, value: c_int) -> Outcome {
        self.set_option(fd, level, name, &value.to_ne_bytes())
    }

    pub(crate) fn option(
        &self,
        fd: c_int,
        level: c_int,
        name: c_int,
        room: usize,
    ) -> Result<Vec<u8>, i32> {
        let (mut value, mut len) = (vec![0u8; room], room as u32);
        let start = value.as_mut_ptr().cast();
        // SAFETY: room of that length.
        let result =
            unsafe { (self.table().getsockopt)(self.data(), fd, level, name, start, &raw mut len) };
        outcome(result.into())?;
        value.truncate(len as usize);
        Ok(value)
    }

    pub(crate) fn get(&self, fd: c_int, level: c_int, name: c_int) -> Result<c_int, i32> {
        let value = self.option(fd, level, name, 4)?;
        Ok(c_int::from_ne_bytes(value.try_into().expect("four bytes")))
    }

    // ---- data

    pub(crate) fn read(&self, fd: c_int, len: usize) -> Result<Vec<u8>, i32> {
        let mut out = vec![0u8; len];
        let start = out.as_mut_ptr().cast();
        // SAFETY: room of that length.
        let read = unsafe { (self.table().read)(self.data(), fd, start, len) };
        out.truncate(outcome(read as i64)? as usize);
        Ok(out)
    }

    pub(crate) fn recv(&self, fd: c_int, len: usize, flags: c_int) -> Result<Vec<u8>, i32> {
        let mut out = vec![0u8; len];
        let start = out.as_mut_ptr().cast();
        // SAFETY: room of that length.
        let read = unsafe { (self.table().recv)(self.data(), fd, start, len, flags) };
        out.truncate(outcome(read as i64)? as usize);
        Ok(out)
    }

    pub(crate) fn recv_null(&self, fd: c_int, len: usize, flags: c_int) -> Outcome {
        // SAFETY: a null pointer is allowed.
        outcome(unsafe { (self.table().recv)(self.data(), fd, ptr::null_mut(), len, flags) } as i64)
    }

    pub(crate) fn readv(&self, fd: c_int, lens: &[usize]) -> Result<Vec<Vec<u8>>, i32> {
        let mut out: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let vector: Vec<libc::iovec> = out
            .iter_mut()
            .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
            .collect();
        let (start, count) = (vector.as_ptr(), vector.len() as c_int);
        // SAFETY: each piece has room of its length.
        let read = unsafe { (self.table().readv)(self.data(), fd, start, count) };
        let mut left = outcome(read as i64)? as usize;
        for piece in &mut out {
            piece.truncate(left);
            left -= piece.len();
        }
        Ok(out)
    }

    pub(crate) fn write(&self, fd: c_int, data: &[u8]) -> Outcome {
        self.send(fd, data, 0)
    }

    pub(crate) fn send(&self, fd: c_int, data: &[u8], flags: c_int) -> Outcome {
        let start = data.as_ptr().cast();
        // SAFETY: the slice is valid.
        outcome(unsafe { (self.table().send)(self.data(), fd, start, data.len(), flags) } as i64)
    }

    pub(crate) fn write_null(&self, fd: c_int, len: usize) -> Outcome {
        // SAFETY: a null pointer is allowed.
        outcome(unsafe { (self.table().write)(self.data(), fd, ptr::null(), len) } as i64)
    }

    // ---- datagrams

    /// Sends bytes to an address in C's layout, with control messages in C's layout.
    pub(crate) fn sendmsg(
        &self,
        fd: c_int,
        data: &[&[u8]],
        to: Option<&[u8]>,
        control: &[u8],
        flags: c_int,
    ) -> Outcome {
        let vector: Vec<libc::iovec> = data
            .iter()
            .map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            })
            .collect();
        let mut header = empty_header();
        header.msg_name = to.map_or(ptr::null_mut(), |to| to.as_ptr().cast_mut().cast());
        header.msg_namelen = to.map_or(0, <[u8]>::len) as u32;
        header.msg_iov = vector.as_ptr().cast_mut();
        header.msg_iovlen = vector.len();
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len();
        // SAFETY: every pointer is to a slice of the length beside it, and nothing is written.
        outcome(unsafe { (self.table().sendmsg)(self.data(), fd, &raw const header, flags) } as i64)
    }

    pub(crate) fn sendto(&self, fd: c_int, data: &[u8], to: &[u8]) -> Outcome {
        let (start, end) = (data.as_ptr().cast(), to.as_ptr().cast());
        let (data_len, to_len) = (data.len(), to.len() as u32);
        // SAFETY: the slices are valid.
        let sent =
            unsafe { (self.table().sendto)(self.data(), fd, start, data_len, 0, end, to_len) };
        outcome(sent as i64)
    }

    /// What was read, and the bytes of the sender's address, cut to `room`.
    pub(crate) fn recvfrom(
        &self,
        fd: c_int,
        len: usize,
        room: usize,
    ) -> Result<(Vec<u8>, Vec<u8>, u32), i32> {
        let (mut out, mut name, mut name_len) = (vec![0u8; len], vec![0u8; room], room as u32);
        let (start, place) = (out.as_mut_ptr().cast(), name.as_mut_ptr().cast());
        // SAFETY: room of these lengths.
        let read = unsafe {
            (self.table().recvfrom)(self.data(), fd, start, len, 0, place, &raw mut name_len)
        };
        out.truncate(outcome(read as i64)? as usize);
        Ok((out, name, name_len))
    }

    /// The result, and what is left in a header with room for `len` bytes and `room` bytes of
    /// control messages.
    pub(crate) fn recvmsg(
        &self,
        fd: c_int,
        len: usize,
        room: usize,
        flags: c_int,
    ) -> Result<Message, i32> {
        let (mut out, mut control, mut name) = (vec![0u8; len], vec![0u8; room], vec![0u8; 128]);
        let piece = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: len };
        let mut header = empty_header();
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = 128;
        header.msg_iov = (&raw const piece).cast_mut();
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = room;
        // SAFETY: every pointer is to room of the length beside it.
        let read = unsafe { (self.table().recvmsg)(self.data(), fd, &raw mut header, flags) };
        let result = outcome(read as i64)?;
        out.truncate(result as usize);
        name.truncate(header.msg_namelen as usize);
        control.truncate(header.msg_controllen);
        Ok(Message { result, bytes: out, name, control, flags: header.msg_flags })
    }

    // ---- waiting

    /// Polls one file.
    pub(crate) fn poll(&self, fd: c_int, events: i16, timeout_ms: c_int) -> Result<i16, i32> {
        let mut file = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { (self.table().poll)(self.data(), &raw mut file, 1, timeout_ms) };
        let ready = outcome(ready.into())?;
        assert_eq!(ready, i64::from(file.revents != 0));
        Ok(file.revents)
    }

    pub(crate) fn epoll_create(&self) -> c_int {
        // SAFETY: plain numbers.
        unsafe { (self.table().epoll_create)(self.data(), 1) }
    }

    pub(crate) fn epoll_ctl(&self, epoll: c_int, op: c_int, fd: c_int, events: c_int) -> Outcome {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: one valid event.
        let result =
            unsafe { (self.table().epoll_ctl)(self.data(), epoll, op, fd, &raw mut event) };
        outcome(result.into())
    }

    /// The reported bits and data, of at most four files.
    pub(crate) fn epoll_wait(
        &self,
        epoll: c_int,
        timeout_ms: c_int,
    ) -> Result<Vec<(c_int, u64)>, i32> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let start = events.as_mut_ptr();
        // SAFETY: room for four.
        let n = unsafe { (self.table().epoll_wait)(self.data(), epoll, start, 4, timeout_ms) };
        let n = outcome(n.into())? as usize;
        Ok(events[..n].iter().map(|event| (event.events as c_int, event.u64)).collect())
    }

    pub(crate) fn pipe(&self) -> [c_int; 2] {
        let mut ends = [-1; 2];
        // SAFETY: room for two.
        let result = unsafe { (self.table().pipe)(self.data(), ends.as_mut_ptr()) };
        assert_eq!(result, 0);
        ends
    }

    pub(crate) fn splice(&self, from: c_int, to: c_int, len: usize) -> Outcome {
        let (mut a, mut b) = (0, 0);
        let (a, b) = (&raw mut a, &raw mut b);
        // SAFETY: two numbers.
        outcome(unsafe { (self.table().splice)(self.data(), from, a, to, b, len, 0) }.into())
    }

    // ---- packets and time

    pub(crate) fn packet_in(&self, packet: &[u8]) {
        let start = packet.as_ptr().cast();
        // SAFETY: the slice is valid.
        let result = unsafe { (self.table().netdev_send)(self.data(), start, packet.len()) };
        assert_eq!(result, 0);
    }

    /// The next packet and when it left; an empty one if there will be none.
    pub(crate) fn packet_out(&self) -> (Vec<u8>, i64) {
        let (mut packet, mut len, mut at) = (vec![0u8; 65_536], 65_536usize, 0i64);
        let start = packet.as_mut_ptr().cast();
        let (room, time) = (&raw mut len, &raw mut at);
        // SAFETY: room of that length.
        let result = unsafe { (self.table().netdev_receive)(self.data(), start, room, time) };
        assert_eq!(result, 0);
        packet.truncate(len);
        (packet, at)
    }

    pub(crate) fn usleep(&self, micros: u32) {
        // SAFETY: plain numbers.
        assert_eq!(unsafe { (self.table().usleep)(self.data(), micros) }, 0);
    }

    /// The time, in microseconds.
    pub(crate) fn time(&self) -> i64 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: room for one.
        let result =
            unsafe { (self.table().gettimeofday)(self.data(), &raw mut time, ptr::null_mut()) };
        assert_eq!(result, 0);
        time.tv_sec * 1_000_000 + time.tv_usec
    }
}

/// `getsockopt` of the C library; this test links ours in its place.
pub(crate) fn libc_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    room: usize,
) -> Result<Vec<u8>, i32> {
    let (mut value, mut len) = (vec![0u8; room], room as u32);
    // SAFETY: room of that length.
    let result =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) };
    outcome(result.into())?;
    value.truncate(len as usize);
    Ok(value)
}

/// `getsockname` or `getpeername` of the C library; this test links ours in their place.
pub(crate) fn libc_name(fd: c_int, of_peer: bool) -> Result<Vec<u8>, i32> {
    let (mut name, mut len) = (vec![0u8; 128], 128u32);
    let place = name.as_mut_ptr().cast();
    // SAFETY: room of that length.
    let result = unsafe {
        match of_peer {
            true => libc::getpeername(fd, place, &raw mut len),
            false => libc::getsockname(fd, place, &raw mut len),
        }
    };
    outcome(result.into())?;
    name.truncate(len as usize);
    Ok(name)
}

/// `sendfile` of the C library; this test links ours in its place.
pub(crate) fn libc_sendfile(to: c_int, from: c_int, len: usize) -> Outcome {
    // SAFETY: a null pointer stands for the file's own position.
    outcome(unsafe { libc::sendfile(to, from, ptr::null_mut(), len) } as i64)
}

/// `close` of the C library, behind the door's back.
pub(crate) fn libc_close(fd: c_int) -> Outcome {
    // SAFETY: a number.
    outcome(unsafe { libc::close(fd) }.into())
}
