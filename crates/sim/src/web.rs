//! Our HTTP server, unmodified, in a world: its clocks are the world's, and its sockets and memory
//! those of the host on one side.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::Timer;
use lightwait::shard::Handle;
use lightwait_http::stack::{self, Transport};
use lightwait_http::{Clock, Files, Memory, Server};

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
    stack::memory_of(at)
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
    let transport = |stream: &TcpStream| plain(stream).without_read_times();
    serve_by(&world.handle(side), address, server, transport)
}

/// Serves each connection to `address` on a shard outside a world.
///
/// # Errors
/// Those of [`TcpListener::bind_on`].
pub fn serve_on(shard: &Handle, address: SocketAddr, server: &Rc<FileServer>) -> io::Result<()> {
    serve_by(shard, address, server, plain)
}

fn serve_by(
    shard: &Handle,
    address: SocketAddr,
    server: &Rc<FileServer>,
    transport: impl Fn(&TcpStream) -> Transport + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind_on(shard, address)?;
    let server = server.clone();
    shard.spawn_local(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let transport = transport(&stream);
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

/// The control over a socket without a bridge before it.
fn plain(stream: &TcpStream) -> Transport {
    Transport::new(stream, None, false)
}
