//! A shard is one whole core of the stack: a device, a host, sockets and tasks, without a thread.
//!
//! ```text
//!              ┌───────────────────── Shard::turn(now) ─────────────────────┐
//!   device ──▶ receive ──▶ Host::on_frames ┐
//!                          Host::on_time ──┼─▶ wake sockets' waiters, sleepers
//!                                          │        │
//!                                          │   poll ready tasks (they read, write, …)
//!                                          │        │
//!   device ◀── transmit ◀── Host::emit ◀───┴────────┘
//! ```
//!
//! A driver ([`driver`](crate::driver)) or a simulator calls [`Shard::turn`], and calls it again at
//! the time that it returned.

mod memory;
mod observed;
mod peers;
pub(crate) mod state;
pub(crate) mod timers;
pub(crate) mod waiters;

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant as StdInstant;
use std::{fmt, io};

use lightwait_core::host::Remains;
use lightwait_core::ip::conflict::{Claimed, Conflict};
use lightwait_core::time::Resolutions;
use lightwait_core::{Config, Host, Instant, Outbox};
use state::Local;

pub use memory::{Memory, Room};
pub use peers::{Peers, Seat, Watch};

use crate::clock::Clock;
use crate::device::Device;
use crate::driver::{Descriptor, Driven, WAKES_HZ};
use crate::executor::{JoinHandle, spawn_on};
use crate::observe::{Log, Observer, Watching};

/// Limits of the work of a shard's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Frames received before tasks and transmission get their turn.
    pub receive_frames: usize,
    /// Frames in the transmit batch, at most.
    pub transmit_frames: usize,
    /// Tasks polled before transmission gets its turn.
    pub tasks: usize,
    /// Repetitions of all this in one turn while there is work.
    pub rounds: usize,
}

impl Default for Budgets {
    /// Twice as many frames in as out: a peer answers a large segment with an ACK or two, and a
    /// frame is lost if the device cannot hold it until it is read.
    fn default() -> Self {
        Budgets { receive_frames: 256, transmit_frames: 128, tasks: 256, rounds: 4 }
    }
}

/// One whole core of the stack.
pub struct Shard {
    local: Rc<Local>,
    device: Box<dyn Device>,
    outbox: Outbox,
    budgets: Budgets,
    /// The place among the shards of the host, where there are several.
    seat: Option<Seat>,
    /// The last round ended with work left that needs no time to pass.
    is_busy: bool,
    failure: Option<io::Error>,
    #[cfg(feature = "tracing")]
    limits: crate::edges::Limits,
}

impl Shard {
    /// A shard on `device`. The device's capabilities replace those in `config`. Fails if the
    /// configuration is invalid.
    ///
    /// The resolution of the clock and the rate of the driver's wakes become TCP's, unless `config`
    /// asks for coarser ones. Calibrating the clock takes a millisecond.
    pub fn new(config: Config, device: Box<dyn Device>) -> io::Result<Shard> {
        Shard::with_budgets(config, device, Budgets::default())
    }

    /// A shard with given budgets; each counts as at least one.
    pub fn with_budgets(
        config: Config,
        device: Box<dyn Device>,
        budgets: Budgets,
    ) -> io::Result<Shard> {
        let clock = Clock::new();
        let resolutions =
            Resolutions { measure_hz: clock.measure_resolution(), schedule_hz: WAKES_HZ };
        Shard::on_clock(config, device, budgets, clock, resolutions)
    }

    /// A shard whose time began at `origin`: that of another shard of the same host, before this
    /// one ([`Handle::origin`]). Its timestamps and initial sequence numbers go on.
    pub fn since(config: Config, device: Box<dyn Device>, origin: StdInstant) -> io::Result<Shard> {
        let clock = Clock::with_origin(origin);
        let resolutions =
            Resolutions { measure_hz: clock.measure_resolution(), schedule_hz: WAKES_HZ };
        Shard::on_clock(config, device, Budgets::default(), clock, resolutions)
    }

    /// A shard in virtual time, which the caller of [`Shard::turn`] makes. Time is exact to the
    /// nanosecond on every machine, so that the same turns do the same everywhere.
    pub fn in_made_time(config: Config, device: Box<dyn Device>) -> io::Result<Shard> {
        // The system's clock only converts instants of the standard library.
        let clock = Clock::of_system();
        let shard = Shard::on_clock(config, device, Budgets::default(), clock, Resolutions::EXACT)?;
        shard.local.set_in_made_time();
        Ok(shard)
    }

    fn on_clock(
        config: Config,
        device: Box<dyn Device>,
        budgets: Budgets,
        clock: Clock,
        resolutions: Resolutions,
    ) -> io::Result<Shard> {
        let mut config = Config { device: device.capabilities(), ..config };
        config.tcp.coarsen(resolutions);
        let host = Host::new(config).map_err(crate::local::io_error)?;
        let budgets = Budgets {
            receive_frames: budgets.receive_frames.max(1),
            transmit_frames: budgets.transmit_frames.max(1),
            tasks: budgets.tasks.max(1),
            rounds: budgets.rounds.max(1),
        };
        Ok(Shard {
            local: Local::new(host, clock),
            device,
            outbox: Outbox::new(budgets.transmit_frames),
            budgets,
            seat: None,
            is_busy: true,
            failure: None,
            #[cfg(feature = "tracing")]
            limits: crate::edges::Limits::default(),
        })
    }

    /// Seats the shard among those of its host, which exchange messages from then on. The place is
    /// the one that its configuration has from [`Config::member`].
    ///
    /// # Panics
    /// If its configuration has another.
    #[must_use]
    pub fn seated(mut self, seat: Seat) -> Shard {
        assert_eq!(self.local.host().config().member, seat.member(), "another shard's seat");
        self.seat = Some(seat);
        self
    }

    /// A handle for applications outside the shard's tasks, on the same thread.
    pub fn handle(&self) -> Handle {
        Handle { local: self.local.clone() }
    }

    /// Runs the whole core once, as if it took no time: receives frames, lets time pass, runs tasks
    /// and transmits. It repeats this while there is work, within its budgets. Returns the time of
    /// the next turn: `now` (or earlier) means at once, `None` means that only a frame, a call or a
    /// wake can bring work.
    pub fn turn(&mut self, now: Instant) -> Option<Instant> {
        let local = self.local.clone();
        let _entered = local.enter();
        local.begin_turn(now);
        self.note_turn();
        for _ in 0..self.budgets.rounds {
            self.is_busy = self.round(now);
            if !self.is_busy {
                break;
            }
        }
        self.note_turn();
        #[cfg(feature = "tracing")]
        self.limits.look(&local.host(), now);
        local.end_turn();
        self.deadline(now)
    }

    /// The time of the next turn. It differs from the result of [`Shard::turn`] if work has come
    /// since: another shard on the same wire may have run.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let blocked = !self.outbox.is_empty();
        let has_tasks = self.local.executor().has_ready() || self.local.owes_memory();
        let host = self.local.host();
        let can_emit = host.wants_emit() && !blocked;
        let has_mail = self.seat.as_ref().is_some_and(Seat::has_mail);
        if self.is_busy || can_emit || has_tasks || has_mail {
            return Some(now);
        }
        // A device without a descriptor takes more frames once its other end has run.
        if blocked && !self.device.wants_writable() {
            return Some(now);
        }
        let timers = self.local.timers().next();
        earlier(earlier(host.deadline(), timers), self.device.deadline())
    }

    /// Runs one pass through everything. Returns true if there is more to do at once.
    fn round(&mut self, now: Instant) -> bool {
        if self.local.is_observed() {
            return self.observed_round(now);
        }
        let received = self.receive(now);
        self.receive_mail(now);
        self.local.host_mut().on_time(now);
        self.local.wake_waiters();
        self.local.wake_sleepers(now);
        self.local.executor().run(self.budgets.tasks);
        let sent_all = self.transmit(now);
        self.send_mail();
        self.local.wake_waiters();
        received >= self.budgets.receive_frames
            || self.local.executor().has_ready()
            || (sent_all && self.local.host().wants_emit())
    }

    /// Takes what other shards of the host, and other threads, have sent.
    fn receive_mail(&mut self, now: Instant) {
        let Some(seat) = &mut self.seat else { return };
        let errands = seat.receive(now, &mut self.local.host_mut());
        // With nothing borrowed: they may call anything.
        for errand in errands {
            errand(&Handle { local: self.local.clone() });
        }
    }

    fn send_mail(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.send(&mut self.local.host_mut());
        }
    }

    fn note_turn(&self) {
        if let Some(seat) = &self.seat {
            seat.note_turn();
        }
    }

    fn receive(&mut self, now: Instant) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        let mut host = self.local.host_mut();
        let budget = self.budgets.receive_frames;
        let result = self.device.receive(now, budget, &mut |frames| host.on_frames(now, frames));
        if self.device.take_link_up() {
            host.on_link_up(now);
        }
        result.unwrap_or_else(|error| {
            self.failure = Some(error);
            0
        })
    }

    /// Fills the outbox and empties it into the device. Returns false if frames stay.
    fn transmit(&mut self, now: Instant) -> bool {
        self.local.host_mut().emit(now, &mut self.outbox);
        self.empty_outbox(now)
    }

    fn empty_outbox(&mut self, now: Instant) -> bool {
        if self.failure.is_some() {
            self.outbox.clear();
        } else if let Err(error) = self.device.transmit(now, &mut self.outbox) {
            self.failure = Some(error);
        }
        self.outbox.is_empty()
    }

    /// Takes the failure that keeps the device from moving frames: only a new shard recovers from
    /// it. Tasks go on; their connections time out.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// The descriptor that becomes readable when frames arrive, if the device has one.
    pub fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        self.device.wait_on()
    }

    /// True if the driver should wait until [`Shard::wait_on`] is writable, too.
    pub fn wants_writable(&self) -> bool {
        !self.outbox.is_empty() && self.device.wants_writable()
    }
}

impl Driven for Shard {
    fn now(&self) -> Instant {
        self.local.start_clock().now()
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        Shard::turn(self, now);
        self.take_failure().map_or(Ok(()), Err)
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        Shard::deadline(self, now)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        if let Some(fd) = self.wait_on() {
            visit(Descriptor { fd, wants_writable: self.wants_writable() });
        }
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.local.set_driver(waker);
        if let Some(seat) = &self.seat {
            seat.set_driver(waker);
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // Tasks own sockets, and sockets own the shard's state: without this nothing would be
        // freed.
        let _entered = self.local.enter();
        self.local.executor().clear();
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("tasks", &self.local.executor())
            .field("outbox", &self.outbox.len())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// The earlier of two instants; a missing one does not count.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// An application's handle on a shard, on the shard's thread. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) local: Rc<Local>,
}

impl Handle {
    /// The shard whose task is running.
    ///
    /// # Panics
    ///
    /// If no shard is current: the caller is in no task of a shard.
    pub fn current() -> Handle {
        Handle { local: state::current() }
    }

    /// The shard whose task is running, if one is.
    pub fn try_current() -> Option<Handle> {
        state::try_current().map(|local| Handle { local })
    }

    /// Runs a future as a task of this shard. It need not be `Send`. Its first poll is in the next
    /// turn.
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        spawn_on(&self.local, future)
    }

    /// Sets whether a panic in a task ends that task alone, and its [`JoinHandle`] returns it. If
    /// no task waits for that, only the panic hook reports it. A panic of the engine, in a call of
    /// the task, is contained as well, and one while its future is dropped ([`JoinHandle::abort`],
    /// the shard's end) or an output that nobody took. A new shard contains none: a panic unwinds
    /// the turn, and ends what drives the shard. A [`Stack`](crate::Stack) contains them.
    pub fn contain_panics(&self, contains: bool) {
        self.local.executor().contain_panics(contains);
    }

    /// Looks up the names of hosts by `resolve`, for the sockets of this shard, instead of asking
    /// the system. A name that it does not know is `NotFound`.
    pub fn set_resolver(&self, resolve: impl Fn(&str) -> Option<IpAddr> + 'static) {
        self.local.set_resolver(Rc::new(resolve));
    }

    /// The shard's time.
    pub fn now(&self) -> Instant {
        self.local.now()
    }

    /// The moment at which the shard's time began.
    pub fn origin(&self) -> StdInstant {
        self.local.origin()
    }

    /// Another process takes over: the host begins no connection any more, and answers nothing but
    /// what belongs to one of its own ([`Host::step_down`]).
    pub fn step_down(&self) {
        self.local.host_mut().step_down();
    }

    /// Forgets what is left of closed connections, and returns it for the host of the process that
    /// has taken over ([`Host::take_remains`]).
    pub fn take_remains(&self) -> Vec<Remains> {
        self.local.host_mut().take_remains(self.local.now())
    }

    /// Keeps what is left of connections of the process before this one ([`Host::inherit`]); how
    /// many it keeps. `cookies`: that one has sent SYN cookies lately.
    pub fn inherit(&self, remains: &[Remains], cookies: bool) -> usize {
        let now = self.local.now();
        let mut host = self.local.host_mut();
        if cookies {
            host.expect_cookies(now);
        }
        let kept = remains.iter().filter(|remains| host.inherit(now, remains)).count();
        drop(host);
        self.local.touch();
        kept
    }

    /// Gives `look` the host: its counters, addresses and tables.
    pub fn with_host<R>(&self, look: impl FnOnce(&Host) -> R) -> R {
        look(&self.local.host())
    }

    /// Observes connections from the next pass on, in place of what was observed before.
    pub fn observe(&self, watching: Watching) {
        self.local.set_observer(Some(Observer::new(watching)));
    }

    /// Ends that. Returns what was seen; `None` if nothing is observed, or it has taken too long.
    pub fn observed(&self) -> Option<Log> {
        let now = self.now();
        self.local.set_observer(None).map(|it| it.log(now))
    }

    /// Waits until all configured addresses are ours: at once, unless they are to be probed
    /// ([`Config::address_probe`]). Fails if another station has one of them.
    pub async fn claimed(&self) -> Result<(), Conflict> {
        poll_fn(|context| match self.local.host().claimed() {
            Claimed::All => Poll::Ready(Ok(())),
            Claimed::Refused(conflict) => Poll::Ready(Err(conflict)),
            Claimed::Pending => {
                self.local.wait_addresses(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Waits for the next conflict over an address of ours: a lost or a defended address.
    pub async fn conflict(&self) -> Conflict {
        poll_fn(|context| match self.local.host_mut().conflict() {
            Some(conflict) => Poll::Ready(conflict),
            None => {
                self.local.wait_addresses(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.local.executor().len()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("shard", &self.local.shard()).finish()
    }
}

#[cfg(test)]
mod tests {
    use lightwait_core::time::Duration;
    use lightwait_core::{Capabilities, Medium};

    use super::*;
    use crate::device::MemoryDevice;

    const MS: Duration = Duration::from_millis(1);

    /// The resolution of the measurement clock in Hz and the tick of the scheduling clock that TCP
    /// uses on a shard that `make` makes, if these are configured.
    fn clocks_of_tcp(
        make: impl Fn(Config, Box<dyn Device>) -> io::Result<Shard>,
        measure_hz: u64,
        tick: Duration,
    ) -> (u64, Duration) {
        let (device, _) = MemoryDevice::pair(Capabilities::plain(Medium::Ip, 1500), 1);
        let mut config =
            Config::new(device.capabilities(), "10.0.0.1/24".parse().unwrap(), [7; 32]);
        (config.tcp.clock.measure_hz, config.tcp.clock.tick) = (measure_hz, tick);
        let shard = make(config, Box::new(device)).unwrap();
        shard.handle().with_host(|host| {
            let tcp = &host.config().tcp;
            (tcp.clock.measure_hz, tcp.clock.tick)
        })
    }

    fn on(
        measure_hz: u64,
        schedule_hz: u64,
    ) -> impl Fn(Config, Box<dyn Device>) -> io::Result<Shard> {
        let resolutions = Resolutions { measure_hz, schedule_hz };
        move |config, device| {
            let clock = Clock::of_system();
            Shard::on_clock(config, device, Budgets::default(), clock, resolutions)
        }
    }

    #[test]
    fn tcp_is_told_the_resolutions_of_its_platform() {
        let finest = |make| clocks_of_tcp(make, u64::MAX, Duration::ZERO);
        assert_eq!(finest(on(25_000_000, 1000)), (25_000_000, MS));
        assert_eq!(finest(on(100, 250)), (100, MS * 4));
        assert_eq!(finest(on(1000, 3)), (1000, Duration::from_nanos(333_333_334)));
    }

    #[test]
    fn a_coarser_resolution_may_be_asked_for_and_a_finer_one_not() {
        let clocks = |measure_hz, tick| clocks_of_tcp(on(1000, 500), measure_hz, tick);
        assert_eq!(clocks(999, MS * 3), (999, MS * 3));
        assert_eq!(clocks(1001, MS), (1000, MS * 2));
    }

    #[test]
    fn a_shard_reports_its_clocks_and_drivers_abilities() {
        let real = clocks_of_tcp(Shard::new, u64::MAX, Duration::from_nanos(1));
        assert_eq!(real.1, MS);
        // The clock is calibrated twice.
        let clock_hz = Clock::new().measure_resolution();
        assert!(real.0.abs_diff(clock_hz) <= clock_hz / 100, "{} Hz, {clock_hz} Hz", real.0);
        let made = clocks_of_tcp(Shard::in_made_time, u64::MAX, Duration::from_nanos(1));
        assert_eq!(made, (1_000_000_000, Duration::from_nanos(1)));
    }
}
