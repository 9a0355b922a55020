//! A timer for hyper on a shard.

use std::pin::Pin;
use std::time::{Duration, Instant as StdInstant};

use super::{Sleep, sleep};
use crate::shard::state;

impl ::hyper::rt::Sleep for Sleep {}

/// hyper's timer, on the current shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer;

impl ::hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn ::hyper::rt::Sleep>> {
        Box::pin(sleep(duration))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn ::hyper::rt::Sleep>> {
        Box::pin(Sleep::new(state::current().at_std(deadline)))
    }

    fn now(&self) -> StdInstant {
        let local = state::current();
        local.to_std(local.now())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn ::hyper::rt::Sleep>>, new_deadline: StdInstant) {
        let local = state::current();
        if let Some(mut sleep) = sleep.as_mut().downcast_mut_pin::<Sleep>() {
            sleep.unregister(&local);
            sleep.deadline = local.at_std(new_deadline);
        }
    }
}
