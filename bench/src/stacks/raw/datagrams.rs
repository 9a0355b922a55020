//! Datagrams one way, between two bare hosts.

use lightwait_core::udp::{Transmit, UdpOptions};
use lightwait_core::{Error, Event, Host, Instant, UdpId};

use super::{Application, Ends, SERVER, configs};
use crate::datagrams::{BURST, Pair, Plan};

/// The two hosts, and the datagrams between them.
#[derive(Debug)]
pub struct Datagrams {
    ends: Ends,
    flow: Flow,
}

#[derive(Debug)]
struct Flow {
    sender: UdpId,
    receiver: UdpId,
    /// What one call sends, and the size of a datagram in it.
    payload: Vec<u8>,
    size: usize,
    read: usize,
    sent: usize,
    goal: usize,
    buffer: Vec<u8>,
}

impl Pair for Datagrams {
    fn new(plan: &Plan) -> Datagrams {
        let mut ends = Ends::new(configs(1500).map(|config| plan.variant.apply(config)));
        let bind = |host: &mut Host, at: &str| {
            let joined = plan.batched;
            let options = UdpOptions { joined, ..host.default_udp_options() };
            host.udp_bind(at.parse().expect("an address"), options).expect("a free port")
        };
        let receiver = bind(&mut ends.server.host, "0.0.0.0:80");
        let sender = bind(&mut ends.client.host, "0.0.0.0:1024");
        let flow = Flow {
            sender,
            receiver,
            payload: vec![7; if plan.batched { plan.size * BURST } else { plan.size }],
            size: plan.size,
            read: 0,
            sent: 0,
            goal: 0,
            buffer: vec![0; 2048 * BURST],
        };
        Datagrams { ends, flow }
    }

    fn pass(&mut self, count: usize) {
        self.flow.goal += count;
        while self.flow.read < self.flow.goal {
            let now = self.ends.now;
            self.ends.turn(&mut self.flow, now);
        }
    }

    fn check(&self) {
        self.ends.check();
        assert_eq!(self.ends.server.host.counters().datagrams_over_limit, 0);
        assert_eq!(self.flow.read, self.flow.sent, "none was lost");
    }
}

impl Application for Flow {
    fn on_client(&mut self, _: &mut Host, _: Instant, _: Event) {}

    fn on_server(&mut self, host: &mut Host, _: Instant, _: Event) {
        loop {
            match host.udp_receive(self.receiver, &mut self.buffer) {
                Ok(received) => {
                    assert_eq!(received.segment, self.size);
                    self.read += received.len / self.size;
                }
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn before_client(&mut self, host: &mut Host, now: Instant) {
        if self.sent == self.goal {
            return;
        }
        let several = self.payload.len() > self.size;
        let segment = several.then_some(self.size);
        let to = Transmit { segment, ..Transmit::to(SERVER) };
        for _ in 0..if several { 1 } else { BURST } {
            host.udp_send(now, self.sender, &to, &self.payload).expect("room for it");
        }
        self.sent += BURST;
    }
}
