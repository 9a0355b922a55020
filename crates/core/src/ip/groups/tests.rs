use super::*;
use crate::frame::{Capabilities, Medium};
use proptest::collection::vec;
use proptest::prelude::*;

const T: Instant = Instant::from_millis(1_000_000);

fn groups() -> Groups {
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    Groups::new(&Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]))
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What is reported until nothing is due, each with its time after `T` in milliseconds.
fn reports(groups: &mut Groups) -> Vec<(u64, Change, IpAddr)> {
    let mut all = Vec::new();
    while groups.deadline() != Instant::FAR_FUTURE {
        let now = groups.deadline().max(T);
        let due = groups.due(now).into_iter();
        all.extend(due.map(|(change, group)| (now.since(T).as_millis() as u64, change, group)));
    }
    all
}

#[test]
fn a_change_is_reported_at_once_and_again_within_a_second() {
    for group in ["224.0.0.251", "239.1.2.3", "ff02::fb", "ff15::1"].map(at) {
        let mut groups = groups();
        groups.join(group).unwrap();
        groups.join(group).unwrap();
        let joined = reports(&mut groups);
        assert_eq!(joined.len(), 2, "for the first socket alone");
        assert_eq!(joined[0], (0, Change::Joined, group));
        assert!((1..=1000).contains(&joined[1].0) && joined[1].1 == Change::Joined, "{joined:?}");
        groups.leave(group);
        assert!(reports(&mut groups).is_empty() && groups.has(group));
        groups.leave(group);
        assert!(!groups.has(group));
        let left = reports(&mut groups);
        assert_eq!((left.len(), left[0]), (2, (0, Change::Left, group)));
        assert!(groups.all.is_empty());
    }
}

#[test]
fn what_all_hosts_hear_is_not_reported() {
    for group in ["224.0.0.1", "ff02::1", "ff01::5", "ff10::1"].map(at) {
        let mut groups = groups();
        groups.join(group).unwrap();
        groups.on_query(T, if group.is_ipv4() { at("0.0.0.0") } else { at("::") }, 1000);
        assert!(groups.has(group) && reports(&mut groups).is_empty(), "{group}");
        groups.leave(group);
        assert!(groups.all.is_empty());
    }
}

#[test]
fn a_query_is_answered_within_its_time_and_for_what_it_asks() {
    let mut groups = groups();
    let all = ["224.0.0.251", "239.1.2.3", "ff02::fb"].map(at);
    all.iter().for_each(|group| groups.join(*group).unwrap());
    reports(&mut groups);
    groups.on_igmp_query(T, (igmp::Version::V3, Ipv4Addr::UNSPECIFIED), 10_000);
    let answers = reports(&mut groups);
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|(at, change, group)| {
        *at <= 10_000 && *change == Change::Listening && group.is_ipv4()
    }));
    assert_eq!(answers[0].0, answers[1].0, "together");
    groups.on_mld_query(T, (mld::Version::V2, "ff02::fb".parse().unwrap()), 0);
    assert_eq!(reports(&mut groups), [(0, Change::Listening, all[2])]);
    groups.on_igmp_query(T, (igmp::Version::V3, Ipv4Addr::new(239, 9, 9, 9)), 1000);
    assert!(reports(&mut groups).is_empty(), "not ours");
}

#[test]
fn an_older_querier_is_spoken_to_in_its_version_for_a_while() {
    let mut groups = groups();
    assert_eq!(groups.igmp_version(T), igmp::Version::V3);
    groups.on_igmp_query(T, (igmp::Version::V2, Ipv4Addr::UNSPECIFIED), 100);
    assert_eq!(groups.igmp_version(T), igmp::Version::V2);
    groups.on_igmp_query(T, (igmp::Version::V1, Ipv4Addr::UNSPECIFIED), 100);
    let end = T + OLD_QUERIER;
    assert_eq!(groups.igmp_version(end - Duration::from_nanos(1)), igmp::Version::V1);
    assert_eq!(groups.igmp_version(end), igmp::Version::V3);
    groups.on_mld_query(T, (mld::Version::V1, Ipv6Addr::UNSPECIFIED), 100);
    assert_eq!(groups.mld_version(end - Duration::from_nanos(1)), mld::Version::V1);
    assert_eq!(groups.mld_version(end), mld::Version::V2);
}

#[test]
fn the_group_beyond_the_limit_is_refused_until_one_is_left() {
    let mut groups = groups();
    let group = |number: usize| IpAddr::V4(Ipv4Addr::from_bits(0xef00_0000 + number as u32));
    for number in 0..GROUPS_MAX {
        groups.join(group(number)).unwrap();
    }
    assert_eq!(groups.join(group(GROUPS_MAX)), Err(Error::Limit("groups")));
    assert_eq!(groups.join(group(3)), Ok(()), "a second socket");
    groups.leave(group(7));
    assert_eq!(groups.join(group(GROUPS_MAX)), Ok(()));
    assert_eq!(groups.all.len(), GROUPS_MAX);
}

#[test]
fn a_group_of_any_shard_is_reported_once() {
    let mut groups = groups();
    let group = at("239.1.2.3");
    groups.on_told(3, group, true);
    groups.on_told(3, group, true);
    groups.on_told(1, group, true);
    assert_eq!(reports(&mut groups).len(), 2);
    groups.on_told(3, group, false);
    assert!(groups.has(group) && reports(&mut groups).is_empty());
    groups.on_told(1, group, false);
    assert_eq!(reports(&mut groups).len(), 2, "left");
    groups.on_told(1, group, false);
    assert!(groups.all.is_empty(), "told once more");
}

proptest! {
    #[test]
    fn whoever_listens_is_heard_and_all_comes_to_rest(
        steps in vec((0u8..5, 0usize..4, 0u16..3), 1..80),
    ) {
        let mut groups = groups();
        let addresses = ["224.0.0.251", "239.1.2.3", "ff02::fb", "ff01::1"].map(at);
        let mut sockets = [0u32; 4];
        let mut replicas = [0u64; 4];
        let mut now = T;
        for (what, which, shard) in steps {
            let address = addresses[which];
            match what {
                0 => {
                    groups.join(address).unwrap();
                    sockets[which] += 1;
                }
                1 if sockets[which] > 0 => {
                    groups.leave(address);
                    sockets[which] -= 1;
                }
                2 => {
                    let listens = replicas[which] >> shard & 1 == 0;
                    groups.on_told(shard, address, listens);
                    replicas[which] ^= 1 << shard;
                }
                3 => groups.on_query(now, address, 500),
                _ => {
                    now = now + Duration::from_millis(300);
                    groups.due(now);
                    prop_assert!(groups.deadline() > now);
                }
            }
            for (which, address) in addresses.iter().enumerate() {
                let is_heard = sockets[which] > 0 || replicas[which] != 0;
                prop_assert_eq!(groups.has(*address), is_heard);
            }
        }
        now = now + Duration::from_secs(2);
        groups.due(now);
        groups.due(now + Duration::from_secs(2));
        prop_assert_eq!(groups.deadline(), Instant::FAR_FUTURE);
        let heard = (0..4).filter(|which| sockets[*which] > 0 || replicas[*which] != 0).count();
        prop_assert_eq!(groups.all.len(), heard);
    }
}
