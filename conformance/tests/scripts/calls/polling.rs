//! The calls of poll and epoll.

use libc::{epoll_event, pollfd};

use super::plain::descriptor;
use super::{Arguments, evaluate, result};
use crate::ast::{CallSpec, EpollData, Expr};
use crate::play::{Output, Player, Prepared, Returned};

#[expect(clippy::cast_possible_truncation, reason = "poll's events are 16 bits")]
pub(super) fn poll(player: &mut Player, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(3)?;
    let Expr::List(list) = arguments.get(0)? else { return Err("expected a list".into()) };
    let mut fds = Vec::new();
    for entry in list {
        let Expr::Poll { fd, events, revents } = entry else {
            return Err(format!("Bad type; actual: {entry:?} expected: pollfd"));
        };
        let fd = player.descriptors.live(evaluate::int32(evaluate::integer(fd)?)?)?;
        let events = evaluate::integer(events)? as i16;
        fds.push(pollfd { fd, events, revents: evaluate::integer(revents)? as i16 });
    }
    if i64::try_from(fds.len()) != Ok(arguments.long(1)?) {
        return Err("nfds does not match the pollfd array".into());
    }
    let timeout = arguments.int(2)?;
    let expected: Vec<i16> = fds.iter().map(|entry| entry.revents).collect();
    let prepared = Prepared::new(move |door| {
        let answer = door.poll(&mut fds, timeout);
        Returned { answer, output: Output::Poll(fds) }
    });
    Ok(prepared.then(move |_, returned| {
        let Output::Poll(fds) = &returned.output else { return Ok(()) };
        for (index, (entry, expected)) in fds.iter().zip(expected).enumerate() {
            if entry.revents != expected {
                let actual = entry.revents;
                return Err(format!(
                    "Expected revents of {expected:#x} but got {actual:#x} for pollfd {index}"
                ));
            }
        }
        Ok(())
    }))
}

pub(super) fn epoll_create(call: &CallSpec, arguments: &Arguments<'_>) -> Result<Prepared, String> {
    arguments.count(1)?;
    let size = arguments.int(0)?;
    let script_fd = result(call)?;
    let prepared = Prepared::new(move |door| door.epoll_create(size).into());
    Ok(prepared.fd().then(move |player, returned| match descriptor(returned.answer) {
        Some(live_fd) => player.descriptors.add(script_fd, live_fd, None),
        None => Ok(()),
    }))
}

/// An event with its data; `of` is the script's descriptor that it must name, if it names one.
fn event(
    player: &mut Player,
    expression: &Expr,
    of: Option<i32>,
) -> Result<(epoll_event, EpollData), String> {
    let Expr::Epoll { events, data, value } = expression else {
        return Err(format!("Bad type; actual: {expression:?} expected: epollev"));
    };
    let events = evaluate::int32(evaluate::integer(events)?)?.cast_unsigned();
    let value = evaluate::integer(value)?;
    let number = match data {
        EpollData::Fd => {
            let script_fd = evaluate::int32(value)?;
            if of.is_some_and(|of| of != script_fd) {
                return Err("wrong fd specified in epoll_event".into());
            }
            u64::from(player.descriptors.live(script_fd)?.cast_unsigned())
        }
        EpollData::U32 => u64::from(evaluate::int32(value)?.cast_unsigned()),
        EpollData::Ptr | EpollData::U64 => value.cast_unsigned(),
    };
    Ok((epoll_event { events, u64: number }, *data))
}

pub(super) fn epoll_ctl(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(4)?;
    let (epoll, fd) = (arguments.fd(0, player)?, arguments.fd(2, player)?);
    let operation = arguments.int(1)?;
    let (event, _) = event(player, arguments.get(3)?, Some(arguments.int(2)?))?;
    Ok(Prepared::new(move |door| door.epoll_ctl(epoll, operation, fd, event).into()))
}

pub(super) fn epoll_wait(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(4)?;
    let epoll = arguments.fd(0, player)?;
    let (wanted, data) = event(player, arguments.get(1)?, None)?;
    let (count, timeout) = (arguments.int(2)?, arguments.int(3)?);
    let room = usize::try_from(count).unwrap_or(0).max(1);
    let prepared = Prepared::new(move |door| {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; room];
        let answer = door.epoll_wait(epoll, &mut events, count, timeout);
        Returned { answer, output: Output::Epoll(events) }
    });
    Ok(prepared.then(move |_, returned| {
        let Output::Epoll(events) = &returned.output else { return Ok(()) };
        let Some(actual) = events.first() else { return Ok(()) };
        // Copies, for the fields of a packed structure cannot be referred to.
        let (expected_events, actual_events) = (wanted.events, actual.events);
        if expected_events != actual_events {
            return Err(format!(
                "epoll_event->events does not match script: expected: {expected_events:#x} \
                 actual: {actual_events:#x}"
            ));
        }
        let mask = match data {
            EpollData::Fd | EpollData::U32 => u64::from(u32::MAX),
            EpollData::Ptr | EpollData::U64 => u64::MAX,
        };
        let (expected, actual) = (wanted.u64 & mask, actual.u64 & mask);
        if expected == actual {
            return Ok(());
        }
        Err(format!(
            "epoll_event->data does not match script: expected: {expected} actual: {actual}"
        ))
    }))
}
