//! A panic of a task's code outside of its poll.

use super::*;
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

/// The state of a shard that contains panics, or lets them unwind.
fn local_that(contains: bool) -> Rc<Local> {
    let local = local();
    local.executor().contain_panics(contains);
    local
}

/// Spawns a task that holds a bomb and waits for ever.
fn spawn_holder(local: &Rc<Local>) -> JoinHandle<()> {
    let handle = spawn_on(local, async {
        let _bomb = Bomb("a future's");
        pending::<()>().await;
    });
    run(local, 1);
    handle
}

/// Spawns a task whose output is a bomb.
fn spawn_yielder(local: &Rc<Local>) -> JoinHandle<Bomb> {
    spawn_on(local, ready(Bomb("an output's")))
}

/// Waits for a task in one turn.
fn join<T: 'static>(local: &Rc<Local>, handle: JoinHandle<T>) -> Result<T, JoinError> {
    let ended = Rc::new(RefCell::new(None));
    let joined = ended.clone();
    drop(spawn_on(local, async move { *joined.borrow_mut() = Some(handle.await) }));
    run(local, 10);
    ended.take().expect("the task has ended")
}

/// True if `run` panics.
fn unwinds(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

#[test]
fn a_panic_while_an_aborted_future_is_dropped_is_the_handles() {
    let local = local_that(true);
    let handle = spawn_holder(&local);
    handle.abort();
    assert!(handle.is_finished());
    assert_eq!(local.executor().len(), 0);
    let error = join(&local, handle).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert_eq!(error.to_string(), "the task panicked: a future's");
}

#[test]
fn a_panic_while_an_ended_future_is_dropped_is_the_handles() {
    /// Is ready at once, and panics when it is dropped.
    struct Ready(#[expect(dead_code)] Bomb);
    impl Future for Ready {
        type Output = u32;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
            Poll::Ready(1)
        }
    }
    let local = local_that(true);
    let handle = spawn_on(&local, Ready(Bomb("an ended future's")));
    run(&local, 1);
    assert!(join(&local, handle).unwrap_err().is_panic());
}

#[test]
fn an_output_that_nobody_takes_may_panic() {
    let local = local_that(true);
    drop(spawn_yielder(&local));
    assert_eq!(run(&local, 1), 1, "dropped at the task's end");
    let late = spawn_yielder(&local);
    run(&local, 1);
    drop(late);
    let outlives = spawn_yielder(&local);
    run(&local, 1);
    drop(local);
    drop(outlives);
}

#[test]
fn a_payload_that_nobody_takes_may_panic() {
    let spawn =
        |local: &Rc<Local>| spawn_on(local, async { std::panic::panic_any(Bomb("a payload's")) });
    let local = local_that(true);
    drop(spawn(&local));
    assert_eq!(run(&local, 1), 1, "dropped at the task's end");
    let late = spawn(&local);
    run(&local, 1);
    drop::<JoinHandle<()>>(late);
}

#[test]
fn all_tasks_are_dropped_though_some_panic() {
    let (local, dropped) = (local_that(true), Rc::new(()));
    let first = spawn_holder(&local);
    let held = dropped.clone();
    drop(spawn_on(&local, async move { pending::<Rc<()>>().await == held }));
    drop(spawn_holder(&local));
    local.executor().clear();
    assert_eq!((Rc::strong_count(&dropped), local.executor().len()), (1, 0));
    assert!(join(&local, first).unwrap_err().is_panic());
}

#[test]
fn a_task_that_is_spawned_while_all_are_dropped_is_dropped_too() {
    /// Wakes a task and spawns a copy of itself when it is dropped, as often as it holds.
    struct Respawns(Rc<Local>, u32, Rc<Cell<u32>>);
    impl Drop for Respawns {
        fn drop(&mut self) {
            let Respawns(local, left, drops) = self;
            drops.set(drops.get() + 1);
            let _entered = local.enter();
            local.executor().make_ready(0);
            if let Some(left) = left.checked_sub(1) {
                let next = Respawns(local.clone(), left, drops.clone());
                drop(spawn_on(local, async move {
                    pending::<()>().await;
                    drop(next);
                }));
            }
        }
    }
    let (local, drops) = (local(), Rc::new(Cell::new(0)));
    let first = Respawns(local.clone(), 3, drops.clone());
    drop(spawn_on(&local, async move {
        pending::<()>().await;
        drop(first);
    }));
    run(&local, 1);
    local.executor().clear();
    assert_eq!((drops.get(), local.executor().len(), Rc::strong_count(&local)), (4, 0, 1));
}

#[test]
fn a_panic_that_is_not_contained_unwinds_the_caller() {
    let local = local_that(false);
    let handle = spawn_holder(&local);
    assert!(unwinds(|| handle.abort()));
    drop(spawn_yielder(&local));
    assert!(unwinds(|| assert_eq!(run(&local, 1), 1)));
    let late = spawn_yielder(&local);
    run(&local, 1);
    assert!(unwinds(|| drop(late)));
    drop(spawn_holder(&local));
    assert!(unwinds(|| local.executor().clear()));
}
