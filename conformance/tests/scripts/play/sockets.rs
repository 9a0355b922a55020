//! The script's descriptors: the live descriptor of each, and for a socket both numberings, the
//! script's and the live one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::Player;
use crate::packet::{Segment, Tuple};

/// How far a socket has come, as the script sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// After `socket`.
    New,
    Listening,
    /// A connection to a listener after its first packet.
    PacketReceived,
    SynAckSent,
    SynAckAcked,
    /// After `connect`.
    Connecting,
    SynSent,
    SynAcked,
}

/// One world's view of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) local_isn: u32,
    pub(crate) remote: SocketAddr,
    pub(crate) remote_isn: u32,
}

impl Ends {
    fn new() -> Self {
        let nowhere = SocketAddr::new(IpAddr::from([0; 4]), 0);
        Self { local: nowhere, local_isn: 0, remote: nowhere, remote_isn: 0 }
    }

    pub(crate) fn outbound(&self) -> Tuple {
        Tuple { source: self.local, destination: self.remote }
    }

    pub(crate) fn inbound(&self) -> Tuple {
        Tuple { source: self.remote, destination: self.local }
    }
}

/// A socket of the script, or a connection that no call has returned yet.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) phase: Phase,
    pub(crate) protocol: i32,
    pub(crate) script: Ends,
    pub(crate) live: Ends,
    /// Script's timestamps that were sent, to live ones.
    pub(crate) stamps: HashMap<u32, u32>,
    /// The first pair of them.
    pub(crate) first_stamp: Option<(u32, u32)>,
    /// IPv6 flow labels: the script's and the live one.
    pub(crate) flow_label: Option<(u32, u32)>,
    pub(crate) last_outbound: Option<Segment>,
    pub(crate) last_injected: Option<Segment>,
}

impl Socket {
    pub(crate) fn new(phase: Phase, protocol: i32) -> Self {
        Self {
            phase,
            protocol,
            script: Ends::new(),
            live: Ends::new(),
            stamps: HashMap::new(),
            first_stamp: None,
            flow_label: None,
            last_outbound: None,
            last_injected: None,
        }
    }

    /// The offset from a script's sequence number of the other end to the live one. Those of SYNs
    /// are absolute, others count from the SYN's.
    pub(crate) fn remote_offset(&self, is_syn: bool) -> u32 {
        if is_syn { 0 } else { self.live.remote_isn }
    }

    /// The offset from a script's sequence number of the stack to the live one.
    pub(crate) fn local_offset(&self, is_syn: bool) -> u32 {
        let shift = if is_syn { self.script.local_isn } else { 0 };
        self.live.local_isn.wrapping_sub(shift)
    }
}

/// A descriptor of the script.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    /// -1: not given out yet.
    pub(crate) script_fd: i32,
    pub(crate) live_fd: i32,
    pub(crate) is_closed: bool,
    pub(crate) socket: Option<Socket>,
}

/// All descriptors, oldest first, and the socket to which packets belong.
#[derive(Default)]
pub(crate) struct Descriptors {
    all: Vec<Descriptor>,
    under_test: Option<usize>,
}

impl Descriptors {
    /// # Errors
    ///
    /// When either number is in use.
    pub(crate) fn add(
        &mut self,
        script_fd: i32,
        live_fd: i32,
        socket: Option<Socket>,
    ) -> Result<(), String> {
        if self.find(script_fd).is_some() {
            return Err(format!("duplicate fd {script_fd} in script"));
        }
        if self.all.iter().any(|other| !other.is_closed && other.live_fd == live_fd) {
            return Err(format!("duplicate live fd {live_fd}"));
        }
        self.all.push(Descriptor { script_fd, live_fd, is_closed: false, socket });
        Ok(())
    }

    /// From now on packets belong to the newest.
    pub(crate) fn test_newest(&mut self) {
        self.under_test = self.all.len().checked_sub(1);
    }

    /// A connection that has no descriptor yet; packets belong to it from now on.
    pub(crate) fn add_child(&mut self, socket: Socket) -> usize {
        self.all.push(Descriptor {
            script_fd: -1,
            live_fd: -1,
            is_closed: false,
            socket: Some(socket),
        });
        self.test_newest();
        self.all.len() - 1
    }

    fn find(&self, script_fd: i32) -> Option<usize> {
        self.all.iter().rposition(|fd| !fd.is_closed && fd.script_fd == script_fd && script_fd >= 0)
    }

    /// The open descriptor that the script calls `script_fd`.
    pub(crate) fn get(&mut self, script_fd: i32) -> Result<&mut Descriptor, String> {
        let place = self.find(script_fd);
        let place = place.ok_or_else(|| format!("unable to find fd with script fd {script_fd}"))?;
        Ok(&mut self.all[place])
    }

    pub(crate) fn live(&mut self, script_fd: i32) -> Result<i32, String> {
        self.get(script_fd).map(|descriptor| descriptor.live_fd)
    }

    pub(crate) fn socket(&mut self, script_fd: i32) -> Result<&mut Socket, String> {
        let error = format!("unable to find socket with script fd {script_fd}");
        self.get(script_fd)?.socket.as_mut().ok_or(error)
    }

    /// The socket for datagrams that the script calls `script_fd`, if it is one.
    pub(crate) fn datagrams(&mut self, script_fd: i32) -> Option<&mut Socket> {
        self.socket(script_fd).ok().filter(|socket| socket.is_datagram())
    }

    /// True if one of them is a socket for datagrams.
    pub(crate) fn carry_datagrams(&self) -> bool {
        self.all.iter().any(|fd| fd.socket.as_ref().is_some_and(Socket::is_datagram))
    }

    /// The descriptor whose socket packets belong to.
    pub(crate) fn under_test(&self) -> Option<&Descriptor> {
        self.all.get(self.under_test?)
    }

    pub(crate) fn under_test_at(&self) -> Option<usize> {
        self.under_test
    }

    pub(crate) fn at(&mut self, place: usize) -> Result<&mut Socket, String> {
        let descriptor = self.all.get_mut(place);
        descriptor.and_then(|fd| fd.socket.as_mut()).ok_or_else(|| "no such socket".to_owned())
    }

    pub(crate) fn newest_first(&self) -> Vec<Descriptor> {
        self.all.iter().rev().cloned().collect()
    }

    /// Give the newest connection with a complete handshake to a call of `accept`.
    pub(crate) fn accept(
        &mut self,
        script_fd: i32,
        live_fd: i32,
        peer: Option<SocketAddr>,
    ) -> Result<(), String> {
        let is_ready = |fd: &Descriptor| {
            fd.socket.as_ref().is_some_and(|socket| {
                matches!(socket.phase, Phase::SynAckSent | Phase::SynAckAcked)
            })
        };
        let place = self.all.iter().rposition(is_ready);
        let place = place.ok_or("unable to find socket matching accept() call")?;
        let descriptor = &mut self.all[place];
        let remote = descriptor.socket.as_ref().map(|socket| socket.live.remote);
        let peer = peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        if peer != remote {
            return Err(format!("accepted {peer:?}, but the connection is from {remote:?}"));
        }
        (descriptor.script_fd, descriptor.live_fd) = (script_fd, live_fd);
        Ok(())
    }
}

impl Player {
    /// A port that no connection of this script has used.
    pub(super) fn new_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }
}
