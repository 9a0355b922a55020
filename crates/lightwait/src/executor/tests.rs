use super::*;
use crate::clock::Clock;
use crate::rt;
use lightwait_core::{Capabilities, Config, Host, Medium};
use std::cell::Cell;
use std::future::poll_fn;
use std::task::Waker;
use std::time::Duration;

mod panics;

/// The state of a shard with an idle host.
fn local() -> Rc<Local> {
    let plain = Capabilities::plain(Medium::Ip, 1500);
    let config = Config::new(plain, "10.0.0.1/24".parse().unwrap(), [7; 32]);
    Local::new(Host::new(config).unwrap(), Clock::of_system())
}

fn run(local: &Rc<Local>, budget: usize) -> usize {
    let _entered = local.enter();
    local.executor().run(budget)
}

/// A future that is pending until `Gate::open` is called.
#[derive(Clone, Default)]
struct Gate(Rc<GateState>);

#[derive(Default)]
struct GateState {
    is_open: Cell<bool>,
    polls: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    fn open(&self) {
        self.0.is_open.set(true);
        self.0.waker.take().unwrap().wake();
    }

    async fn pass(self) {
        poll_fn(|context| {
            self.0.polls.set(self.0.polls.get() + 1);
            *self.0.waker.borrow_mut() = Some(context.waker().clone());
            if self.0.is_open.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn polls(&self) -> u32 {
        self.0.polls.get()
    }
}

#[test]
fn a_task_runs_when_woken_and_only_then() {
    let (local, gate) = (local(), Gate::default());
    let handle = spawn_on(&local, gate.clone().pass());
    assert_eq!((run(&local, 10), run(&local, 10)), (1, 0));
    assert!(!handle.is_finished() && !local.executor().has_ready());
    {
        let _entered = local.enter();
        gate.open();
        assert!(!local.executor().inbox().is_filled(), "a wake at home needs no inbox");
    }
    assert_eq!(run(&local, 10), 1);
    assert!(handle.is_finished());
    assert_eq!((gate.polls(), local.executor().len()), (2, 0));
}

#[test]
fn a_wake_from_outside_the_turn_or_thread_uses_the_inbox() {
    let (local, gate) = (local(), Gate::default());
    let _handle = spawn_on(&local, gate.clone().pass());
    run(&local, 10);
    let waker = gate.0.waker.borrow().clone().unwrap();
    waker.wake_by_ref();
    assert!(local.executor().inbox().is_filled());
    assert_eq!(run(&local, 10), 1);
    let waker = gate.0.waker.borrow().clone().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert!(local.executor().has_ready());
    assert_eq!(run(&local, 10), 1);
    assert_eq!(gate.polls(), 3);
}

#[test]
fn a_wake_inside_another_shards_turn_is_not_taken_for_ones_own() {
    let (ours, other, gate) = (local(), local(), Gate::default());
    let _handle = spawn_on(&ours, gate.clone().pass());
    run(&ours, 10);
    let entered = other.enter();
    gate.open();
    assert!(!other.executor().has_ready() && ours.executor().has_ready());
    drop(entered);
    assert_eq!(run(&ours, 10), 1);
}

#[test]
fn the_budget_is_kept_and_not_one_task_more_runs() {
    let local = local();
    for _ in 0..3 {
        spawn_on(&local, async {});
    }
    assert_eq!(run(&local, 2), 2);
    assert!(local.executor().has_ready());
    assert_eq!(run(&local, 2), 1);
}

#[test]
fn a_handle_gives_the_result_or_says_that_there_is_none() {
    let local = local();
    let inner = spawn_on(&local, async { 42 });
    let aborted = spawn_on(&local, std::future::pending::<()>());
    let waits = spawn_on(&local, async { (inner.await, aborted.await) });
    let never = spawn_on(&local, std::future::pending::<()>());
    run(&local, 10);
    assert!(!waits.is_finished());
    never.abort();
    assert!(never.is_finished());
    assert_eq!(local.executor().len(), 2);
}

#[test]
fn an_aborted_task_wakes_its_joiner_and_its_place_is_reused() {
    let local = local();
    let dropped = Rc::new(());
    let held = dropped.clone();
    let task = Rc::new(spawn_on(&local, async move {
        std::future::pending::<()>().await;
        drop(held);
    }));
    let place = task.task.place;
    run(&local, 10);
    task.abort();
    assert_eq!(Rc::strong_count(&dropped), 1, "what the task held is free");
    task.abort();
    let waits = spawn_on(&local, async move { Rc::into_inner(task).unwrap().await });
    run(&local, 10);
    assert!(waits.is_finished());
    let next = spawn_on(&local, async {});
    assert_eq!(next.task.place, place);
    assert!(!next.is_finished());
}

#[test]
fn a_waker_past_its_task_wakes_the_next_and_never_an_ended_one() {
    let (local, first, second) = (local(), Gate::default(), Gate::default());
    let place = spawn_on(&local, first.clone().pass()).task.place;
    run(&local, 10);
    let stale = first.0.waker.borrow().clone().unwrap();
    let _entered = local.enter();
    first.open();
    run(&local, 10);
    assert_eq!(local.executor().len(), 0);
    stale.wake_by_ref();
    assert_eq!(run(&local, 10), 1, "nothing is there");
    let next = spawn_on(&local, second.clone().pass());
    assert_eq!((next.task.place, run(&local, 10)), (place, 1));
    stale.wake();
    run(&local, 10);
    assert_eq!((second.polls(), next.is_finished()), (2, false));
    second.open();
    run(&local, 10);
    assert!(next.is_finished());
}

#[test]
fn who_polls_is_known_as_a_task_or_by_a_waker_of_its_own() {
    struct Flag(std::sync::atomic::AtomicBool);
    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (local, polls) = (local(), Rc::new(Cell::new(0)));
    let listener = local.host_mut().listen("10.0.0.1:80".parse().unwrap(), 1).unwrap();
    let flag = Arc::new(Flag(false.into()));
    let (inside, counts, waker) = (local.clone(), polls.clone(), Waker::from(flag.clone()));
    drop(spawn_on(&local, async move {
        poll_fn(|context| {
            counts.set(counts.get() + 1);
            inside.wait_acceptable(listener, context);
            inside.wait_acceptable(listener, &Context::from_waker(&waker));
            Poll::<()>::Pending
        })
        .await;
    }));
    run(&local, 10);
    let own = local.executor().task_at(0).unwrap();
    assert_eq!(Rc::strong_count(&own), 3, "its place and the listener hold it");
    local.wake_acceptors(listener);
    assert_eq!((run(&local, 10), polls.get()), (1, 2));
    assert!(flag.0.load(std::sync::atomic::Ordering::Relaxed));
    let waker = Waker::noop();
    assert!(
        matches!(local.executor().waiter(waker), Waiter::Other(known) if known.will_wake(waker))
    );
    local.executor().clear();
}

#[test]
fn a_handle_keeps_its_tasks_end_from_the_next_in_its_place() {
    let local = local();
    let first = spawn_on(&local, async { 1 });
    run(&local, 10);
    let second = spawn_on(&local, async { 2 });
    assert_eq!(first.task.place, second.task.place);
    first.abort();
    run(&local, 10);
    let sum = Rc::new(Cell::new(0));
    let add = sum.clone();
    spawn_on(&local, async move { add.set(first.await.unwrap() + second.await.unwrap()) });
    run(&local, 10);
    assert_eq!(sum.get(), 3);
}

#[test]
fn what_a_task_leaves_is_dropped_at_once_or_with_its_handle() {
    let (local, left) = (local(), Rc::new(()));
    let leave = |left: &Rc<()>| {
        let left = left.clone();
        spawn_on(&local, async move { left })
    };
    drop(leave(&left));
    let handle = leave(&left);
    run(&local, 10);
    assert!(handle.is_finished());
    assert_eq!(Rc::strong_count(&left), 2);
    // A stale waiter still holds the task: its wake does nothing, and it does not keep the output.
    let stale = handle.task.clone();
    drop(handle);
    assert_eq!(Rc::strong_count(&left), 1);
    local.executor().enqueue(stale);
    assert_eq!(run(&local, 10), 1);
}

#[test]
fn a_task_reuses_memory_of_its_type_and_none_of_its_content() {
    let (local, dropped) = (local(), Rc::new(()));
    let hold = |held: Rc<()>| async move { Rc::strong_count(&held) };
    let room = || {
        let places = local.executor().places.borrow();
        let work = places.tasks[0].as_ref().unwrap().work.take().unwrap();
        let address = std::ptr::from_ref(&*work).addr();
        places.tasks[0].as_ref().unwrap().work.set(Some(work));
        address
    };
    drop(spawn_on(&local, hold(dropped.clone())));
    let first = room();
    run(&local, 10);
    assert_eq!(Rc::strong_count(&dropped), 1, "the future is gone when its task ends");
    drop(spawn_on(&local, hold(dropped.clone())));
    assert_eq!(room(), first);
    assert_eq!(run(&local, 10), 1);
    let other = spawn_on(&local, async { "of another type" });
    run(&local, 10);
    assert!(other.is_finished());
}

#[test]
fn places_that_a_burst_has_left_keep_little() {
    let local = local();
    let burst: Vec<Gate> = (0..3 * KEPT_TASKS).map(|_| Gate::default()).collect();
    for gate in &burst {
        drop(spawn_on(&local, gate.clone().pass()));
    }
    run(&local, burst.len());
    let _entered = local.enter();
    burst.iter().for_each(Gate::open);
    run(&local, burst.len());
    assert_eq!(local.executor().len(), 0);
    let kept = || local.executor().places.borrow().tasks.iter().flatten().count();
    assert_eq!(kept(), KEPT_TASKS);
    drop(spawn_on(&local, async {}));
    run(&local, 1);
    assert_eq!(kept(), KEPT_TASKS, "the last to be left is the first to be used");
}

#[test]
fn clearing_drops_tasks_that_own_handles_of_their_own_shard() {
    let local = local();
    let handle = crate::shard::Handle { local: local.clone() };
    spawn_on(&local, async move {
        std::future::pending::<()>().await;
        handle.tasks();
    });
    run(&local, 10);
    assert_eq!(Rc::strong_count(&local), 2);
    local.executor().clear();
    assert_eq!((Rc::strong_count(&local), local.executor().len()), (1, 0));
}

#[test]
fn sleepers_wake_at_their_deadline_and_not_a_nanosecond_before() {
    let local = local();
    let slept = spawn_on(&local, rt::sleep_until(lightwait_core::Instant::from_millis(5)));
    let cut = spawn_on(&local, async {
        let forever = rt::sleep(Duration::from_secs(1000));
        rt::timeout(Duration::from_millis(2), forever).await
    });
    let at = |ns: u64| {
        let now = lightwait_core::Instant::from_nanos(ns);
        local.set_time(now);
        local.wake_sleepers(now);
        run(&local, 10);
    };
    at(0);
    assert_eq!(local.timers().next(), Some(lightwait_core::Instant::from_millis(2)));
    at(1_999_999);
    assert!(!cut.is_finished());
    at(2_000_000);
    assert!(cut.is_finished() && !slept.is_finished());
    at(4_999_999);
    assert!(!slept.is_finished());
    at(5_000_000);
    assert!(slept.is_finished());
    assert_eq!(local.timers().next(), None, "a sleep that was dropped is forgotten");
}
