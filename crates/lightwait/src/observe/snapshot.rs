//! What a host tells of a connection at one moment, and what has changed since another.

use lightwait_core::flow::Tuple;
use lightwait_core::host::Socket;
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::timers::Timer;
use lightwait_core::tcp::{ConnectionInfo, State};
use lightwait_core::time::Duration;
use lightwait_core::{Host, Instant};

use super::{Detector, Parameters, TimerChange, Trigger, What};

/// Of a connection, a handshake or a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) info: ConnectionInfo,
    pub(super) timers: [Option<Instant>; Timer::ALL.len()],
    waits: bool,
}

impl Snapshot {
    /// Of what there is between `ends`, if anything.
    pub(super) fn of(host: &Host, ends: &Tuple, now: Instant) -> Option<Snapshot> {
        match host.socket_between(ends)? {
            Socket::Connection(it) => Some(Snapshot {
                info: it.detail(now).info,
                timers: it.timers(),
                waits: it.waits_for_room(),
            }),
            it => {
                let info = ConnectionInfo { state: it.state(), ..ConnectionInfo::default() };
                Some(Snapshot { info, timers: Default::default(), waits: false })
            }
        }
    }

    /// The earliest of its timers.
    pub(super) fn deadline(&self) -> Instant {
        self.timers.iter().flatten().min().copied().unwrap_or(Instant::FAR_FUTURE)
    }

    /// It is a connection, both of whose ends have agreed on window scaling or not.
    pub(super) fn is_synchronized(&self) -> bool {
        self.info.mss_bytes > 0 && self.info.cwnd_bytes > 0
    }

    fn parameters(&self) -> Parameters {
        let it = &self.info;
        Parameters {
            cwnd: it.cwnd_bytes,
            ssthresh: (it.ssthresh_bytes != u32::MAX).then_some(it.ssthresh_bytes),
            srtt: it.srtt,
            min_rtt: it.min_rtt,
            latest_rtt: it.latest_rtt,
            rttvar: it.rttvar,
            rto: it.rto,
            pacing_rate: it.pacing_bytes_per_second,
            in_flight: it.in_flight_bytes,
            sacked: it.sacked_bytes,
            lost: it.lost_bytes,
            peer_window: it.peer_window_bytes,
        }
    }
}

/// Tells `tell` what differs between two looks at a connection, and `by` what it was changed.
/// `fired`: the timers that have fired between them.
pub(super) fn compare(
    (old, new): (Option<&Snapshot>, Option<&Snapshot>),
    by: Trigger,
    fired: &[Timer],
    mut tell: impl FnMut(What),
) {
    for timer in fired {
        tell(What::Timer { timer: *timer, change: TimerChange::Fired });
    }
    match (old, new) {
        (None, None) => {}
        (None, Some(new)) => {
            tell(What::Opened { state: new.info.state, is_old: false });
            changes(&of_nothing(new.info.state), new, by, fired, &mut tell);
        }
        (Some(old), None) => tell(What::Closed { state: old.info.state, by }),
        (Some(old), Some(new)) => changes(old, new, by, fired, &mut tell),
    }
}

fn of_nothing(state: State) -> Snapshot {
    // Windows that are not known are not closed.
    let (peer_window_bytes, receive_window_bytes) = (1, 1);
    let info = ConnectionInfo {
        state,
        peer_window_bytes,
        receive_window_bytes,
        ..ConnectionInfo::default()
    };
    Snapshot { info, timers: Default::default(), waits: false }
}

fn changes(
    old: &Snapshot,
    new: &Snapshot,
    by: Trigger,
    fired: &[Timer],
    tell: &mut impl FnMut(What),
) {
    let (was, is) = (&old.info, &new.info);
    if was.state != is.state {
        tell(What::State { old: was.state, new: is.state, by });
    }
    if was.recovery != is.recovery {
        tell(What::Recovery { old: was.recovery, new: is.recovery, by });
    }
    // A new timeout makes lost what was sent again as well.
    let lost = is.lost_bytes.saturating_sub(was.lost_bytes);
    if lost > 0 {
        tell(What::Lost { bytes: lost, by: detector(was, is, by) });
    }
    if is.recoveries_undone > was.recoveries_undone {
        tell(What::Undone);
    }
    if new.is_synchronized() {
        let parameters = new.parameters();
        if parameters != old.parameters() {
            tell(What::Parameters(parameters));
        }
        windows(old, new, tell);
    }
    if old.waits != new.waits {
        tell(What::Writer { waits: new.waits, buffered: is.send_buffered_bytes });
    }
    for (timer, (was, is)) in Timer::ALL.into_iter().zip(old.timers.iter().zip(&new.timers)) {
        if timer == Timer::Rest || was == is {
            continue;
        }
        let change = match is {
            Some(at) => TimerChange::Set(*at),
            None if fired.contains(&timer) => continue,
            None => TimerChange::Cancelled,
        };
        tell(What::Timer { timer, change });
    }
}

/// A window that was never synchronized was not open.
fn windows(old: &Snapshot, new: &Snapshot, tell: &mut impl FnMut(What)) {
    let has_changed = |was: u32, is: u32| (was == 0) != (is == 0);
    let was = if old.is_synchronized() { old.info } else { of_nothing(old.info.state).info };
    if has_changed(was.peer_window_bytes, new.info.peer_window_bytes) {
        tell(What::PeerWindow { bytes: new.info.peer_window_bytes });
    }
    if has_changed(was.receive_window_bytes, new.info.receive_window_bytes) {
        tell(What::OurWindow { bytes: new.info.receive_window_bytes });
    }
}

fn detector(was: &ConnectionInfo, is: &ConnectionInfo, by: Trigger) -> Detector {
    match by {
        Trigger::Timer(_) if is.timeouts > was.timeouts || is.recovery == Mode::Timeout => {
            Detector::Timeout
        }
        Trigger::Timer(_) => Detector::RackTimer,
        Trigger::Segment if is.reordering_window > Duration::ZERO => Detector::Rack,
        Trigger::Segment if is.sack => Detector::Sack,
        Trigger::Segment => Detector::DuplicateAcks,
        Trigger::Application => Detector::Other,
    }
}
