//! UDP flows: a socket for each pair of ends whose datagrams no other socket hears, made by the
//! first of them. It is connected: from where the datagram was sent to, to who sent it.

use crate::error::Error;
use crate::event::{Event, UdpId};
use crate::flow::Tuple;
use crate::host::Host;
use crate::ip::Context;
use crate::time::Instant;
use crate::udp::UdpOptions;

impl Host {
    /// Makes a socket, connected to its sender, of each datagram that no socket hears, whatever
    /// port it is for, and whichever address that is ours or that we take
    /// ([`Config::destinations`](crate::Config::destinations)). [`Host::udp_accept`] returns it. At
    /// most [`udp_flows`](crate::config::Limits::udp_flows) live at a time: the user closes what
    /// has done its work. The sockets start with `options`.
    ///
    /// # Errors
    ///
    /// [`Error::AddressInUse`] if the host does so already.
    pub fn udp_listen_any(&mut self, options: UdpOptions) -> Result<(), Error> {
        if self.udp.flows.options.is_some() {
            return Err(Error::AddressInUse);
        }
        self.udp.flows.options = Some(options);
        Ok(())
    }

    /// The oldest socket made of a datagram and not yet returned: its local address is where the
    /// datagram was sent to, its peer the sender. [`Event::Flow`] tells that there is one.
    pub fn udp_accept(&mut self) -> Option<UdpId> {
        self.udp.flows.waiting.pop_front()
    }

    /// Closes a flow, and tells its peer that the port is unreachable (RFC 1122 §4.1.3.1), within
    /// the limit on answers to strangers.
    pub fn udp_refuse(&mut self, now: Instant, id: UdpId) {
        let ends = self.udp.sockets.named(id).and_then(|socket| socket.connected);
        self.udp_close(id);
        if let Some(ends) = ends {
            let cx = &mut Context { now, counters: &mut self.shared.counters };
            self.ip.on_refused_flow(cx, &ends);
            self.after_ip(now);
        }
    }

    /// Makes no sockets of datagrams any more, and closes those not yet returned. A port without a
    /// socket is unreachable again.
    pub fn udp_unlisten_any(&mut self) {
        self.udp.flows.options = None;
        while let Some(id) = self.udp.flows.waiting.pop_front() {
            self.udp_close(id);
        }
    }

    /// Flows that live.
    pub fn udp_flows(&self) -> usize {
        self.udp.sockets.flows()
    }

    /// The slot of a new flow between `ends`, ours first, for which there is a datagram that no
    /// socket hears. `Ok(None)`: none is to be made. `Err`: there are too many.
    pub(super) fn begin_flow(&mut self, ends: &Tuple) -> Result<Option<u32>, TooMany> {
        let Some(options) = self.udp.flows.options else { return Ok(None) };
        if !self.ip.takes(ends.local_ip()) {
            return Ok(None);
        }
        let (sockets, limits) = (&mut self.udp.sockets, &self.config.limits);
        if sockets.flows() >= limits.udp_flows || sockets.len() >= limits.udp_sockets {
            self.shared.counters.udp_flows_over_limit += 1;
            return Err(TooMany);
        }
        let id = sockets.insert_flow(ends, options);
        self.udp.flows.waiting.push_back(id);
        self.shared.counters.udp_flows += 1;
        self.events.push_back(Event::Flow);
        Ok(Some(id.index))
    }
}

/// There are as many flows as may be.
pub(super) struct TooMany;
