//! Watches whether a device's interface is still there, and up. The kernel reports little about
//! either: a packet socket reports once that its interface went down, also when it is deleted; a
//! TAP that is down refuses frames. This module therefore asks the kernel when frames do not pass,
//! and once a second while the interface is down. A socket of AF_XDP hears nothing of an interface
//! whose driver knows no XDP: there it asks once a second in any case.

use std::fmt;
use std::io;
use std::time::Duration;

use lightwait_core::Instant;

use super::netlink::{Interface, Netlink, Way};

/// Time between two checks of an interface that is down, or of which the kernel reports nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An interface was brought down, or up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames neither come nor go.
    Down,
    /// Frames come and go again.
    Up,
}

/// Receives [`LinkState`]s.
type Listener = Box<dyn FnMut(LinkState) + Send>;

/// Watches one interface.
pub(super) struct Presence {
    netlink: Netlink,
    index: u32,
    /// The interface's description for users: ``the TAP `lw0` ``.
    name: String,
    is_up: bool,
    /// It is checked while it is up as well.
    is_watched: bool,
    /// The time of the next check, if frames pass until then.
    look_at: Option<Instant>,
    /// The interface has come up again.
    came_up: bool,
    listener: Option<Listener>,
}

impl Presence {
    /// Watches the interface of that number, which is there and up. `name` is its description for
    /// users.
    pub(super) fn new(netlink: Netlink, index: u32, name: String) -> Presence {
        let (look_at, listener) = (None, None);
        let (is_up, is_watched, came_up) = (true, false, false);
        Presence { netlink, index, name, is_up, is_watched, look_at, came_up, listener }
    }

    /// The same, of an interface about which the kernel reports nothing.
    pub(super) fn watched(self) -> Presence {
        Presence { is_watched: true, look_at: Some(Instant::ZERO), ..self }
    }

    /// Watches the same interface for another handle, without a listener.
    pub(super) fn try_clone(&self) -> io::Result<Presence> {
        Ok(Presence::new(Netlink::open()?, self.index, self.name.clone()))
    }

    /// Calls `listener` at each change from now on.
    pub(super) fn tell(&mut self, listener: impl FnMut(LinkState) + Send + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// Checks the interface, if frames did not pass (`trouble`) or a check is due. Fails if the
    /// interface is gone.
    pub(super) fn look(&mut self, now: Instant, trouble: bool) -> io::Result<()> {
        let is_due = self.look_at.is_some_and(|at| at <= now) || trouble && self.is_up;
        if !is_due {
            return Ok(());
        }
        let (was_up, is_up) = (self.is_up, self.interface()?.up);
        self.is_up = is_up;
        self.look_at = (!is_up || self.is_watched).then_some(now + LOOK_AGAIN);
        self.came_up |= is_up && !was_up;
        if is_up != was_up
            && let Some(listener) = &mut self.listener
        {
            listener(if is_up { LinkState::Up } else { LinkState::Down });
        }
        Ok(())
    }

    /// True if the interface's cable leads to an end that is up. Fails if the interface is gone.
    pub(super) fn has_carrier(&self) -> io::Result<bool> {
        Ok(self.interface()?.carrier)
    }

    fn interface(&self) -> io::Result<Interface> {
        self.netlink.interface_at(self.index)?.ok_or_else(|| self.gone())
    }

    /// Frames that the interface dropped, going that way.
    pub(super) fn dropped(&self, way: Way) -> io::Result<u64> {
        self.netlink.dropped(self.index, way)
    }

    /// True if the interface has come up again since the last call.
    pub(super) fn take_up(&mut self) -> bool {
        std::mem::take(&mut self.came_up)
    }

    /// The time of the next check.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Replaces an error whose number is among `codes`: these say that the interface is gone.
    pub(super) fn explain(&self, error: io::Error, codes: &[i32]) -> io::Error {
        let is_gone = error.raw_os_error().is_some_and(|code| codes.contains(&code));
        if is_gone { self.gone() } else { error }
    }

    fn gone(&self) -> io::Error {
        let text =
            format!("{} is gone: it was deleted, or moved to another network namespace", self.name);
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence")
            .field("name", &self.name)
            .field("is_up", &self.is_up)
            .field("look_at", &self.look_at)
            .finish_non_exhaustive()
    }
}
