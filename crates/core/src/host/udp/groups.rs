//! UDP sockets that listen to multicast groups (RFC 1112 §7, RFC 3493 §5.2).

use core::net::IpAddr;

use super::{Host, NO_SUCH_SOCKET};
use crate::error::Error;
use crate::event::UdpId;
use crate::flow::Tuple;
use crate::time::Instant;
use crate::udp::GROUPS_MAX;
use crate::udp::socket::Arrival;

impl Host {
    /// Lets a socket hear what is sent to a group and to its port. Routers and switches are told.
    ///
    /// A socket hears the groups that it has joined itself, and unasked those of all hosts
    /// (224.0.0.1 and ff02::1). On a host of several shards a datagram to a group comes to the
    /// shard that owns its ends, as any other: a service joins on each of them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the address is no group, or of a version that the socket does not
    /// hear; [`Error::AddressInUse`] if it listens to it already; [`Error::Limit`] if it, or the
    /// host, listens to as many as may be.
    pub fn udp_join(&mut self, id: UdpId, group: IpAddr) -> Result<(), Error> {
        let socket = self.udp.sockets.named_mut(id).ok_or(NO_SUCH_SOCKET)?;
        if !group.is_multicast() || !socket.speaks(group.is_ipv4()) {
            return Err(Error::InvalidInput("no group that this socket could hear"));
        }
        if socket.groups.contains(&group) {
            return Err(Error::AddressInUse);
        }
        if socket.groups.len() == GROUPS_MAX {
            return Err(Error::Limit("groups of a socket"));
        }
        self.ip.join_group(group)?;
        socket.groups.push(group);
        Ok(())
    }

    /// Lets a socket hear a group no more.
    ///
    /// # Errors
    ///
    /// [`Error::AddressNotAvailable`] if it does not listen to it.
    pub fn udp_leave(&mut self, id: UdpId, group: IpAddr) -> Result<(), Error> {
        let socket = self.udp.sockets.named_mut(id).ok_or(NO_SUCH_SOCKET)?;
        let at = socket.groups.iter().position(|joined| *joined == group);
        socket.groups.swap_remove(at.ok_or(Error::AddressNotAvailable)?);
        self.ip.leave_group(group);
        Ok(())
    }

    /// The slot of the socket that a datagram between `ends`, ours first, is for, if it is to hear
    /// it: what goes to a group is for those that have joined it.
    pub(super) fn listener_to(&mut self, ends: &Tuple) -> Option<u32> {
        let index = self.udp.sockets.find_and_note(ends)?;
        let to = ends.local_ip();
        if !to.is_multicast() || self.ip.is_group_of_all(to) {
            return Some(index);
        }
        let socket = self.udp.sockets.get(index)?;
        socket.groups.contains(&to).then_some(index)
    }

    /// Brings what a socket sends to a group to the socket of this host that listens to it
    /// (RFC 1112 §7.2). `ends` are those of the sender, ours first.
    pub(super) fn loop_back(
        &mut self,
        ends: &Tuple,
        traffic_class: u8,
        bytes: &[u8],
        segment: usize,
    ) {
        let (from, to) = (ends.local(), ends.remote());
        let Some(index) = self.listener_to(&ends.reversed()) else { return };
        self.shared.counters.datagrams_in += 1;
        let arrived = Instant::FAR_FUTURE;
        let arrival = Arrival { from, to: to.ip(), traffic_class, arrived };
        self.keep_datagram(index, arrival, bytes, segment);
    }

    /// A socket that is closed listens to no group any more.
    pub(super) fn leave_all(&mut self, id: UdpId) {
        let Some(socket) = self.udp.sockets.named_mut(id) else { return };
        let groups = core::mem::take(&mut socket.groups);
        groups.into_iter().for_each(|group| self.ip.leave_group(group));
    }
}
