//! Requests on connections that stay, over smoltcp.

use std::time::Duration;

use ::smoltcp::iface::SocketHandle;
use ::smoltcp::socket::tcp::{Socket, State};

use super::{Application, End, Ends, SERVER, Sources, new_socket};
use crate::pingpong::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// The time that each request takes.
const EXCHANGE: Duration = Duration::from_micros(1);
/// A request and an answer fit.
const BUFFER: usize = 1024;

/// The two ends, and the requests between them.
pub struct PingPong {
    ends: Ends,
    game: Game,
    started: Duration,
    goal: usize,
}

struct Game {
    /// The clients, and whether each has sent its first request.
    clients: Vec<(SocketHandle, bool)>,
    servers: Vec<SocketHandle>,
    answered: usize,
    buffer: [u8; BUFFER],
}

impl Pair for PingPong {
    fn new(plan: &Plan) -> PingPong {
        let mut ends = Ends::new(1500, true);
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        let mut sources = Sources::default();
        for _ in 0..plan.connections {
            let handle = ends.server.sockets.add(new_socket(BUFFER));
            ends.server.listen(handle);
            servers.push(handle);
            let handle = ends.client.sockets.add(new_socket(BUFFER));
            let socket = ends.client.sockets.get_mut::<Socket<'_>>(handle);
            let context = ends.client.interface.context();
            socket.connect(context, SERVER, sources.take()).expect("a free socket");
            clients.push((handle, false));
        }
        let started = ends.now;
        PingPong {
            ends,
            game: Game { clients, servers, answered: 0, buffer: [0; BUFFER] },
            started,
            goal: 0,
        }
    }

    fn exchange(&mut self, count: usize) {
        self.goal += count;
        while self.game.answered < self.goal {
            let now = self.started + EXCHANGE * self.game.answered as u32;
            self.ends.turn(&mut self.game, now);
        }
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.packets())
    }

    fn check(&self) {}
}

impl Application for Game {
    fn on_client(&mut self, client: &mut End) {
        for (handle, has_asked) in &mut self.clients {
            let socket = client.socket(*handle);
            if socket.recv_queue() == RESPONSE {
                assert_eq!(socket.recv_slice(&mut self.buffer), Ok(RESPONSE));
                self.answered += 1;
            } else if *has_asked || socket.state() != State::Established {
                continue;
            }
            *has_asked = true;
            socket.send_slice(&[b'q'; REQUEST]).expect("room for the question");
        }
    }

    fn on_server(&mut self, server: &mut End) {
        for &handle in &self.servers {
            let socket = server.socket(handle);
            if socket.recv_queue() == REQUEST {
                assert_eq!(socket.recv_slice(&mut self.buffer), Ok(REQUEST));
                socket.send_slice(&[b'a'; RESPONSE]).expect("room for the answer");
            }
        }
    }
}
