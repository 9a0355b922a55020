//! One long transfer over one link, and a measurement of its rate over time.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lightwait::local::{TcpListener, TcpStream};
use lightwait_core::address::Cidr;
use lightwait_core::config::{BufferConfig, TcpConfig};
use lightwait_core::tcp::ConnectionInfo;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_netem::LinkConfig;
use tokio::io::AsyncReadExt;

use crate::cable::{Cable, Side};
use crate::world::{Trouble, World};

/// Bytes of a write.
const CHUNK_BYTES: usize = 1 << 16;
const MTU: u16 = 1500;
const PORT: u16 = 80;

/// Transfers from side A to side B, as a rule one.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// How many at once.
    pub flows: usize,
    /// The link from A to B, for the data.
    pub forth: LinkConfig,
    /// The link from B to A, for the acknowledgements.
    pub back: LinkConfig,
    /// TCP's configuration at both ends.
    pub tcp: TcpConfig,
}

impl Bulk {
    /// A transfer between two hosts with buffers of `buffer_bytes` at both ends.
    pub fn new(forth: LinkConfig, back: LinkConfig, buffer_bytes: u32) -> Bulk {
        let buffers = BufferConfig {
            send: buffer_bytes,
            receive: buffer_bytes.min(64 << 10),
            receive_max: buffer_bytes,
            ..BufferConfig::default()
        };
        let tcp = TcpConfig { buffers, ..TcpConfig::default() };
        Bulk { flows: 1, forth, back, tcp }
    }

    /// Bytes that B has read, of all flows, at the end of each of `periods` intervals of `period`,
    /// from the beginning.
    ///
    /// # Errors
    /// The rule that an oracle saw broken, or the reason why no event follows.
    pub fn run(&self, periods: usize, period: Duration) -> Result<Vec<u64>, Trouble> {
        let mut world = self.world()?;
        let received = Rc::new(Cell::new(0));
        let failed = Rc::new(Cell::new(None));
        for port in (PORT..).take(self.flows) {
            let listener = TcpListener::bind_on(&world.handle(Side::B), (host(Side::B), port))
                .map_err(|error| Trouble::Broken(error.to_string()))?;
            let (count, note) = (received.clone(), failed.clone());
            world.spawn(Side::B, async move {
                if let Err(error) = receive(listener, &count).await {
                    note.set(Some(error));
                }
            });
            let note = failed.clone();
            world.spawn(Side::A, async move {
                if let Err(error) = send(port, |_| {}).await {
                    note.set(Some(error));
                }
            });
        }
        let mut marks = Vec::with_capacity(periods);
        for _ in 0..periods {
            world.run_for(period)?;
            if let Some(error) = failed.take() {
                return Err(Trouble::Broken(error.to_string()));
            }
            marks.push(received.get());
        }
        Ok(marks)
    }

    /// The state of the sender's connection after `time`.
    ///
    /// # Errors
    /// The rule that an oracle saw broken, or the reason why no event follows.
    pub fn sender_after(&self, time: Duration) -> Result<ConnectionInfo, Trouble> {
        let seen = self.sender_during(time)?;
        seen.last().copied().ok_or_else(|| Trouble::Broken("nothing was sent".to_owned()))
    }

    /// The state of the sender's connection after each of its writes within `time`.
    ///
    /// # Errors
    /// The rule that an oracle saw broken, or the reason why no event follows.
    pub fn sender_during(&self, time: Duration) -> Result<Vec<ConnectionInfo>, Trouble> {
        let broken = |error: io::Error| Trouble::Broken(error.to_string());
        let mut world = self.world()?;
        let listener =
            TcpListener::bind_on(&world.handle(Side::B), (host(Side::B), PORT)).map_err(broken)?;
        let (seen, note) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        world.spawn(Side::B, async move { receive(listener, &note).await });
        let all = seen.clone();
        world.spawn(Side::A, async move { send(PORT, |info| all.borrow_mut().push(info)).await });
        world.run_for(time)?;
        Ok(seen.take())
    }

    fn world(&self) -> Result<World, Trouble> {
        let cable = Cable::new(self.forth.clone(), self.back.clone(), MTU);
        let configs = [Side::A, Side::B].map(|side| self.config(side));
        World::new(Instant::from_millis(1), cable, configs)
            .map_err(|error| Trouble::Broken(error.to_string()))
    }

    fn config(&self, side: Side) -> Config {
        let address = Cidr::new(host(side), 24).expect("24 bits fit an IPv4 address");
        let capabilities = Capabilities::plain(Medium::Ethernet, MTU);
        let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
        config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
        config.tcp = self.tcp.clone();
        config
    }
}

fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

async fn send(port: u16, see: impl Fn(ConnectionInfo)) -> io::Result<()> {
    let stream = TcpStream::connect(SocketAddr::new(host(Side::B), port)).await?;
    let chunk = Bytes::from(vec![0; CHUNK_BYTES]);
    loop {
        stream.write_all_bytes(chunk.clone()).await?;
        see(stream.info()?);
    }
}

async fn receive(listener: TcpListener, received: &Cell<u64>) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match stream.read(&mut chunk).await? {
            0 => return Ok(()),
            count => received.set(received.get() + count as u64),
        }
    }
}
