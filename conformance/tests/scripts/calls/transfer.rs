//! The calls that move bytes. They write zeros, and do not look at the bytes that they read.

use super::plain::{family, note_connect};
use super::{Arguments, evaluate};
use crate::ast::Expr;
use crate::play::{Player, Prepared};
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
    Ok((fd, has_buffer.then(|| vec![0; length]), length))
}

pub(super) fn read(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 3)?;
    Ok(Prepared::new(move |door| door.read(fd, buffer.as_deref_mut(), length).into()))
}

pub(super) fn recv(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 4)?;
    let flags = arguments.int(3)?;
    Ok(Prepared::new(move |door| door.recv(fd, buffer.as_deref_mut(), length, flags).into()))
}

pub(super) fn recvfrom(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, mut buffer, length) = common(player, arguments, 6)?;
    let flags = arguments.int(3)?;
    arguments.ellipsis(4)?;
    arguments.ellipsis(5)?;
    Ok(Prepared::new(move |door| door.recvfrom(fd, buffer.as_deref_mut(), length, flags).into()))
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
    let family = family(arguments, 4)?;
    arguments.ellipsis(5)?;
    let address = note_connect(player, arguments.int(0)?, family)?;
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
    Ok(Prepared::new(move |door| door.readv(fd, &lengths).into()))
}

pub(super) fn writev(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let (fd, lengths) = vector_arguments(player, arguments)?;
    Ok(Prepared::new(move |door| door.writev(fd, &lengths).into()))
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
