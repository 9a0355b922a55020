//! The example of docs/virtual-time.md, and what it stands on: a world for any program.

use std::time::Duration;

use lightwait::rt::sleep;
use lightwait_sim::{LinkConfig, Side, Trouble, World};

#[path = "../examples/virtual_time.rs"]
mod example;

#[test]
fn the_example_of_the_page_runs() {
    example::main();
}

#[test]
fn a_world_returns_what_its_task_returns_or_says_why_not() {
    let mut world = World::two_hosts(&LinkConfig::default(), 1);
    let begin = world.now();
    let limit = Duration::from_secs(10);
    let slept = world.run(Side::B, limit, async {
        sleep(Duration::from_secs(10)).await;
        "slept"
    });
    assert_eq!((slept, world.now().since(begin)), (Ok("slept"), limit));
    let late =
        world.run(Side::A, limit, async { sleep(Duration::from_nanos(10_000_000_001)).await });
    assert_eq!(late, Err(Trouble::Late(begin + 2 * limit)));
    let mut world = World::two_hosts(&LinkConfig::default(), 1);
    let quiet = world.run(Side::A, limit, std::future::pending::<()>());
    assert_eq!(quiet, Err(Trouble::Quiet(world.now())));
}

#[test]
#[should_panic(expected = "a fault of the program")]
fn a_panic_of_any_task_ends_the_test() {
    let mut world = World::two_hosts(&LinkConfig::default(), 1);
    world.spawn(Side::B, async { panic!("a fault of the program") });
    let _ =
        world.run(Side::A, Duration::from_secs(1), async { sleep(Duration::from_millis(1)).await });
}
