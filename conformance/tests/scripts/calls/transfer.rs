//! The calls that move bytes. On a stream they write zeros, and do not look at the bytes that they
//! read. Datagrams have a [pattern], both ways.

use super::plain::{note_connect, peer};
use super::{Arguments, evaluate};
use crate::ast::Expr;
use crate::packet::pattern;
use crate::play::{Output, Player, Prepared, Returned};
use crate::system;

/// Descriptor, buffer and length: the first three arguments of most.
fn common(
    player: &mut Player,
    arguments: &Arguments<'_>,
    count: usize,
) -> Result<(i32, Option<Vec<u8>>, usize), String> {
    arguments.count(count)?;
    let fd = arguments.fd(0, player)?;
    let has_buffer = arguments.has_buffer(1)?;
    let length = arguments.size(2)?;
    let is_stream = !carries_datagrams(player, arguments)?;
    let bytes = || if is_stream { vec![0; length] } else { pattern(length) };
    Ok((fd, has_buffer.then(bytes), length))
}

pub(super) fn carries_datagrams(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<bool, String> {
    let script_fd = arguments.int(0)?;
    Ok(player.descriptors.datagrams(script_fd).is_some())
}

/// The buffer of a read, none of whose bytes are those of a datagram.
fn read_common(
    player: &mut Player,
    arguments: &Arguments<'_>,
    count: usize,
) -> Result<(i32, Option<Vec<u8>>, usize), String> {
    let (fd, buffer, length) = common(player, arguments, count)?;
    Ok((fd, buffer.map(|buffer| vec![0; buffer.len()]), length))
}

/// What a read returned, and its bytes where they are those of a datagram.
fn judge_bytes(prepared: Prepared, is_datagram: bool) -> Prepared {
    prepared.then(move |_, returned| match &returned.output {
        Output::Bytes(bytes, _) if is_datagram => {
            let read = usize::try_from(returned.answer.value).unwrap_or(0).min(bytes.len());
            check_pattern(&bytes[..read])
        }
        _ => Ok(()),
    })
}

/// Whether these are the first bytes of a datagram.
pub(super) fn check_pattern(bytes: &[u8]) -> Result<(), String> {
    let wanted = pattern(bytes.len());
    match bytes.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        None => Ok(()),
        Some(at) => {
            let (wanted, found) = (wanted[at], bytes[at]);
            Err(format!("byte {at} of the datagram: expected {wanted} but got {found}"))
        }
    }
}

fn returned(answer: crate::door::Answer, buffer: Option<Vec<u8>>) -> Returned {
    Returned { answer, output: Output::Bytes(buffer.unwrap_or_default(), 0) }
}

pub(super) fn read(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = read_common(player, arguments, 3)?;
    let is_datagram = carries_datagrams(player, arguments)?;
    let prepared = Prepared::new(move |door| {
        let answer = door.read(fd, buffer.as_deref_mut(), length);
        returned(answer, buffer)
    });
    Ok(judge_bytes(prepared, is_datagram))
}

pub(super) fn recv(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = read_common(player, arguments, 4)?;
    let flags = arguments.int(3)?;
    let is_datagram = carries_datagrams(player, arguments)?;
    let prepared = Prepared::new(move |door| {
        let answer = door.recv(fd, buffer.as_deref_mut(), length, flags);
        returned(answer, buffer)
    });
    Ok(judge_bytes(prepared, is_datagram))
}

pub(super) fn recvfrom(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = read_common(player, arguments, 6)?;
    let flags = arguments.int(3)?;
    let wanted = arguments.address(4)?;
    arguments.ellipsis(5)?;
    let is_datagram = carries_datagrams(player, arguments)?;
    let prepared = Prepared::new(move |door| {
        let (answer, sender) = door.recvfrom(fd, buffer.as_deref_mut(), length, flags);
        Returned { answer, output: Output::From(buffer.unwrap_or_default(), sender) }
    });
    Ok(prepared.then(move |_, returned| {
        let Output::From(bytes, sender) = &returned.output else { return Ok(()) };
        let Ok(read) = usize::try_from(returned.answer.value) else { return Ok(()) };
        if wanted.is_some() && *sender != wanted {
            return Err(format!("a datagram from {sender:?}, expected one from {wanted:?}"));
        }
        if is_datagram { check_pattern(&bytes[..read.min(bytes.len())]) } else { Ok(()) }
    }))
}

pub(super) fn write(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 3)?;
    Ok(Prepared::new(move |door| door.write(fd, buffer.as_deref_mut(), length).into()))
}

pub(super) fn send(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 4)?;
    let flags = arguments.int(3)?;
    Ok(Prepared::new(move |door| door.send(fd, buffer.as_deref_mut(), length, flags).into()))
}

pub(super) fn sendto(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 6)?;
    let flags = arguments.int(3)?;
    let peer = peer(arguments, 4)?;
    arguments.ellipsis(5)?;
    let address = note_connect(player, arguments.int(0)?, peer)?;
    Ok(Prepared::new(move |door| {
        door.sendto(fd, buffer.as_deref_mut(), length, flags, address).into()
    }))
}

/// The lengths of a list of buffers.
pub(super) fn vectors(list: &[Expr]) -> Result<Vec<usize>, String> {
    let length = |expression: &Expr| match expression {
        Expr::IoVec(length) => Ok(*length),
        other => Err(format!("Bad type; actual: {other:?} expected: iovec")),
    };
    list.iter().map(length).collect()
}

fn vector_arguments(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<(i32, Vec<usize>), String> {
    arguments.count(3)?;
    let fd = arguments.fd(0, player)?;
    let Expr::List(list) = arguments.get(1)? else { return Err("expected a list".into()) };
    let lengths = vectors(list)?;
    if i64::try_from(lengths.len()) != Ok(arguments.long(2)?) {
        return Err("iov_count does not match the iovec array".into());
    }
    Ok((fd, lengths))
}

pub(super) fn readv(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, lengths) = vector_arguments(player, arguments)?;
    let is_datagram = carries_datagrams(player, arguments)?;
    let prepared = Prepared::new(move |door| {
        let (answer, bytes) = door.readv(fd, &lengths);
        returned(answer, Some(bytes))
    });
    Ok(judge_bytes(prepared, is_datagram))
}

pub(super) fn writev(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, lengths) = vector_arguments(player, arguments)?;
    let is_datagram = carries_datagrams(player, arguments)?;
    Ok(Prepared::new(move |door| door.writev(fd, &lengths, is_datagram).into()))
}

pub(super) fn sendfile(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(4)?;
    let (to, from) = (arguments.fd(0, player)?, arguments.fd(1, player)?);
    let (offset, count) = (arguments.bracketed(2)?, arguments.size(3)?);
    Ok(Prepared::new(move |_| system::sendfile(to, from, offset, count).into()))
}

pub(super) fn splice(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(6)?;
    let from = (arguments.fd(0, player)?, arguments.long(1)?);
    let to = (arguments.fd(2, player)?, arguments.long(3)?);
    let length = arguments.size(4)?;
    let flags = evaluate::int32(arguments.long(5)?)?.cast_unsigned();
    Ok(Prepared::new(move |door| door.splice(from, to, length, flags).into()))
}
