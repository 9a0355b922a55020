//! A TUN: an interface of the Linux kernel that carries IP packets and ends in this process
//! (tun(4)). It has no Ethernet, and so no neighbours and no ARP: the kernel routes packets to it.
//!
//! Queues, offloads, steering and privileges are those of a [`Tap`].

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Instant, Outbox};

use super::kind::Kind;
use super::{Counters, Device, LinkState, Losses, Sink, Tap, TapConfig};

/// A TUN, open, or one queue of it.
#[derive(Debug)]
pub struct Tun(Tap);

impl Tun {
    /// Opens the interface, makes it if there is none, brings it up and gives the kernel's end its
    /// addresses, as [`Tap::open`] does.
    pub fn open(config: &TapConfig) -> io::Result<Tun> {
        Tap::open_one(Kind::Tun, config).map(Tun)
    }

    /// Opens so many queues of the interface, as [`Tap::open_queues`] does.
    pub fn open_queues(config: &TapConfig, queues: usize) -> io::Result<Vec<Tun>> {
        let opened = Tap::open_several(Kind::Tun, config, queues)?;
        Ok(opened.into_iter().map(Tun).collect())
    }

    /// A TUN whose descriptor another process opened and attached, and whose interface it set up: a
    /// helper with privileges, or the VPN service of Android. That process decided whether packets
    /// carry a virtio header. Packets must come without the flags and protocol that tun(4) puts
    /// before them otherwise (IFF_NO_PI).
    pub fn from_fd(fd: OwnedFd) -> io::Result<Tun> {
        Tap::from_fd_of(Kind::Tun, fd).map(Tun)
    }

    /// Has the kernel send each packet to the queue of the shard that owns its connection, as
    /// [`Tap::steer`] does.
    pub fn steer(&self, steering: &Steering) -> io::Result<()> {
        self.0.steer(steering)
    }

    /// Calls `listener` as [`Tap::on_link`] does.
    #[must_use]
    pub fn on_link(self, listener: impl FnMut(LinkState) + Send + 'static) -> Tun {
        Tun(self.0.on_link(listener))
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Packets moved and dropped.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }
}

impl Device for Tun {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        self.0.receive(now, budget, sink)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.0.transmit(now, outbox)
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn take_link_up(&mut self) -> bool {
        self.0.take_link_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.0.losses()
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_on()
    }

    fn wants_writable(&self) -> bool {
        self.0.wants_writable()
    }
}
