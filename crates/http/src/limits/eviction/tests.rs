use super::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// How far the peer is with the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answer {
    #[default]
    Delivered,
    UnderWay,
    Stalled,
}

impl Answers for Cell<Answer> {
    fn are_under_way(&self) -> bool {
        self.get() != Answer::Delivered
    }

    fn are_stalled(&self) -> bool {
        self.get() == Answer::Stalled
    }
}

/// All answers are delivered.
pub(crate) fn delivered() -> Rc<Cell<Answer>> {
    Rc::default()
}

fn is_wanted(entry: &EvictionEntry) -> bool {
    entry.is_wanted(&Context::from_waker(Waker::noop()))
}

#[test]
fn who_has_waited_longest_goes_and_nobody_who_is_answered() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let phases: Vec<Phase> = (0..4).map(|_| Phase::new(begin)).collect();
    let entries: Vec<EvictionEntry> =
        phases.iter().map(|p| room.enter((p.clone(), delivered()), None, begin)).collect();
    // The first is in progress, the second was a moment ago, and the third waits for a body.
    phases[0].on_request(begin + SECOND, false);
    phases[1].on_response(begin + SECOND * 2);
    phases[2].on_request(begin, true);
    let order: Vec<Option<usize>> = (0..4)
        .map(|_| {
            let before: Vec<bool> = entries.iter().map(is_wanted).collect();
            room.evict_for_memory(begin + SECOND * 3);
            entries.iter().zip(before).position(|(entry, before)| is_wanted(entry) && !before)
        })
        .collect();
    assert_eq!(order, [Some(3), Some(1), Some(2), None]);
    drop(entries);
    assert!(room.0.borrow().resting.is_empty());
}

#[test]
fn an_idle_one_is_found_at_the_first_look_among_many_awake() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let phases: Vec<Phase> = (0..3 * LOOKED_AT).map(|_| Phase::new(begin)).collect();
    let entries: Vec<EvictionEntry> =
        phases.iter().map(|p| room.enter((p.clone(), delivered()), None, begin)).collect();
    entries.iter().for_each(|entry| entry.set_awake(true));
    let resting = room.enter((Phase::new(begin), delivered()), None, begin);
    // All were answered after they were seated.
    let now = begin + SECOND;
    phases.iter().for_each(|phase| phase.on_response(now));
    for _ in 0..phases.len() {
        assert_eq!(room.evict_for_memory(now), Some(Given::Awake));
    }
    assert!(!is_wanted(&resting));
    assert_eq!(room.evict_for_memory(now), Some(Given::Resting));
}

#[test]
fn who_is_asked_something_before_it_can_go_stays() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let phase = Phase::new(begin);
    let entry = room.enter((phase.clone(), delivered()), None, begin);
    assert!(room.evict_for_place(None, begin) && is_wanted(&entry));
    phase.on_request(begin, true);
    assert!(is_wanted(&entry), "its request's body is waited for");
    phase.on_body_end();
    assert!(!is_wanted(&entry));
    phase.on_response(begin);
    assert!(!is_wanted(&entry), "it is not wanted any more");
}

#[test]
fn idle_ones_go_at_once_and_first_and_late_ones_after_a_grace() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let phases: Vec<Phase> = (0..3).map(|_| Phase::new(begin)).collect();
    let entries: Vec<EvictionEntry> =
        phases.iter().map(|phase| room.enter((phase.clone(), delivered()), None, begin)).collect();
    // The first sends a long request, which others must not make it lose; the last has an answer.
    phases[0].on_request(begin, true);
    phases[2].on_response(begin + SECOND);
    let now = begin + SECOND;
    let gone = |now| room.evict_for_place(None, now);
    let wanted = || -> Vec<bool> { entries.iter().map(is_wanted).collect() };
    assert!(gone(now));
    assert_eq!(wanted(), [false, true, false]);
    assert!(gone(now), "however short it waits");
    assert_eq!(wanted(), [false, true, true]);
    assert!(gone(now));
    assert_eq!(wanted(), [true; 3]);
    let phase = Phase::new(now);
    let entry = room.enter((phase.clone(), delivered()), None, now);
    phase.on_request(now, true);
    assert!(!gone(now) && !gone(now + GRACE - Duration::from_millis(1)));
    assert!(gone(now + GRACE) && is_wanted(&entry));
}

#[test]
fn nobody_loses_the_answer_that_it_still_receives_for_a_place() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let phase = Phase::new(begin);
    let answer = delivered();
    let entry = room.enter((phase.clone(), answer.clone()), None, begin);
    answer.set(Answer::UnderWay);
    assert!(!room.evict_for_place(None, begin + SECOND) && !is_wanted(&entry));
    answer.set(Answer::Delivered);
    assert!(room.evict_for_place(None, begin + SECOND) && is_wanted(&entry));
}

#[test]
fn whose_peer_takes_nothing_goes_for_a_place_after_all_others() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let enter = |answer, is_busy| {
        let phase = Phase::new(begin);
        if is_busy {
            phase.on_request(begin, false);
        }
        let answers = delivered();
        answers.set(answer);
        (room.enter((phase, answers.clone()), None, begin), answers)
    };
    let stalled = [enter(Answer::Stalled, false), enter(Answer::Stalled, true)];
    let moving = [enter(Answer::UnderWay, false), enter(Answer::UnderWay, true)];
    let busy = enter(Answer::Delivered, true);
    let idle = enter(Answer::Delivered, false);
    let now = begin + SECOND;
    let wanted = || [&idle, &stalled[0], &stalled[1]].map(|(entry, _)| is_wanted(entry));
    assert!(room.evict_for_place(None, now));
    assert_eq!(wanted(), [true, false, false]);
    assert!(room.evict_for_place(None, now) && room.evict_for_place(None, now));
    assert_eq!(wanted(), [true; 3]);
    assert!(!room.evict_for_place(None, now), "no other takes nothing");
    assert!(moving.iter().chain([&busy]).all(|(entry, _)| !is_wanted(entry)));
    // Its peer takes data before it can go: then it stays.
    stalled[1].1.set(Answer::UnderWay);
    assert!(!is_wanted(&stalled[1].0));
    // Memory is for the stack to judge.
    assert_eq!(enter(Answer::Stalled, true).0.connection.rank(Wanted::Memory, None, now), None);
}

#[test]
fn among_many_that_stall_one_is_found_at_a_few_looks() {
    let (room, begin) = (EvictionQueue::default(), Instant::now());
    let enter = |_| {
        let answers = delivered();
        answers.set(Answer::Stalled);
        room.enter((Phase::new(begin), answers), None, begin)
    };
    let entries: Vec<EvictionEntry> = (0..4 * LOOKED_AT).map(enter).collect();
    let before = room.0.borrow().next_number;
    for gone in 1..=entries.len() {
        assert!(room.evict_for_place(None, begin), "{gone}");
    }
    let looks = (room.0.borrow().next_number - before) as usize;
    assert!(looks <= entries.len() * LOOKED_AT_FOR_IDLE + LOOKED_AT, "{looks}");
}
