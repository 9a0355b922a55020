//! TCP_INFO, TCP_CC_INFO and SO_MEMINFO, in the layout that Linux gives them.

use libc::c_int;
use lightwait_core::tcp::{ConnectionInfo, State};
use lightwait_core::{Host, Instant};

use crate::errno::Errno;
use crate::socket::Socket;

/// More bytes than `struct tcp_info` has in any Linux: whoever knows a longer one reads zeros.
const TCP_INFO_LEN: usize = 512;

/// Words of SO_MEMINFO (`SK_MEMINFO_VARS`).
const MEMINFO_WORDS: usize = 9;

/// What Linux calls an infinite slow-start threshold.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// The report that `name` asks for, at most `room` bytes long.
///
/// # Errors
/// `ENOPROTOOPT` for any other name.
pub(crate) fn report(
    socket: &Socket,
    host: &Host,
    now: Instant,
    name: c_int,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut report = match name {
        libc::TCP_INFO => tcp_info(socket, host, now),
        // Reno and CUBIC have nothing to add.
        libc::TCP_CC_INFO => Vec::new(),
        libc::SO_MEMINFO => meminfo(socket, host),
        _ => return Err(Errno::ENOPROTOOPT),
    };
    report.truncate(room);
    Ok(report)
}

/// Bytes at offsets.
struct Layout(Vec<u8>);

impl Layout {
    fn u8(&mut self, offset: usize, value: u8) {
        self.0[offset] = value;
    }

    fn u32(&mut self, offset: usize, value: u32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, offset: usize, value: u64) {
        self.0[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

/// The number that Linux gives a state.
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

fn tcp_info(socket: &Socket, host: &Host, _now: Instant) -> Vec<u8> {
    let mut out = Layout(vec![0; TCP_INFO_LEN]);
    let state = match socket.state(host) {
        // Linux keeps TIME-WAIT elsewhere, and the socket is closed.
        State::TimeWait => State::Closed,
        state => state,
    };
    out.u8(0, state_number(state));
    let info = socket.connection().and_then(|id| host.info(id).ok());
    if let Some(info) = info {
        connection_info(&mut out, &info);
    }
    out.0
}

fn connection_info(out: &mut Layout, info: &ConnectionInfo) {
    let mss = u32::from(info.mss_bytes).max(1);
    let micros = |duration: std::time::Duration| duration.as_micros() as u32;
    let segments = |bytes: u32| bytes.div_ceil(mss);
    out.u32(8, micros(info.rto));
    out.u32(16, mss);
    out.u32(24, segments(info.in_flight_bytes));
    out.u32(68, micros(info.srtt));
    out.u32(72, micros(info.rttvar));
    let threshold = info.ssthresh_bytes;
    out.u32(76, if threshold > SSTHRESH_INFINITE { SSTHRESH_INFINITE } else { threshold / mss });
    out.u32(80, info.cwnd_bytes / mss);
    out.u32(88, 3);
    out.u32(100, info.retransmits as u32);
    out.u64(104, u64::MAX);
}

fn meminfo(socket: &Socket, host: &Host) -> Vec<u8> {
    let info = socket.connection().and_then(|id| host.info(id).ok());
    let (received, queued) =
        info.map_or((0, 0), |info| (info.receive_buffered_bytes, info.send_buffered_bytes));
    let mut words = [0u32; MEMINFO_WORDS];
    words[0] = received;
    words[5] = queued;
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
