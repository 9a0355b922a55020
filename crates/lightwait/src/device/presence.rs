//! Whether a device's interface is still there, and up. The kernel says little about either: a
//! packet socket tells once that its interface went down, which deleting it does first; a TAP that
//! is down refuses frames. So when frames do not pass the kernel is asked, and while the interface
//! is down, once a second.

use std::fmt;
use std::io;
use std::time::Duration;

use lightwait_core::Instant;

use super::netlink::Netlink;

/// Between two looks at an interface that is down.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An interface was brought down, or up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames neither come nor go.
    Down,
    /// They do again.
    Up,
}

/// Who hears of [`LinkState`]s.
type Listener = Box<dyn FnMut(LinkState) + Send>;

/// Looks after one interface.
pub(super) struct Presence {
    netlink: Netlink,
    index: u32,
    /// What it is, for people: ``the TAP `lw0` ``.
    name: String,
    /// While it is down: when to look next.
    look_at: Option<Instant>,
    /// It has come up again.
    came_up: bool,
    listener: Option<Listener>,
}

impl Presence {
    /// Of the interface of that number, which is there and up; `name` is for people.
    pub(super) fn new(netlink: Netlink, index: u32, name: String) -> Presence {
        Presence { netlink, index, name, look_at: None, came_up: false, listener: None }
    }

    /// Tells `listener` from now on.
    pub(super) fn tell(&mut self, listener: impl FnMut(LinkState) + Send + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// Looks, if frames did not pass (`trouble`) or it is time to. Fails if the interface is gone.
    pub(super) fn look(&mut self, now: Instant, trouble: bool) -> io::Result<()> {
        let due = self.look_at.map_or(trouble, |at| at <= now);
        if !due {
            return Ok(());
        }
        let was_up = self.look_at.is_none();
        let is_up = self.netlink.is_up(self.index)?.ok_or_else(|| self.gone())?;
        self.look_at = (!is_up).then_some(now + LOOK_AGAIN);
        self.came_up |= is_up && !was_up;
        if is_up != was_up
            && let Some(listener) = &mut self.listener
        {
            listener(if is_up { LinkState::Up } else { LinkState::Down });
        }
        Ok(())
    }

    /// Frames for the interface that the kernel has dropped before they were sent.
    pub(super) fn dropped(&self) -> io::Result<u64> {
        self.netlink.dropped(self.index)
    }

    /// True if, since the last time, it has come up again.
    pub(super) fn take_up(&mut self) -> bool {
        std::mem::take(&mut self.came_up)
    }

    /// When to look next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// The error instead of one that says the interface is gone, a number of `codes`.
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
            .field("look_at", &self.look_at)
            .finish_non_exhaustive()
    }
}
