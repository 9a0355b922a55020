//! Our HTTP server, unmodified, in a world: its clocks are the world's, and its sockets and memory
//! those of the host on one side.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use lightwait::local::{Control, TcpListener};
use lightwait::rt::Timer;
use lightwait::shard::{self, Handle};
use lightwait_core::buffer::{self, Level};
use lightwait_http::{Clock, ConnectionRoom, Delivery, Files, Keeper, Memory, Pending, Server};

use crate::disk::Disk;
use crate::{Side, World};

/// A server of files on a disk of the world.
pub type FileServer = Server<Files<Disk>>;

/// The clocks of a server on that side. The time of day is the world's, too.
pub fn clock(world: &World, side: Side) -> Clock {
    clock_of(world.handle(side))
}

/// The clocks of a server on a shard in virtual time outside a world.
pub fn clock_of(at: Handle) -> Clock {
    let wall = move || UNIX_EPOCH + Duration::from_nanos(at.now().as_nanos());
    Clock { timer: Rc::new(Timer), measure: Rc::new(lightwait::rt::measure), wall: Rc::new(wall) }
}

/// A part of the memory of the host on that side, for the file service.
pub fn memory(world: &World, side: Side) -> Memory {
    memory_of(&world.handle(side))
}

/// A part of the memory of a shard outside a world.
pub fn memory_of(at: &Handle) -> Memory {
    Memory::new(Budget(at.memory()))
}

/// Serves each connection to `address` on that side in a task of its own.
///
/// # Errors
/// Those of [`TcpListener::bind_on`].
pub fn serve(
    world: &World,
    side: Side,
    address: SocketAddr,
    server: &Rc<FileServer>,
) -> io::Result<()> {
    serve_on(&world.handle(side), address, server)
}

/// Serves like [`serve`], but does not tell the sockets how long reads take.
///
/// # Errors
/// Those of [`TcpListener::bind_on`].
pub fn serve_without_read_times(
    world: &World,
    side: Side,
    address: SocketAddr,
    server: &Rc<FileServer>,
) -> io::Result<()> {
    let transport = |control| Transport { control, tells_read_times: false };
    serve_by(&world.handle(side), address, server, transport)
}

/// Serves each connection to `address` on a shard outside a world.
///
/// # Errors
/// Those of [`TcpListener::bind_on`].
pub fn serve_on(shard: &Handle, address: SocketAddr, server: &Rc<FileServer>) -> io::Result<()> {
    serve_by(shard, address, server, |control| Transport { control, tells_read_times: true })
}

fn serve_by(
    shard: &Handle,
    address: SocketAddr,
    server: &Rc<FileServer>,
    transport: impl Fn(Control) -> Transport + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind_on(shard, address)?;
    let server = server.clone();
    shard.spawn_local(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let transport = transport(stream.control());
            let Ok(admission) = server.admit(peer) else {
                stream.abort();
                continue;
            };
            let serving = server.clone();
            Handle::current().spawn_local(async move {
                let _inside = admission;
                let _ = serving.serve_controlled(stream, transport, peer).await;
            });
        }
    });
    Ok(())
}

/// One of our sockets, for the server.
#[derive(Clone)]
struct Transport {
    control: Control,
    tells_read_times: bool,
}

impl lightwait_http::Control for Transport {
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<usize> {
        self.control.poll_room(context)
    }

    fn read_size(&self) -> Option<usize> {
        self.control.read_size()
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        let told = if self.tells_read_times { read_time } else { Duration::ZERO };
        self.control.set_supply(told, more);
    }

    fn abort(&self) {
        self.control.abort();
    }

    fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    fn wake_when_closed(&self, context: &Context<'_>) {
        self.control.wake_when_closed(context);
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        Some(self.control.unacknowledged_bytes())
    }

    fn adopt(&self, chunk: &Bytes) -> bool {
        self.control.adopt(chunk)
    }

    fn borrow(&self, chunk: &Bytes) -> bool {
        self.control.borrow(chunk)
    }

    fn is_wanted_back(&self) -> bool {
        self.control.is_wanted_back()
    }

    fn take_back(&self, most: usize) -> usize {
        self.control.take_back(most)
    }

    fn poll_taken(&self, context: &mut Context<'_>, kept: usize) -> Poll<()> {
        self.control.poll_taken(context, kept)
    }

    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        self.control.poll_acknowledged(context)
    }

    fn delivery(&self) -> Option<Delivery> {
        let info = self.control.info()?;
        Some(Delivery {
            unacknowledged: info.send_buffered_bytes.into(),
            srtt: info.srtt,
            retransmits: info.retransmits,
        })
    }
}

/// A part of a stack's memory.
struct Budget(shard::Memory);

impl Keeper for Budget {
    fn held(&self) -> &Arc<AtomicUsize> {
        self.0.held()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn is_scarce(&self) -> bool {
        self.0.level() > Level::Plenty
    }

    fn by_connections(&self) -> &Arc<AtomicUsize> {
        self.0.by_connections()
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn room(&self) -> Pending<()> {
        Box::pin(self.0.room())
    }

    fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        self.0.when_scarce(give_back);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.0.set_crowded(is_crowded);
    }

    fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        match self.0.room_for_connection(bytes) {
            buffer::ConnectionRoom::Enough => ConnectionRoom::Enough,
            buffer::ConnectionRoom::Little => ConnectionRoom::Little,
            buffer::ConnectionRoom::None => ConnectionRoom::None,
        }
    }
}
