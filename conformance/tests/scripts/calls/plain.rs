//! The calls that open, connect and close sockets.

use std::net::SocketAddr;

use super::{Arguments, result};
use crate::ast::{CallSpec, Expr};
use crate::door::Answer;
use crate::play::{Output, Phase, Player, Prepared, Returned, Socket};
use crate::system;

pub(super) fn socket(
    player: &mut Player,
    call: &CallSpec,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(3)?;
    arguments.ellipsis(0)?;
    let (kind, protocol) = (arguments.int(1)?, arguments.int(2)?);
    let domain = player.config.domain();
    let script_fd = result(call)?;
    let prepared = Prepared::new(move |door| door.socket(domain, kind, protocol).into());
    Ok(prepared.fd().then(move |player, returned| {
        let Some(live_fd) = descriptor(returned.answer) else { return Ok(()) };
        if script_fd < 0 {
            return Err(format!("invalid socket fd {script_fd} in script"));
        }
        let socket = Socket::new(Phase::New, protocol_of(kind, protocol));
        player.descriptors.add(script_fd, live_fd, Some(socket))?;
        player.descriptors.test_newest();
        Ok(())
    }))
}

/// The protocol of a socket that does not name it.
fn protocol_of(kind: i32, protocol: i32) -> i32 {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if (kind, protocol) == (libc::SOCK_DGRAM, 0) { libc::IPPROTO_UDP } else { protocol }
}

/// The descriptor that a call returned, unless it failed.
pub(super) fn descriptor(answer: Answer) -> Option<i32> {
    i32::try_from(answer.value).ok().filter(|fd| *fd >= 0)
}

pub(super) fn bind(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(3)?;
    let (script_fd, fd) = (arguments.int(0)?, arguments.fd(0, player)?);
    let address = arguments.address(1)?.unwrap_or_else(|| player.config.bind_address());
    arguments.ellipsis(2)?;
    let prepared = Prepared::new(move |door| door.bind(fd, address).into());
    Ok(prepared.then(move |player, returned| {
        let config = player.config.clone();
        if let (0, Some(socket)) = (returned.answer.value, player.descriptors.datagrams(script_fd))
        {
            socket.name_end(&config, address);
        }
        Ok(())
    }))
}

pub(super) fn listen(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(2)?;
    let (script_fd, backlog) = (arguments.int(0)?, arguments.int(1)?);
    let fd = arguments.fd(0, player)?;
    let prepared = Prepared::new(move |door| door.listen(fd, backlog).into());
    Ok(prepared.then(move |player, _| {
        player.descriptors.socket(script_fd)?.phase = Phase::Listening;
        Ok(())
    }))
}

pub(super) fn accept(
    player: &mut Player,
    call: &CallSpec,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(3)?;
    let fd = arguments.fd(0, player)?;
    arguments.ellipsis(1)?;
    arguments.ellipsis(2)?;
    let script_fd = result(call)?;
    let prepared = Prepared::new(move |door| {
        let (answer, peer) = door.accept(fd);
        Returned { answer, output: Output::Address(peer) }
    });
    Ok(prepared.fd().then(move |player, returned| {
        let Some(live_fd) = descriptor(returned.answer) else { return Ok(()) };
        let Output::Address(peer) = returned.output else { return Ok(()) };
        player.descriptors.accept(script_fd, live_fd, peer)
    }))
}

/// The effect of `connect`, and of calls like it, on the script's view of a socket. Returns the
/// address to give to the call; None: one of family AF_UNSPEC.
pub(super) fn note_connect(
    player: &mut Player,
    script_fd: i32,
    peer: Peer,
) -> Result<Option<SocketAddr>, String> {
    let address = match peer {
        Peer::Address(address) => address,
        _ => player.config.connect_address(),
    };
    let socket = player.descriptors.socket(script_fd)?;
    if peer == Peer::Nobody {
        socket.phase = Phase::New;
        return Ok(None);
    }
    if socket.is_datagram() {
        socket.name_peer(address);
    } else if socket.phase == Phase::New {
        socket.phase = Phase::Connecting;
        socket.live.remote = SocketAddr::new(address.ip().to_canonical(), address.port());
    }
    Ok(Some(address))
}

/// The address that a script gives to `connect`, and to calls like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// `...`
    Configured,
    /// An address, in a language of ours.
    Address(SocketAddr),
    /// AF_UNSPEC alone.
    Nobody,
}

pub(super) fn peer(arguments: &Arguments<'_>, index: usize) -> Result<Peer, String> {
    match arguments.get(index)? {
        Expr::Ellipsis => Ok(Peer::Configured),
        Expr::Address(address) => Ok(Peer::Address(*address)),
        _ => match arguments.int(index)? {
            libc::AF_UNSPEC => Ok(Peer::Nobody),
            other => Err(format!("an address of family {other} alone")),
        },
    }
}

pub(super) fn connect(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(3)?;
    let fd = arguments.fd(0, player)?;
    let peer = peer(arguments, 1)?;
    arguments.ellipsis(2)?;
    let address = note_connect(player, arguments.int(0)?, peer)?;
    Ok(Prepared::new(move |door| door.connect(fd, address).into()))
}

pub(super) fn close(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(1)?;
    let script_fd = arguments.int(0)?;
    let fd = arguments.fd(0, player)?;
    let prepared = Prepared::new(move |door| door.close(fd).into());
    Ok(prepared.then(move |player, _| {
        player.descriptors.get(script_fd)?.is_closed = true;
        Ok(())
    }))
}

pub(super) fn shutdown(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(2)?;
    let fd = arguments.fd(0, player)?;
    let how = arguments.int(1)?;
    Ok(Prepared::new(move |door| door.shutdown(fd, how).into()))
}

pub(super) fn fcntl(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let fd = arguments.fd(0, player)?;
    let command = arguments.int(1)?;
    let argument = match arguments.0.len() {
        2 => 0,
        3 => libc::c_ulong::from(arguments.int(2)?.cast_unsigned()),
        other => return Err(format!("fcntl expected 2-3 args but got {other}")),
    };
    Ok(Prepared::new(move |door| door.fcntl(fd, command, argument).into()))
}

pub(super) fn ioctl(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let fd = arguments.fd(0, player)?;
    let command = libc::c_ulong::from(arguments.int(1)?.cast_unsigned());
    let wanted = match arguments.0.len() {
        2 => None,
        3 => Some(arguments.bracketed_int(2)?),
        other => return Err(format!("ioctl expected 2-3 args but got {other}")),
    };
    let prepared = Prepared::new(move |door| {
        let (answer, number) = door.ioctl(fd, command);
        Returned { answer, output: Output::Number(number) }
    });
    Ok(prepared.then(move |_, returned| match (wanted, &returned.output) {
        (Some(wanted), Output::Number(actual)) if wanted != *actual => {
            Err(format!("Bad ioctl optval: expected: {wanted} actual: {actual}"))
        }
        _ => Ok(()),
    }))
}

pub(super) fn open(call: &CallSpec, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(2)?;
    let Expr::Text(path) = arguments.get(0)? else { return Err("open() wants a string".into()) };
    let path = String::from_utf8_lossy(path).into_owned();
    let flags = arguments.int(1)?;
    let script_fd = result(call)?;
    let prepared = Prepared::new(move |_| system::open(&path, flags).into());
    Ok(prepared.fd().then(move |player, returned| match descriptor(returned.answer) {
        Some(live_fd) => player.descriptors.add(script_fd, live_fd, None),
        None => Ok(()),
    }))
}

pub(super) fn pipe(arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(1)?;
    let Expr::List(ends) = arguments.get(0)? else { return Err("pipe() wants a list".into()) };
    let [Expr::Integer(first), Expr::Integer(second)] = ends.as_slice() else {
        return Err(format!("{} pipe file descriptors instead of 2", ends.len()));
    };
    let script = [super::int(*first), super::int(*second)];
    let prepared = Prepared::new(|door| {
        let (answer, ends) = door.pipe();
        Returned { answer, output: Output::Pipe(ends) }
    });
    Ok(prepared.then(move |player, returned| {
        let Output::Pipe(live) = returned.output else { return Ok(()) };
        for (script_fd, live_fd) in script.into_iter().zip(live) {
            player.descriptors.add(script_fd, live_fd, None)?;
        }
        Ok(())
    }))
}

/// Capabilities are the machine's; the stack has none.
pub(super) fn cap_set(arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(3)?;
    Ok(Prepared::new(|_| Answer { value: 0, errno: 0 }.into()))
}
