//! The calls sendmsg and recvmsg, with control messages.

use super::plain::{Peer, note_connect};
use super::transfer::{carries_datagrams, check_pattern, vectors};
use super::{Arguments, evaluate};
use crate::ast::{Expr, MessageExpr};
use crate::door::Message;
use crate::play::{Output, Player, Prepared, Returned};

/// The length of `struct cmsghdr`, and to what control messages are aligned.
const HEADER_BYTES: usize = 16;
const ALIGN: usize = 8;

fn message<'a>(arguments: &'a Arguments<'_>) -> Result<&'a MessageExpr, String> {
    arguments.count(3)?;
    let Expr::Message(message) = arguments.get(1)? else { return Err("expected a msghdr".into()) };
    if i64::try_from(message.vectors.len()) != Ok(message.vector_count) {
        return Err("msg_iovlen does not match the iovec array".into());
    }
    Ok(message)
}

pub(super) fn recvmsg(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let fd = arguments.fd(0, player)?;
    let message = message(arguments)?;
    let lengths = vectors(&message.vectors)?;
    let expected_flags = evaluate::int32(evaluate::integer(&message.flags)?)?;
    let expected = control(&message.control)?;
    let flags = arguments.int(2)?;
    let room = expected.clone();
    let is_datagram = carries_datagrams(player, arguments)?;
    let prepared = Prepared::new(move |door| {
        let (answer, message) = door.recvmsg(fd, &lengths, room, expected_flags, flags);
        Returned { answer, output: Output::Message(message) }
    });
    Ok(prepared.then(move |_, returned| {
        let Output::Message(Message { flags, control, bytes }) = &returned.output else {
            return Ok(());
        };
        if is_datagram {
            let read = usize::try_from(returned.answer.value).unwrap_or(0).min(bytes.len());
            check_pattern(&bytes[..read])?;
        }
        if *flags != expected_flags {
            return Err(format!("Expected msg_flags {expected_flags:#010x} but got {flags:#010x}"));
        }
        check_control(&expected, control)
    }))
}

pub(super) fn sendmsg(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    let fd = arguments.fd(0, player)?;
    let message = message(arguments)?;
    let lengths = vectors(&message.vectors)?;
    if evaluate::integer(&message.flags)? != 0 {
        return Err("sendmsg ignores msg_flags field in msghdr".into());
    }
    let control = control(&message.control)?;
    let flags = arguments.int(2)?;
    let address = note_connect(player, arguments.int(0)?, Peer::Configured)?;
    let address = address.ok_or("an address is needed")?;
    let is_datagram = carries_datagrams(player, arguments)?;
    Ok(Prepared::new(move |door| {
        door.sendmsg(fd, (&lengths, is_datagram), control, address, flags).into()
    }))
}

/// Control messages in C's layout.
fn control(list: &[Expr]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for entry in list {
        let Expr::Control { level, kind, data } = entry else {
            return Err(format!("Bad type; actual: {entry:?} expected: cmsg"));
        };
        let level = evaluate::int32(evaluate::integer(level)?)?;
        let kind = evaluate::int32(evaluate::integer(kind)?)?;
        let data = control_data(level, data)?;
        bytes.extend((HEADER_BYTES + data.len()).to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    }
    Ok(bytes)
}

fn control_data(level: i32, data: &Expr) -> Result<Vec<u8>, String> {
    match data {
        Expr::Integer(value) => Ok(evaluate::int32(*value)?.to_ne_bytes().to_vec()),
        // Ours alone: the bytes of any structure.
        Expr::Text(bytes) => Ok(bytes.clone()),
        Expr::Timestamp { seconds, nanoseconds } => {
            let mut bytes = [seconds.to_ne_bytes(), nanoseconds.to_ne_bytes()].concat();
            bytes.resize(48, 0);
            Ok(bytes)
        }
        Expr::ExtendedError(members) => {
            let numbers: Vec<i32> = members
                .iter()
                .map(|member| evaluate::integer(member).and_then(evaluate::int32))
                .collect::<Result<_, _>>()?;
            let [errno, origin, kind, code, info, data] = numbers.as_slice() else {
                return Err("sock_extended_err has six members".into());
            };
            let mut bytes = errno.to_ne_bytes().to_vec();
            for byte in [origin, kind, code] {
                bytes.push(u8::try_from(*byte).map_err(|_| "a byte of sock_extended_err")?);
            }
            bytes.push(0);
            bytes.extend(info.to_ne_bytes());
            bytes.extend(data.to_ne_bytes());
            // The address of the offender stands behind it.
            bytes.resize(bytes.len() + if level == libc::SOL_IP { 16 } else { 28 }, 0);
            Ok(bytes)
        }
        other => Err(format!("Unrecognized type for cmsg_data: {other:?}")),
    }
}

/// Level, kind and data of each control message.
fn split(bytes: &[u8]) -> Vec<(i32, i32, &[u8])> {
    let mut messages = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
        let (length, rest) = header.split_at(8);
        let length = usize::from_ne_bytes(length.try_into().unwrap_or_default());
        let Some(data) = bytes.get(at + HEADER_BYTES..at.saturating_add(length)) else { break };
        let number =
            |at: usize| i32::from_ne_bytes(rest[at..at + 4].try_into().unwrap_or_default());
        messages.push((number(0), number(4), data));
        at += length.next_multiple_of(ALIGN);
    }
    messages
}

fn check_control(expected: &[u8], actual: &[u8]) -> Result<(), String> {
    let (expected, actual) = (split(expected), split(actual));
    if expected.len() != actual.len() {
        return Err(format!("expected {} cmsgs, received {}", expected.len(), actual.len()));
    }
    for (index, (wanted, got)) in expected.into_iter().zip(actual).enumerate() {
        let is_error = matches!(
            (wanted.0, wanted.1),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        // The address behind an extended error is not compared.
        let length = if is_error { 16 } else { wanted.2.len() };
        let same = (wanted.0, wanted.1, wanted.2.len()) == (got.0, got.1, got.2.len())
            && wanted.2.get(..length) == got.2.get(..length);
        if !same {
            return Err(format!("Bad cmsg {index}: expected={wanted:?} actual={got:?}"));
        }
    }
    Ok(())
}
