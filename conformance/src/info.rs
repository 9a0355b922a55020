//! TCP_INFO, TCP_CC_INFO and SO_MEMINFO, in the layout that Linux gives them.
//!
//! Linux counts in segments where the engine counts in bytes; a byte that is under way belongs to a
//! segment of the full size.

use libc::c_int;
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::{Account, ConnectionInfo, State};
use lightwait_core::{Host, Instant, ListenerId};
use std::time::Duration;

use crate::errno::Errno;
use crate::socket::{Role, Socket, Stream};

/// More bytes than `struct tcp_info` has in any Linux: a caller with a longer structure reads
/// zeros.
const TCP_INFO_LEN: usize = 512;

/// Words of SO_MEMINFO (`SK_MEMINFO_VARS`).
const MEMINFO_WORDS: usize = 9;

/// Linux's value for an infinite slow-start threshold.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// Linux's metric of reordering before there was any, and at most: segments out of order that it
/// accepts as reordering and not loss.
const REORDERING: u32 = 3;
const REORDERING_MAX: u32 = 300;

/// The receiver's first guess of the peer's segments (RFC 9293 MUST-15).
const PEER_SEGMENT_FIRST: u32 = 536;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: u32 = 12;

/// The report that `name` asks for, at most `room` bytes long.
///
/// # Errors
/// `ENOPROTOOPT` for any other name, and if it is no stream.
pub(crate) fn report(
    socket: &Socket,
    host: &Host,
    now: Instant,
    name: c_int,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let stream = socket.stream(Errno::ENOPROTOOPT)?;
    let mut report = match name {
        libc::TCP_INFO => tcp_info(socket, stream, host, now),
        // The congestion control has nothing to add.
        libc::TCP_CC_INFO => Vec::new(),
        libc::SO_MEMINFO => meminfo(socket, host),
        _ => return Err(Errno::ENOPROTOOPT),
    };
    report.truncate(room);
    Ok(report)
}

/// The largest payload that the connection sends, beside its options; 0 while that is not known.
pub(crate) fn payload_mss(info: &ConnectionInfo) -> u32 {
    let options = if info.timestamps { TIMESTAMPS_LEN } else { 0 };
    u32::from(info.mss_bytes).saturating_sub(options)
}

/// Values at offsets.
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

/// Offsets in `struct tcp_info`.
mod at {
    pub(super) const STATE: usize = 0;
    pub(super) const CA_STATE: usize = 1;
    pub(super) const RETRANSMITS: usize = 2;
    pub(super) const PROBES: usize = 3;
    pub(super) const BACKOFF: usize = 4;
    pub(super) const OPTIONS: usize = 5;
    pub(super) const SCALES: usize = 6;
    pub(super) const APP_LIMITED: usize = 7;
    pub(super) const RTO: usize = 8;
    pub(super) const ATO: usize = 12;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RCV_MSS: usize = 20;
    pub(super) const UNACKED: usize = 24;
    pub(super) const SACKED: usize = 28;
    pub(super) const LOST: usize = 32;
    pub(super) const RETRANS: usize = 36;
    pub(super) const LAST_DATA_SENT: usize = 44;
    pub(super) const LAST_DATA_RECV: usize = 52;
    pub(super) const LAST_ACK_RECV: usize = 56;
    pub(super) const PMTU: usize = 60;
    pub(super) const RCV_SSTHRESH: usize = 64;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const ADVMSS: usize = 84;
    pub(super) const REORDERING: usize = 88;
    pub(super) const RCV_RTT: usize = 92;
    pub(super) const RCV_SPACE: usize = 96;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const MAX_PACING_RATE: usize = 112;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGS_OUT: usize = 136;
    pub(super) const SEGS_IN: usize = 140;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BUSY_TIME: usize = 168;
    pub(super) const RWND_LIMITED: usize = 176;
    pub(super) const SNDBUF_LIMITED: usize = 184;
    pub(super) const DELIVERED: usize = 192;
    pub(super) const DELIVERED_CE: usize = 196;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const DSACK_DUPS: usize = 216;
    pub(super) const REORD_SEEN: usize = 220;
    pub(super) const RCV_OOOPACK: usize = 224;
    pub(super) const SND_WND: usize = 228;
    pub(super) const RCV_WND: usize = 232;
    pub(super) const TOTAL_RTO: usize = 240;
}

/// The number that Linux gives a state.
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        // Linux keeps TIME-WAIT elsewhere, and the socket is closed.
        State::TimeWait | State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

fn tcp_info(socket: &Socket, stream: &Stream, host: &Host, now: Instant) -> Vec<u8> {
    let mut out = Layout(vec![0; TCP_INFO_LEN]);
    out.u8(at::STATE, state_number(stream.state(host)));
    out.u32(at::REORDERING, REORDERING);
    out.u64(at::MAX_PACING_RATE, socket.options.max_pacing_rate);
    if let Role::Listening(id) = stream.role {
        listener_info(&mut out, host, id, stream.backlog);
    }
    let Some(info) = stream.connection().and_then(|id| host.info(id).ok()) else { return out.0 };
    sender_info(&mut out, &info);
    receiver_info(&mut out, &info);
    out.u32(at::PMTU, info.path_mtu_bytes.into());
    counts(&mut out, &info, now);
    if let Some(account) = &stream.account {
        accounted(&mut out, account, now);
    }
    let acknowledged = stream.bytes_written.saturating_sub(info.send_buffered_bytes.into());
    out.u64(at::BYTES_ACKED, acknowledged);
    let unread = stream.connection().map_or(0, |id| host.readable_bytes(id));
    out.u64(at::BYTES_RECEIVED, stream.bytes_read + unread as u64);
    out.0
}

fn counts(out: &mut Layout, info: &ConnectionInfo, now: Instant) {
    let since = |at: Instant| now.since(at).as_millis() as u32;
    out.u32(at::LAST_DATA_SENT, since(info.last_sent));
    out.u32(at::LAST_ACK_RECV, since(info.last_heard));
    out.u32(at::RCV_RTT, info.receiver_rtt.as_micros() as u32);
    out.u64(at::BYTES_SENT, info.sent_bytes);
    out.u64(at::BYTES_RETRANS, info.retransmitted_bytes);
    out.u32(at::DSACK_DUPS, info.duplicate_sacks as u32);
    out.u32(at::RCV_OOOPACK, info.out_of_order as u32);
    let rate = info.delivery.map_or(0, |delivery| delivery.bytes_per_second);
    out.u64(at::DELIVERY_RATE, rate);
    // A bit field: delivery_rate_app_limited is the first. Linux sets it before the first sample.
    let is_limited = info.delivery.is_none_or(|delivery| delivery.is_app_limited);
    out.u8(at::APP_LIMITED, is_limited.into());
}

fn accounted(out: &mut Layout, account: &Account, now: Instant) {
    let micros = |duration: Duration| duration.as_micros() as u64;
    out.u32(at::LAST_DATA_RECV, now.since(account.last_received).as_millis() as u32);
    out.u32(at::SEGS_OUT, account.segments_out as u32);
    out.u32(at::SEGS_IN, account.segments_in as u32);
    out.u32(at::DATA_SEGS_IN, account.data_segments_in as u32);
    out.u32(at::DATA_SEGS_OUT, account.data_segments_out as u32);
    out.u32(at::DELIVERED, account.segments_delivered as u32);
    out.u32(at::DELIVERED_CE, account.segments_delivered_marked as u32);
    out.u64(at::BUSY_TIME, micros(account.busy));
    out.u64(at::RWND_LIMITED, micros(account.window_limited));
    out.u64(at::SNDBUF_LIMITED, micros(account.buffer_limited));
}

/// A listener reports the length of its queue and its limit.
fn listener_info(out: &mut Layout, host: &Host, id: ListenerId, backlog: u32) {
    out.u32(at::UNACKED, host.accept_queue_len(id) as u32);
    out.u32(at::SACKED, backlog);
}

fn sender_info(out: &mut Layout, info: &ConnectionInfo) {
    let micros = |duration: Duration| duration.as_micros() as u32;
    // The congestion window counts segments by the size that options are part of.
    let whole = u32::from(info.mss_bytes).max(1);
    let payload = payload_mss(info).max(1);
    let segments = |bytes: u32| bytes.div_ceil(payload);
    let is_opening = matches!(info.state, State::SynSent | State::SynReceived);
    let congestion_state = match info.recovery {
        Mode::Timeout => 4,
        Mode::Fast => 3,
        Mode::Open if info.duplicate_acks > 0 || info.sacked_bytes > 0 => 1,
        Mode::Open => 0,
    };
    out.u8(at::CA_STATE, congestion_state);
    let is_probing = info.in_flight_bytes == 0 && !is_opening;
    out.u8(at::RETRANSMITS, if is_probing { 0 } else { info.backoff });
    out.u8(at::PROBES, if is_probing { info.backoff } else { 0 });
    out.u8(at::BACKOFF, info.backoff);
    out.u32(at::RTO, micros(info.rto));
    out.u32(at::SND_MSS, payload);
    out.u32(at::UNACKED, if is_opening { 1 } else { segments(info.in_flight_bytes) });
    out.u32(
        at::SACKED,
        match info.sack {
            true => segments(info.sacked_bytes),
            // Without SACK each duplicate ACK stands for a segment that has arrived.
            false => info.duplicate_acks,
        },
    );
    // What is late itself counts, too.
    let reordering = match info.overtaken_bytes {
        0 => REORDERING,
        bytes => (segments(bytes) + 1).clamp(REORDERING, REORDERING_MAX),
    };
    out.u32(at::REORDERING, reordering);
    out.u32(at::REORD_SEEN, info.reorderings as u32);
    // Linux counts as lost what was sent again, too, until it arrives.
    out.u32(at::LOST, segments(info.lost_bytes + info.resent_bytes));
    out.u32(at::RETRANS, segments(info.resent_bytes));
    out.u32(at::RTT, micros(info.srtt));
    out.u32(at::RTTVAR, micros(info.rttvar));
    let threshold = info.ssthresh_bytes;
    out.u32(
        at::SND_SSTHRESH,
        match threshold {
            SSTHRESH_INFINITE.. => SSTHRESH_INFINITE,
            _ => threshold / whole,
        },
    );
    out.u32(at::SND_CWND, info.cwnd_bytes / whole);
    out.u32(at::TOTAL_RETRANS, info.retransmits as u32);
    out.u32(at::NOTSENT_BYTES, info.unsent_bytes);
    out.u32(at::SND_WND, info.peer_window_bytes);
    out.u32(at::TOTAL_RTO, (info.timeouts as u32).min(0xffff));
    out.u32(
        at::MIN_RTT,
        match micros(info.min_rtt) {
            0 => u32::MAX,
            least => least,
        },
    );
    out.u64(at::PACING_RATE, info.pacing_bytes_per_second);
}

fn receiver_info(out: &mut Layout, info: &ConnectionInfo) {
    let options_len = if info.timestamps { TIMESTAMPS_LEN } else { 0 };
    let announced = u32::from(info.announced_mss_bytes).saturating_sub(options_len);
    let peer_segment = PEER_SEGMENT_FIRST.max(info.peer_segment_bytes.into());
    let scales = info.shifts;
    let scaled = scales != (0, 0);
    let bits = [(info.timestamps, 1), (info.sack, 2), (scaled, 4), (info.ecn, 8)];
    let options = bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
    out.u8(at::OPTIONS, options);
    out.u8(at::SCALES, scales.0 & 0x0f | scales.1 << 4);
    out.u32(at::ATO, 40_000);
    out.u32(at::RCV_MSS, peer_segment.min(announced.max(1)));
    out.u32(at::ADVMSS, announced);
    out.u32(at::RCV_SSTHRESH, info.receive_window_bytes);
    out.u32(at::RCV_SPACE, info.receive_window_bytes.min(10 * announced));
    out.u32(at::RCV_WND, info.receive_window_bytes);
}

fn meminfo(socket: &Socket, host: &Host) -> Vec<u8> {
    let info = socket.connection().and_then(|id| host.info(id).ok());
    let queued = info.map_or(0, |info| info.send_buffered_bytes);
    let unread = socket.connection().map_or(0, |id| host.readable_bytes(id));
    let [receive_buffer, send_buffer] = socket.buffer_sizes(host);
    let mut words = [0u32; MEMINFO_WORDS];
    words[0] = unread as u32;
    words[1] = receive_buffer as u32;
    words[2] = queued;
    words[3] = send_buffer as u32;
    words[5] = queued;
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
