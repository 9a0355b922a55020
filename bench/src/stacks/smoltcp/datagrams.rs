//! Datagrams one way, over smoltcp.

use ::smoltcp::iface::SocketHandle;
use ::smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};

use super::{Application, End, Ends, SERVER};
use crate::datagrams::{BURST, Pair, Plan};

/// The two ends, and the datagrams between them.
pub struct Datagrams {
    ends: Ends,
    flow: Flow,
}

struct Flow {
    sender: SocketHandle,
    receiver: SocketHandle,
    payload: Vec<u8>,
    read: usize,
    sent: usize,
    goal: usize,
    buffer: Vec<u8>,
}

/// A socket with room for a burst each way, and for what a ring wastes at its end.
fn socket(size: usize, port: u16) -> Socket<'static> {
    let ring = || {
        let metadata = vec![PacketMetadata::EMPTY; 2 * BURST];
        PacketBuffer::new(metadata, vec![0; (BURST + 2) * size])
    };
    let mut socket = Socket::new(ring(), ring());
    socket.bind(port).expect("a free port");
    socket
}

impl Pair for Datagrams {
    fn new(plan: &Plan) -> Datagrams {
        let mut ends = Ends::new(1500, true);
        let sender = ends.client.sockets.add(socket(plan.size, 1024));
        let receiver = ends.server.sockets.add(socket(plan.size, SERVER.port));
        (ends.client.is_alone, ends.server.is_alone) = (true, true);
        let flow = Flow {
            sender,
            receiver,
            payload: vec![7; plan.size],
            read: 0,
            sent: 0,
            goal: 0,
            buffer: vec![0; 2048],
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
        assert_eq!(self.flow.read, self.flow.sent, "none was lost");
    }
}

impl Application for Flow {
    fn on_client(&mut self, client: &mut End) {
        if self.sent == self.goal {
            return;
        }
        let socket = client.sockets.get_mut::<Socket<'_>>(self.sender);
        for _ in 0..BURST {
            socket.send_slice(&self.payload, SERVER).expect("room for it");
        }
        self.sent += BURST;
    }

    fn on_server(&mut self, server: &mut End) {
        let socket = server.sockets.get_mut::<Socket<'_>>(self.receiver);
        while let Ok((len, _)) = socket.recv_slice(&mut self.buffer) {
            assert_eq!(len, self.payload.len());
            self.read += 1;
        }
    }
}
