//! A synchronized connection in one call, in the pieces that the steps of
//! [`arrive`](crate::tcp::arrive) and [`emit`](crate::tcp::emit) work on. The shape is matched
//! once, where a step is made. No step ends the connection itself: it returns how the connection
//! ends, and its caller ends it.

use core::ops::ControlFlow::{self, Break};

use super::{Common, Connection, Context, Shape, Synchronized};
use crate::error::Error;
use crate::tcp::time_wait::negotiate::Holding;

/// The state that a step works on.
pub struct Step<'a> {
    /// The host's part.
    pub cx: &'a mut Context,
    /// The part that every connection has.
    pub common: &'a mut Common,
    /// The part of a synchronized one.
    pub(crate) s: &'a mut Synchronized,
}

/// Whether the next step follows. If none does, how the connection ends, if it does.
pub type Passed = ControlFlow<Option<Ending>>;

/// How a synchronized connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// CLOSED, and why if it was not in order.
    Closed(Option<Error>),
    /// We reset it (RFC 9293 §3.10.5).
    Aborted(Error),
    /// Both FINs are acknowledged, ours by the peer; this says which end holds TIME-WAIT.
    TimeWait(Holding),
    /// Both FINs are acknowledged, and the peer holds TIME-WAIT: LAST-ACK is over.
    LastAck,
}

impl Connection {
    /// The state that the steps work on, if it is synchronized.
    pub fn step<'a>(&'a mut self, cx: &'a mut Context) -> Option<Step<'a>> {
        match &mut self.shape {
            Shape::Synchronized(s) => Some(Step { cx, common: &mut self.common, s }),
            _ => None,
        }
    }

    /// The last step has passed, or one that none follows: ends the connection if that says so.
    pub(crate) fn conclude(&mut self, passed: Passed, cx: &mut Context) {
        if let Break(Some(ending)) = passed {
            self.finish(ending, cx);
        }
    }
}
