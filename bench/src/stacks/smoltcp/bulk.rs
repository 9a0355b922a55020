//! Bulk transfer over smoltcp.

use std::time::Duration;

use ::smoltcp::iface::SocketHandle;
use ::smoltcp::socket::tcp::Socket;

use super::{Application, End, Ends, SERVER, Sources, new_socket};
use crate::bulk::{Pair, Plan};

/// The time that a turn takes.
const TURN: Duration = Duration::from_micros(20);
/// Bytes of a buffer: the best size from 32 KiB to 1 MiB.
const BUFFER: usize = 128 << 10;

/// The two ends, and the bytes from the client to the server.
pub struct Bulk {
    ends: Ends,
    flow: Flow,
    goal: usize,
}

struct Flow {
    client: SocketHandle,
    server: SocketHandle,
    data: Vec<u8>,
    buffer: Vec<u8>,
    read: usize,
}

impl Pair for Bulk {
    fn new(plan: &Plan) -> Bulk {
        let mut ends = Ends::new(plan.mtu, plan.checksum);
        (ends.client.is_alone, ends.server.is_alone) = (true, true);
        let server = ends.server.sockets.add(new_socket(BUFFER));
        ends.server.listen(server);
        let client = ends.client.sockets.add(new_socket(BUFFER));
        let socket = ends.client.sockets.get_mut::<Socket<'_>>(client);
        let source = Sources::default().take();
        socket.connect(ends.client.interface.context(), SERVER, source).expect("a free socket");
        let (data, buffer) = (vec![b'd'; BUFFER], vec![0; BUFFER]);
        let flow = Flow { client, server, data, buffer, read: 0 };
        Bulk { ends, flow, goal: 0 }
    }

    fn send(&mut self, bytes: usize) {
        self.goal += bytes;
        while self.flow.read < self.goal {
            let now = self.ends.now + TURN;
            self.ends.turn(&mut self.flow, now);
        }
    }

    fn check(&self) {}
}

impl Application for Flow {
    fn on_client(&mut self, client: &mut End) {
        let socket = client.socket(self.client);
        while socket.can_send() && socket.send_slice(&self.data).is_ok_and(|len| len > 0) {}
    }

    fn on_server(&mut self, server: &mut End) {
        let socket = server.socket(self.server);
        while socket.can_recv()
            && let Ok(len) = socket.recv_slice(&mut self.buffer)
        {
            self.read += len;
        }
    }
}
