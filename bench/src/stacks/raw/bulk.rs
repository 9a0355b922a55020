//! Bulk transfer between two bare hosts.

use std::time::Duration;

use lightwait_core::{ConnectionId, Event, Host, Instant, Readiness};

use super::{Application, Ends, SERVER, Sources, configs};
use crate::bulk::{Pair, Plan};

/// The hosts' time of a turn: about the time that its frames take to be sent and received.
const TURN: Duration = Duration::from_micros(20);
/// The largest packet that a device cuts.
const LARGEST_PACKET: u32 = 65_535;
/// Bytes of a read or a write.
const CHUNK: usize = 64 << 10;

/// The two hosts, and the bytes from the client to the server.
#[derive(Debug)]
pub struct Bulk {
    ends: Ends,
    flow: Flow,
    goal: usize,
}

/// Both ends of the application.
#[derive(Debug)]
struct Flow {
    data: Vec<u8>,
    buffer: Vec<u8>,
    read: usize,
}

impl Pair for Bulk {
    fn new(plan: &Plan) -> Bulk {
        let mut configs = configs(plan.mtu);
        for config in &mut configs {
            config.device.checksum = !plan.checksum;
            config.device.segmentation = if plan.cut { 0 } else { LARGEST_PACKET };
        }
        let mut ends = Ends::new(configs);
        ends.server.host.listen(SERVER, 1).expect("a free port");
        let source = Sources::new(0, 1).take();
        ends.client.host.connect(ends.now, source, SERVER).expect("a free port");
        let flow = Flow { data: vec![b'd'; CHUNK], buffer: vec![0; CHUNK], read: 0 };
        Bulk { ends, flow, goal: 0 }
    }

    fn send(&mut self, bytes: usize) {
        self.goal += bytes;
        while self.flow.read < self.goal {
            let now = self.ends.now + TURN;
            self.ends.turn(&mut self.flow, now);
        }
    }

    fn check(&self) {
        self.ends.check();
    }
}

impl Flow {
    fn fill(&self, host: &mut Host, now: Instant, id: ConnectionId) {
        while host.write(now, id, &self.data).is_ok_and(|len| len == self.data.len()) {}
    }
}

impl Application for Flow {
    fn on_client(&mut self, host: &mut Host, now: Instant, event: Event) {
        if let Event::Ready(id, readiness) = event
            && readiness.contains(Readiness::WRITABLE)
        {
            self.fill(host, now, id);
        }
    }

    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Acceptable(listener) => while host.accept(now, listener).is_ok() {},
            Event::Ready(id, readiness) if readiness.contains(Readiness::READABLE) => {
                while let Ok(len @ 1..) = host.read(now, id, &mut self.buffer) {
                    self.read += len;
                }
            }
            Event::Ready(..) | Event::Udp(..) | Event::Flow | Event::Addresses => {}
        }
    }
}
