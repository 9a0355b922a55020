//! The world behind the door: a host, its virtual time, the packets that have left, and the open
//! files.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use lightwait_core::address::Cidr;
use lightwait_core::frame::RxFrame;
use lightwait_core::wire::ip;
use lightwait_core::{Event, Host, Instant, Outbox, Readiness};

use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::profile::Profile;
use crate::segments::packets;
use crate::socket::{Socket, Source};

/// Frames in one go of `emit`.
const OUTBOX_FRAMES: usize = 1024;

/// Packets that wait for the caller at most; beyond it they are lost, as on any full link.
const DEPARTURES_MAX: usize = 1 << 16;

/// Passes over the host at one instant; more is an endless loop.
const PASSES_AT_ONCE: usize = 100_000;

/// A packet on its way out, and when it left.
type Departure = (Vec<u8>, Instant);

/// The file of a descriptor.
#[derive(Debug)]
pub enum File {
    /// A socket.
    Socket(Box<Socket>),
    /// An epoll instance.
    Epoll(Epoll),
}

/// The whole stack, and all files that its caller has opened.
#[derive(Debug)]
pub struct World {
    /// The engine.
    pub host: Host,
    /// The behaviour of the door itself.
    pub profile: Profile,
    now: Instant,
    outbox: Outbox,
    departures: VecDeque<Departure>,
    files: BTreeMap<RawFd, File>,
    /// The host's events on sockets since the last look, for edge-triggered waits.
    notices: Vec<(Source, Readiness)>,
    /// Our addresses are known: configured, or learnt from the caller.
    addresses_known: bool,
}

impl World {
    /// A world that has just begun.
    ///
    /// # Errors
    /// If the profile makes no valid host.
    pub fn new(profile: Profile) -> Result<World, lightwait_core::Error> {
        let host = Host::new(profile.config.clone())?;
        Ok(World {
            host,
            now: Instant::from_millis(1_000_000),
            outbox: Outbox::new(OUTBOX_FRAMES),
            departures: VecDeque::new(),
            files: BTreeMap::new(),
            notices: Vec::new(),
            addresses_known: profile.has_local,
            profile,
        })
    }

    // ---- time and packets

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When the host has work to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.host.deadline()
    }

    /// Moves the time to `now`. True if that has changed anything.
    pub fn pass_to(&mut self, now: Instant) -> bool {
        self.now = now;
        self.host.on_time(now);
        self.pump()
    }

    /// A packet arrives.
    pub fn on_packet(&mut self, packet: &[u8]) {
        if let Ok(parsed) = ip::Packet::parse(packet) {
            self.learn_address(parsed.destination, false);
        }
        self.host.on_frame(self.now, RxFrame::plain(packet));
        self.host.on_time(self.now);
    }

    /// Lets the host emit until it has no more to send. True if it sent a packet or reported an
    /// event.
    pub fn pump(&mut self) -> bool {
        let mut has_changed = false;
        for _ in 0..PASSES_AT_ONCE {
            has_changed |= self.take_events();
            self.look_at_sockets();
            if !self.host.wants_emit() {
                break;
            }
            self.host.emit(self.now, &mut self.outbox);
            while let Some(frame) = self.outbox.take() {
                if self.departures.len() < DEPARTURES_MAX {
                    let now = self.now;
                    self.departures.extend(packets(&frame).into_iter().map(|packet| (packet, now)));
                }
                self.outbox.recycle(frame);
            }
            has_changed = true;
        }
        has_changed
    }

    fn look_at_sockets(&mut self) {
        for file in self.files.values_mut() {
            if let File::Socket(socket) = file {
                socket.look(&mut self.host, self.now);
            }
        }
    }

    fn take_events(&mut self) -> bool {
        let before = self.notices.len();
        while let Some(event) = self.host.event() {
            self.notices.push(match event {
                Event::Acceptable(id) => (Source::Listener(id), Readiness::READABLE),
                Event::Ready(id, readiness) => (Source::Connection(id), readiness),
                Event::Udp(id, readiness) => (Source::Datagrams(id), readiness),
                Event::Flow | Event::Addresses => continue,
            });
        }
        let has_news = self.notices.len() > before;
        self.pass_on_notices();
        has_news
    }

    /// The oldest packet that has left.
    pub fn take_departure(&mut self) -> Option<(Vec<u8>, Instant)> {
        self.departures.pop_front()
    }

    // ---- addresses

    /// The caller says that `address` is ours. `firmly`: it binds to the address; else the claim
    /// counts only while no address of ours is known.
    pub fn learn_address(&mut self, address: IpAddr, firmly: bool) {
        let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        let is_usable = !address.is_unspecified() && !address.is_multicast() && !is_broadcast;
        if !is_usable || (self.addresses_known && !firmly) {
            return;
        }
        let full = if address.is_ipv4() { 32 } else { 128 };
        if let Some(cidr) = Cidr::new(address, full) {
            self.host.add_address(cidr);
            self.addresses_known = true;
        }
    }

    // ---- files

    /// `fd` now names `file`; the caller has closed its previous file behind our back.
    pub fn add_file(&mut self, fd: RawFd, file: File) {
        if let Some(stale) = self.files.insert(fd, file) {
            self.end_file(stale);
        }
    }

    /// True if `fd` is one of ours.
    pub fn has_file(&self, fd: RawFd) -> bool {
        self.files.contains_key(&fd)
    }

    /// The file descriptors that are ours.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.files.keys().copied()
    }

    /// The socket behind `fd`.
    ///
    /// # Errors
    /// `EBADF` if there is nothing, `ENOTSOCK` if it is something else.
    pub fn socket(&self, fd: RawFd) -> Result<&Socket, Errno> {
        match self.files.get(&fd) {
            Some(File::Socket(socket)) => Ok(socket),
            Some(File::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// The socket behind `fd`, mutable, and the host.
    ///
    /// # Errors
    /// `EBADF` if there is nothing, `ENOTSOCK` if it is something else.
    pub fn socket_and_host(&mut self, fd: RawFd) -> Result<(&mut Socket, &mut Host), Errno> {
        match self.files.get_mut(&fd) {
            Some(File::Socket(socket)) => Ok((socket, &mut self.host)),
            Some(File::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = (RawFd, &Socket)> {
        self.files.iter().filter_map(|(fd, file)| match file {
            File::Socket(socket) => Some((*fd, &**socket)),
            File::Epoll(_) => None,
        })
    }

    /// The epoll instance behind `fd`.
    ///
    /// # Errors
    /// `EBADF` if there is nothing, `EINVAL` if it is something else.
    pub fn epoll(&mut self, fd: RawFd) -> Result<&mut Epoll, Errno> {
        match self.files.get_mut(&fd) {
            Some(File::Epoll(epoll)) => Ok(epoll),
            Some(File::Socket(_)) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }

    /// Every epoll instance, and the rest of the world that may be read meanwhile.
    pub fn epolls(&mut self) -> impl Iterator<Item = &mut Epoll> {
        self.files.values_mut().filter_map(|file| match file {
            File::Epoll(epoll) => Some(epoll),
            File::Socket(_) => None,
        })
    }

    /// Removes the file behind `fd`.
    ///
    /// # Errors
    /// `EBADF` if there is nothing.
    pub fn remove_file(&mut self, fd: RawFd) -> Result<(), Errno> {
        let file = self.files.remove(&fd).ok_or(Errno::EBADF)?;
        for epoll in self.epolls() {
            epoll.forget(fd);
        }
        self.end_file(file);
        Ok(())
    }

    fn end_file(&mut self, file: File) {
        if let File::Socket(socket) = file {
            socket.end(&mut self.host, self.now);
        }
    }

    /// Tells the epoll instances which of their sockets have news.
    fn pass_on_notices(&mut self) {
        let notices = std::mem::take(&mut self.notices);
        for (source, readiness) in notices {
            let fd = self.sockets().find(|(_, socket)| socket.is(source)).map(|(fd, _)| fd);
            if let Some(fd) = fd {
                self.epolls().for_each(|epoll| epoll.on_notice(fd, readiness));
            }
        }
    }
}
