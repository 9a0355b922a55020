//! Each rule, kept and broken, by a sender of a real host that is then changed.

use super::*;
use crate::cable::Side;
use crate::world::World;
use lightwait::local::{TcpListener, TcpStream};
use lightwait_netem::LinkConfig;
use tokio::io::AsyncWriteExt;

const NOW: Instant = Instant::from_millis(10_000);

/// A sender of segments of 1000 bytes, with ten of them in flight, a full window.
fn full() -> Sender {
    let link = LinkConfig { delay: Duration::from_millis(5), ..LinkConfig::default() };
    let mut world = World::two_hosts(&link, 1);
    let server = (world.address(Side::B), 80);
    let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
    let stream = world.run(Side::A, Duration::from_secs(1), TcpStream::connect(server));
    let mut stream = stream.unwrap().unwrap();
    let writing = async move { stream.write_all(&[0; 10_000]).await.map(|()| stream) };
    let stream = world.run(Side::A, Duration::from_millis(1), writing).unwrap().unwrap();
    let sender = world.host(Side::A, |host| host.senders(0..SLOTS).next()).unwrap();
    drop((listener, stream));
    assert!(sender.nxt.after(sender.una) && sender.retransmits == 0);
    Sender {
        nxt: sender.una + 10_000,
        pipe: 10_000,
        window: 10_000,
        threshold: 10_000,
        mss: 1000,
        rto: Duration::from_secs(1),
        retransmit: NOW + Duration::from_secs(1),
        ..sender
    }
}

/// So many new bytes leave.
fn sent(sender: Sender, bytes: u32) -> Sender {
    Sender { nxt: sender.nxt + bytes, pipe: sender.pipe + bytes, ..sender }
}

/// The verdict on a sender that was as `before` and is as `after`.
fn verdict(before: Sender, after: Sender) -> Result<(), &'static str> {
    Known::new(NOW, before).on_sent(NOW, after).map(|_| ())
}

#[track_caller]
fn keeps(before: Sender, after: Sender) {
    assert_eq!(verdict(before, after), Ok(()));
}

#[track_caller]
fn breaks(before: Sender, after: Sender) {
    assert_eq!(verdict(before, after), Err("sends more than its congestion window allows"));
}

#[test]
fn a_full_window_and_not_a_segment_more() {
    let full = full();
    let less = Sender { nxt: full.una + 9000, pipe: 9000, ..full };
    keeps(less, full);
    keeps(full, sent(full, 1));
    breaks(less, sent(full, 2));
    breaks(full, sent(full, 1000));
    // The window has shrunk: that is no fault, but nothing may leave.
    let shrunk = Sender { window: 5000, ..full };
    keeps(full, shrunk);
    breaks(full, sent(shrunk, 1000));
    // An empty pipe takes a segment, whatever the window.
    let idle = Sender { nxt: full.una, pipe: 0, window: 500, ..full };
    keeps(idle, sent(idle, 1000));
    breaks(idle, sent(idle, 2000));
}

#[test]
fn a_recovery_and_a_probe_begin_with_one_segment() {
    let full = full();
    let begins = Sender { point: Some(full.nxt), window: 5000, ..full };
    let again = |bytes| Sender { resent_bytes: bytes, retransmits: 1, ..begins };
    keeps(full, again(1000));
    breaks(full, again(2000));
    breaks(again(0), again(1000));
    keeps(Sender { is_forced: true, ..again(0) }, again(1000));
    keeps(again(0), Sender { timeouts: 1, ..again(1000) });
    let probe = Sender { is_probed: true, ..sent(full, 1000) };
    keeps(full, probe);
    breaks(probe, sent(probe, 1000));
}

#[test]
fn a_reduction_lets_out_half_of_what_has_arrived() {
    let full = full();
    let reduced = Sender { point: Some(full.nxt), is_reduced: true, window: 5000, ..full };
    let reduced = Sender { threshold: 5000, ..reduced };
    let known = Known::new(NOW, full).on_sent(NOW, reduced).unwrap();
    let arrived = Sender { sacked: 4000, pipe: 6000, ..reduced };
    let known = known.on_sent(NOW, arrived).unwrap();
    // The first retransmission comes on top of it.
    let known = known.on_sent(NOW, sent(arrived, 3000)).unwrap();
    assert!(known.on_sent(NOW, sent(known.sender, 1000)).is_err());
}

#[test]
fn what_is_lost_is_sent_again_in_time() {
    let full = full();
    let lost = Sender { lost: 1000, first_lost: Some(full.una), pipe: 9000, ..full };
    let known = Known::new(NOW, lost);
    let later = NOW + Duration::from_secs(5);
    assert_eq!(known.check_lost(NOW + Duration::from_secs(4)), Ok(()));
    assert_eq!(known.check_lost(later), Err("does not send again what is lost"));
    for after in [Sender { retransmits: 1, ..lost }, Sender { una: full.una + 1000, ..lost }, full]
    {
        assert_eq!(known.on_sent(later, after).unwrap().check_lost(later), Ok(()));
    }
    assert!(known.on_sent(later, lost).unwrap().check_lost(later).is_err());
}

#[test]
fn nothing_waits_that_is_not_woken() {
    let (full, at) = (full(), NOW + Duration::from_secs(1));
    let judge = |sender: Sender| check_wakes(&sender, Some(at));
    assert_eq!(judge(full), Ok(()));
    let timeless = Sender { retransmit: Instant::FAR_FUTURE, ..full };
    assert_eq!(judge(timeless), Err("waits without a timer"));
    assert_eq!(judge(Sender { is_listed: true, ..timeless }), Ok(()));
    let idle = Sender { nxt: full.una, unsent: 0, ..timeless };
    assert_eq!(judge(idle), Ok(()));
    assert_eq!(judge(Sender { unsent: 1, ..idle }), Err("waits without a timer"));
    assert_eq!(judge(Sender { unsent: 1, persist: at, ..idle }), Ok(()));
    assert!(check_wakes(&full, None).is_err());
    assert!(check_wakes(&full, Some(at + LATE * 2)).is_err());
    let paced = Sender { pace: at, ..full };
    assert_eq!(judge(paced), Err("waits for its pace and is not in the schedule"));
    let paced = Sender { is_in_schedule: true, ..paced };
    assert_eq!(judge(paced), Ok(()));
    assert!(check_wakes(&paced, Some(at + Duration::from_millis(1))).is_err());
}
