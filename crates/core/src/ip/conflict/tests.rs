use crate::ip::conflict::*;
use proptest::collection::vec;
use proptest::prelude::*;

const THEIRS: Mac = [2, 0, 0, 0, 0, 9];
const MS: Duration = Duration::from_millis(1);

fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn ours() -> IpAddr {
    v4(2).into()
}

fn ipv6() -> IpAddr {
    "fd00::2".parse().unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn claims(probe: Duration, seed: u8) -> Claims {
    Claims::new(probe, true, &[seed; 32])
}

fn said(claims: &mut Claims) -> Vec<Output> {
    core::iter::from_fn(|| claims.output()).collect()
}

/// Everything that is said from `now` on while no host objects, and when.
fn run(claims: &mut Claims, mut now: Instant) -> Vec<(Instant, Output)> {
    let mut all = Vec::new();
    loop {
        claims.on_time(now);
        all.extend(said(claims).into_iter().map(|output| (now, output)));
        match claims.deadline() {
            Some(deadline) => now = deadline,
            None => return all,
        }
    }
}

/// Claims that hold an address since `at(0)`, long announced.
fn held(address: IpAddr) -> Claims {
    let mut claims = claims(Duration::ZERO, 1);
    claims.begin(at(0), address);
    claims.on_verified(at(0), address);
    assert_eq!(run(&mut claims, at(0)).len(), 2);
    claims
}

#[test]
fn three_probes_without_an_answer_let_us_announce_twice() {
    for (seed, probe) in (0..100).zip([PROBE_LONGEST, MS * 70].into_iter().cycle()) {
        let mut claims = claims(probe, seed);
        claims.begin(at(1000), ours());
        assert_eq!(claims.claimed(), Claimed::Pending);
        let said = run(&mut claims, at(1000));
        assert_eq!(claims.claimed(), Claimed::All);
        let outputs: Vec<_> = said.iter().map(|(_, output)| *output).collect();
        let (probe_it, tell) = (Output::Probe(v4(2)), Output::Announce(ours()));
        assert_eq!(outputs, [probe_it, probe_it, probe_it, Output::Use(v4(2)), tell, tell]);
        let mut before = at(1000);
        let pauses: Vec<_> =
            said.iter().map(|(now, _)| now.since(core::mem::replace(&mut before, *now))).collect();
        let part = |time: Duration| time.mul_f64(probe.as_secs_f64() / 7.0);
        let near = |pause: Duration, time| pause.abs_diff(part(time)) < Duration::from_nanos(9);
        assert!(pauses[0] <= part(PROBE_WAIT), "{pauses:?}");
        for pause in &pauses[1..3] {
            assert!(*pause >= part(PROBE_MIN) && *pause <= part(PROBE_MAX), "{pauses:?}");
        }
        assert!(near(pauses[3], ANNOUNCE_WAIT), "{pauses:?}");
        assert_eq!(pauses[4..], [Duration::ZERO, ANNOUNCE_INTERVAL]);
    }
}

#[test]
fn probes_of_two_hosts_are_spread_over_the_wait() {
    let firsts = (0..100).map(|seed| {
        let mut claims = claims(PROBE_LONGEST, seed);
        claims.begin(at(0), ours());
        claims.deadline().unwrap()
    });
    let firsts: Vec<_> = firsts.collect();
    for quarter in 0..4 {
        let span = at(quarter * 250)..at(quarter * 250 + 250);
        let count = firsts.iter().filter(|first| span.contains(first)).count();
        assert!((10..=40).contains(&count), "{count} of 100 in quarter {quarter}");
    }
}

#[test]
fn an_address_owned_or_probed_by_another_is_lost_for_the_wait() {
    let mut length = claims(PROBE_LONGEST, 1);
    length.begin(at(0), ours());
    let said_unharmed = run(&mut length, at(0));
    let used = said_unharmed.iter().find(|(_, output)| matches!(output, Output::Use(_)));
    let end = used.unwrap().0;
    for by_probe in [false, true] {
        for (objection, is_lost) in [(at(0), true), (end - MS, true), (end + MS, false)] {
            let mut claims = claims(PROBE_LONGEST, 1);
            claims.begin(at(0), ours());
            while let Some(deadline) = claims.deadline().filter(|deadline| *deadline <= objection) {
                claims.on_time(deadline);
            }
            if by_probe {
                claims.on_probe(ours(), THEIRS);
            } else {
                claims.on_claim(objection, ours(), THEIRS);
            }
            let conflict = Conflict { address: ours(), claimant: THEIRS, kept: !is_lost };
            let used = run(&mut claims, objection);
            let used = used.iter().any(|(_, output)| matches!(output, Output::Announce(_)));
            assert_eq!(used, !is_lost, "{objection:?}");
            if is_lost {
                assert_eq!(claims.claimed(), Claimed::Refused(conflict));
            } else {
                assert_eq!(claims.claimed(), Claimed::All);
            }
            let told = (is_lost || !by_probe).then_some(conflict);
            assert_eq!((claims.conflict(), claims.conflict()), (told, None));
        }
    }
}

#[test]
fn an_address_that_is_ours_is_defended_once_in_ten_seconds() {
    for address in [ours(), ipv6()] {
        let mut claims = held(address);
        let mut defended = Vec::new();
        for second in 0..35 {
            let now = at(10_000 + second * 1000);
            let spoken = claims.on_claim(now, address, THEIRS);
            let expected = if spoken { Vec::from([Output::Announce(address)]) } else { Vec::new() };
            assert_eq!(said(&mut claims), expected);
            defended.extend(spoken.then_some(second));
            assert_eq!(claims.claimed(), Claimed::All);
        }
        assert_eq!(defended, [0, 10, 20, 30]);
        let conflict = Conflict { address, claimant: THEIRS, kept: true };
        let told: Vec<_> = core::iter::from_fn(|| claims.conflict()).collect();
        assert_eq!(told, [conflict; 4]);
        assert!(!claims.on_claim(at(0), v4(77).into(), THEIRS), "not ours");
    }
}

#[test]
fn without_probes_it_announces_and_without_both_it_is_silent() {
    let mut unprobed = claims(Duration::ZERO, 1);
    unprobed.begin(at(5), ours());
    assert_eq!(unprobed.claimed(), Claimed::All);
    assert_eq!(said(&mut unprobed), [Output::Announce(ours())]);
    assert_eq!(unprobed.deadline(), Some(at(2005)));
    let mut silent = Claims::new(Duration::ZERO, false, &[1; 32]);
    silent.begin(at(5), ours());
    silent.begin(at(5), ipv6());
    silent.on_verified(at(1005), ipv6());
    assert_eq!((silent.claimed(), silent.deadline()), (Claimed::All, None));
    assert_eq!(said(&mut silent), []);
    assert!(silent.on_claim(at(9), ours(), THEIRS), "and defended all the same");
}

#[test]
fn addresses_that_are_ours_are_announced_again_and_no_others() {
    let mut claims = held(ours());
    claims.begin(at(100_000), ipv6());
    claims.on_link_up(at(100_000));
    let said: Vec<_> = run(&mut claims, at(100_000));
    let tell = Output::Announce(ours());
    assert_eq!(said, [(at(100_000), tell), (at(102_000), tell)]);
    let mut probing = self::claims(PROBE_LONGEST, 1);
    probing.begin(at(0), ours());
    let due = probing.deadline();
    probing.on_link_up(at(0));
    assert_eq!((probing.claimed(), probing.deadline()), (Claimed::Pending, due));
    let mut silent = Claims::new(Duration::ZERO, false, &[1; 32]);
    silent.begin(at(0), ours());
    silent.on_link_up(at(0));
    assert_eq!((silent.output(), silent.deadline()), (None, None));
}

/// Claims that probe, and hold an address when the link comes up again at `at(20_000)`.
fn reconnected() -> Claims {
    let mut claims = claims(MS * 70, 1);
    claims.begin(at(0), ours());
    run(&mut claims, at(0));
    while claims.take_news() {}
    claims.on_link_up(at(20_000));
    claims
}

#[test]
fn when_the_link_returns_a_used_address_is_probed_and_announced() {
    let mut claims = reconnected();
    assert_eq!(claims.claimed(), Claimed::All);
    let outputs: Vec<_> = run(&mut claims, at(20_000)).into_iter().map(|(_, said)| said).collect();
    let (probe_it, tell) = (Output::Probe(v4(2)), Output::Announce(ours()));
    assert_eq!(outputs, [probe_it, probe_it, probe_it, tell, tell]);
    assert_eq!((claims.claimed(), claims.take_news()), (Claimed::All, false));
}

#[test]
fn an_objection_to_a_probe_claims_the_address_a_probe_does_not() {
    let mut claims = reconnected();
    claims.on_time(at(20_020));
    claims.on_probe(ours(), THEIRS);
    assert_eq!((claims.conflict(), claims.claimed()), (None, Claimed::All));
    said(&mut claims);
    assert!(claims.on_claim(at(20_021), ours(), THEIRS));
    assert_eq!(said(&mut claims), [Output::Announce(ours())], "it is defended");
    let kept = Conflict { address: ours(), claimant: THEIRS, kept: true };
    assert_eq!((claims.conflict(), claims.claimed()), (Some(kept), Claimed::All));
    assert!(!claims.on_claim(at(20_022), ours(), THEIRS), "once in ten seconds");
}

#[test]
fn an_address_of_ipv6_waits_for_its_verification() {
    for (probe, before) in [(Duration::ZERO, Claimed::All), (PROBE_LONGEST, Claimed::Pending)] {
        let mut claims = claims(probe, 1);
        claims.begin(at(0), ipv6());
        assert_eq!((claims.claimed(), claims.deadline()), (before, None));
        let mut lost = self::claims(probe, 1);
        lost.begin(at(0), ipv6());
        claims.on_verified(at(1000), ipv6());
        assert_eq!(claims.claimed(), Claimed::All);
        assert_eq!(run(&mut claims, at(1000)).len(), 2);
        claims.on_verified(at(9000), ipv6());
        assert_eq!(said(&mut claims), [], "told already");
        lost.on_lost(ipv6(), THEIRS);
        assert!(matches!(lost.claimed(), Claimed::Refused(_)));
        lost.on_verified(at(1000), ipv6());
        assert_eq!(said(&mut lost), []);
    }
}

proptest! {
    #[test]
    fn whatever_is_said_the_books_balance(
        probe_ms in 0u64..8000,
        steps in vec((0u8..7, 0u8..4, 0u64..4000), 0..80),
    ) {
        let mut claims = claims(MS * probe_ms as u32, 3);
        let (mut now, mut used, mut told, mut ups) = (0, Vec::new(), 0, 0);
        for (kind, n, pass) in steps {
            now += pass;
            let address = if n == 3 { ipv6() } else { v4(n).into() };
            claims.on_time(at(now));
            match kind {
                0 => claims.begin(at(now), address),
                1 => claims.on_probe(address, THEIRS),
                2 => claims.on_verified(at(now), address),
                3 => {
                    ups += 1;
                    claims.on_link_up(at(now));
                }
                _ => { claims.on_claim(at(now), address, THEIRS); }
            }
            for output in said(&mut claims) {
                match output {
                    Output::Use(address) => {
                        prop_assert!(!used.contains(&address), "used twice");
                        used.push(address);
                    }
                    Output::Probe(address) => prop_assert!(ups > 0 || !used.contains(&address)),
                    Output::Announce(address) => {
                        told += 1;
                        let of_ipv4 = match address { IpAddr::V4(v4) => Some(v4), _ => None };
                        let unused = of_ipv4.filter(|_| probe_ms > 0);
                        prop_assert!(unused.is_none_or(|address| used.contains(&address)));
                    }
                }
            }
            prop_assert!(claims.conflicts.len() <= CONFLICTS_MAX);
            prop_assert!(claims.deadline().is_none_or(|deadline| deadline > at(now)));
        }
        // Two announcements of each whenever the link comes up, and a defence in ten seconds.
        prop_assert!(told <= 4 * (2 + 2 * ups + 1 + now / 10_000), "{}", told);
    }
}
