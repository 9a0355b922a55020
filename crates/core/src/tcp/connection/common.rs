//! What a connection has in every shape: its two ends, where it is in RFC 9293's Figure 5, what its
//! user asked for, when its timers fire, and what is due.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{Blocked, Context, Reset, Trouble};
use crate::config::TcpConfig;
use crate::error::Error;
use crate::event::Readiness;
use crate::tcp::state::StateCell;
use crate::tcp::timers::{Deadlines, Timer};
use crate::tcp::{SocketOptions, State};
use crate::time::{Duration, Instant};

/// The fields of a connection in every shape, in order: `connection/layout.rs` says where each
/// lies.
#[derive(Debug)]
#[repr(C)]
pub struct Common {
    /// Where it is in RFC 9293's Figure 5.
    pub(crate) state: StateCell,
    /// The calls that have become possible since the host last asked.
    pub notices: Readiness,
    /// Its user has closed it.
    pub orphan: bool,
    /// Its user reads no more: data that comes once our FIN is sent resets it.
    pub read_shut: bool,
    /// The condition that its writer waits for.
    pub(crate) blocked: Blocked,
    /// The user closed or shut down before the connection was synchronized.
    pub close_early: bool,
    /// A SYN, or SYN, ACK, to send.
    pub syn_due: bool,
    /// In SYN-RECEIVED: an ACK to send, in answer to what was unacceptable.
    pub answer_due: bool,
    /// Its user's options; shared by all connections with the same wishes.
    pub options: Arc<SocketOptions>,
    /// An RST to send.
    pub reset_due: Option<Box<Reset>>,
    /// The trouble that keeps it from going on.
    pub trouble: Option<Box<Trouble>>,
    /// The two ends.
    pub(crate) identity: Identity,
    /// When its timers fire.
    pub deadlines: Deadlines,
}

/// The two ends of a connection: all that the connection has to know of them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Identity {
    /// The tuple under the host's keyed hash.
    pub hash: u64,
    /// Both ports, ours in the high half.
    pub ports: u32,
}

impl Common {
    /// CLOSED, with nothing due.
    pub(super) fn new(identity: Identity, options: Arc<SocketOptions>) -> Self {
        Common {
            state: StateCell::new(),
            notices: Readiness::EMPTY,
            orphan: false,
            read_shut: false,
            blocked: Blocked::free(options.send_size, false),
            close_early: false,
            syn_due: false,
            answer_due: false,
            options,
            reset_due: None,
            trouble: None,
            identity,
            deadlines: Deadlines::default(),
        }
    }

    /// What [`Common::new`] makes, of what a connection that is gone has left: a block of so many
    /// bytes is not built elsewhere and moved. The boxes are empty already.
    pub(super) fn begin(&mut self, identity: Identity, options: &Arc<SocketOptions>) {
        self.identity = identity;
        // Counting the connections that share them takes as long as dozens of other instructions.
        if !Arc::ptr_eq(&self.options, options) {
            self.options = options.clone();
        }
        let Common {
            state,
            notices,
            orphan,
            read_shut,
            blocked,
            close_early,
            syn_due,
            answer_due,
            options: _,
            reset_due: _,
            trouble: _,
            identity: _,
            deadlines,
        } = self;
        *state = StateCell::new();
        *deadlines = Deadlines::NONE;
        *notices = Readiness::EMPTY;
        *blocked = Blocked::free(options.send_size, false);
        for flag in [orphan, read_shut, close_early, syn_due, answer_due] {
            *flag = false;
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// The calls that have become possible since the last call.
    pub(crate) fn take_notices(&mut self) -> Readiness {
        core::mem::take(&mut self.notices)
    }

    /// An RST is to be sent.
    pub(crate) fn owe_reset(&mut self, reset: Reset, cx: &mut Context) {
        self.reset_due = Some(Box::new(reset));
        cx.counters.resets_sent += 1;
    }

    /// Arms the keepalive timer if the user wants it.
    pub(crate) fn start_keepalive(&mut self, now: Instant) {
        match self.options.keepalive {
            Some(keepalive) => self.deadlines.set_after(Timer::KeepAlive, now, keepalive.idle),
            None => self.deadlines.cancel(Timer::KeepAlive),
        }
    }

    // ---- patience

    /// How long to wait for a peer that does not answer: the user's patience; for an orphan not
    /// more than the host's, so that no peer can keep it for ever.
    pub fn patience(&self, config: &TcpConfig) -> Duration {
        let user = self.options.user_timeout;
        if self.orphan { user.min(config.timeout.user) } else { user }
    }

    /// True, once, if it is an orphan and the host's patience with it has ended at `tick`; a linger
    /// is the user's, and ends it whatever moves.
    pub(crate) fn has_patience_ended(&mut self, tick: Instant) -> bool {
        let is_patience = self.orphan && self.options.linger.is_none();
        is_patience && self.deadlines.take_due(Timer::Lifetime, tick)
    }

    /// All that an orphan had to send is acknowledged: how long it may hold that is no matter.
    pub(crate) fn end_patience_of_orphan(&mut self) {
        if self.options.linger.is_none() {
            self.deadlines.cancel(Timer::Lifetime);
        }
    }

    // ---- trouble

    /// The error that keeps it from going on.
    pub(crate) fn soft_error(&self) -> Option<Error> {
        self.trouble.as_ref().and_then(|trouble| trouble.soft_error)
    }

    /// ICMP tells of trouble on the way.
    pub(crate) fn note_soft_error(&mut self, error: Error) {
        self.trouble.get_or_insert_default().soft_error = Some(error);
    }

    /// Notes that the peer is silent, unless ICMP has reported an error: that is the better reason.
    pub(crate) fn note_silence(&mut self) {
        self.trouble.get_or_insert_default().soft_error.get_or_insert(Error::TimedOut);
    }

    /// The peer has been heard: what kept the connection from going on is over.
    pub fn go_on(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.soft_error = None;
        }
    }

    /// There is a route to the peer.
    pub(crate) fn note_route(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.unreachable_since = None;
        }
    }

    /// True if there was no route to the peer when it was last looked for.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.unreachable_since.is_some())
    }

    /// There is no route to the peer now. True once that has lasted for the user timeout.
    pub(crate) fn is_given_up_unreachable(&mut self, now: Instant, config: &TcpConfig) -> bool {
        let trouble = self.trouble.get_or_insert_default();
        let since = *trouble.unreachable_since.get_or_insert(now);
        now.since(since) >= self.patience(config)
    }
}
