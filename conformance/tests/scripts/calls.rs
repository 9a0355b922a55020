//! The system calls of scripts: evaluates the arguments, makes the call, and judges the result.

mod evaluate;
mod message;
mod options;
mod plain;
mod polling;
mod transfer;

use std::net::SocketAddr;

use crate::ast::{CallSpec, Expr};
use crate::door::Answer;
use crate::play::{Now, Player, Prepared};
use crate::symbols;

/// Make a call of the script at its time.
pub(crate) fn run(player: &mut Player, call: &CallSpec, now: &Now) -> Result<(), String> {
    let is_idle = player.await_idle()?;
    if !is_idle && call.end.is_some() {
        return Err("blocking call while another blocking call is in progress".into());
    }
    player.wait_for(now, "system call start")?;
    let arguments: Vec<Expr> =
        call.arguments.iter().map(evaluate::evaluate).collect::<Result<_, _>>()?;
    let prepared = prepare(player, call, &Arguments(&arguments))?;
    if call.end.is_some() {
        return player.block(call, now, prepared);
    }
    let returned = (prepared.run)(&player.door);
    check_answer(call, prepared.is_fd, returned.answer)?;
    (prepared.judge)(player, &returned)
}

/// Whether result and errno are those of the script.
pub(crate) fn check_answer(call: &CallSpec, is_fd: bool, answer: Answer) -> Result<(), String> {
    let expected = i64::from(result(call)?);
    let actual = i64::from(int(answer.value));
    let but_got =
        || format!("but got {actual} with errno {} ({})", answer.errno, describe(answer.errno));
    if is_fd && expected >= 0 {
        if actual < 0 {
            return Err(format!("Expected non-negative result {}", but_got()));
        }
    } else if actual != expected {
        return Err(format!("Expected result {expected} {}", but_got()));
    }
    if let Some(name) = &call.errno {
        let wanted = symbols::number(name).ok_or_else(|| format!("unknown symbol: '{name}'"))?;
        if wanted != i64::from(answer.errno) {
            let (errno, text) = (answer.errno, describe(answer.errno));
            return Err(format!("Expected errno {wanted} ({name}) but got {errno} ({text})"));
        }
    }
    Ok(())
}

/// The return value that the script expects, which must be a plain number.
fn result(call: &CallSpec) -> Result<i32, String> {
    match &call.result {
        Expr::Integer(value) => evaluate::int32(*value),
        other => Err(format!("the result must be an integer, not {other:?}")),
    }
}

/// The return value of a call, as a C int holds it.
#[expect(clippy::cast_possible_truncation, reason = "as the original truncates it")]
fn int(value: i64) -> i32 {
    value as i32
}

fn describe(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// Evaluated arguments.
struct Arguments<'a>(&'a [Expr]);

impl Arguments<'_> {
    fn count(&self, expected: usize) -> Result<(), String> {
        if self.0.len() == expected {
            return Ok(());
        }
        Err(format!("Expected {expected} args but got {}", self.0.len()))
    }

    fn get(&self, index: usize) -> Result<&Expr, String> {
        self.0.get(index).ok_or_else(|| "Argument list too short".to_owned())
    }

    fn long(&self, index: usize) -> Result<i64, String> {
        evaluate::integer(self.get(index)?)
    }

    fn int(&self, index: usize) -> Result<i32, String> {
        evaluate::int32(self.long(index)?)
    }

    fn size(&self, index: usize) -> Result<usize, String> {
        usize::try_from(self.int(index)?).map_err(|_| "negative size".to_owned())
    }

    fn ellipsis(&self, index: usize) -> Result<(), String> {
        match self.get(index)? {
            Expr::Ellipsis => Ok(()),
            other => Err(format!("Bad type; actual: {other:?} expected: ellipsis")),
        }
    }

    /// `[n]`
    fn bracketed(&self, index: usize) -> Result<i64, String> {
        match self.get(index)? {
            Expr::List(list) => match list.as_slice() {
                [element] => evaluate::integer(element),
                _ => Err("Expected [<element>] but got multiple elements".into()),
            },
            other => Err(format!("Bad type; actual: {other:?} expected: list")),
        }
    }

    /// An address, in a language of ours; None: `...`, which is that of the configuration.
    fn address(&self, index: usize) -> Result<Option<SocketAddr>, String> {
        match self.get(index)? {
            Expr::Address(address) => Ok(Some(*address)),
            _ => self.ellipsis(index).map(|()| None),
        }
    }

    fn bracketed_int(&self, index: usize) -> Result<i32, String> {
        evaluate::int32(self.bracketed(index)?)
    }

    /// The live descriptor for the script's.
    fn fd(&self, index: usize, player: &mut Player) -> Result<i32, String> {
        player.descriptors.live(self.int(index)?)
    }

    /// Whether a buffer is given: `...`, or NULL.
    fn has_buffer(&self, index: usize) -> Result<bool, String> {
        match self.get(index)? {
            Expr::Ellipsis => Ok(true),
            Expr::Integer(0) => Ok(false),
            _ => Err("Expected ... or NULL for buffer".into()),
        }
    }
}

fn prepare(
    player: &mut Player,
    call: &CallSpec,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    match call.name.as_str() {
        "socket" => plain::socket(player, call, arguments),
        "bind" => plain::bind(player, arguments),
        "listen" => plain::listen(player, arguments),
        "accept" => plain::accept(player, call, arguments),
        "connect" => plain::connect(player, arguments),
        "close" => plain::close(player, arguments),
        "shutdown" => plain::shutdown(player, arguments),
        "fcntl" => plain::fcntl(player, arguments),
        "ioctl" => plain::ioctl(player, arguments),
        "open" => plain::open(call, arguments),
        "pipe" => plain::pipe(arguments),
        "cap_set" => plain::cap_set(arguments),
        "read" => transfer::read(player, arguments),
        "recv" => transfer::recv(player, arguments),
        "recvfrom" => transfer::recvfrom(player, arguments),
        "write" => transfer::write(player, arguments),
        "send" => transfer::send(player, arguments),
        "sendto" => transfer::sendto(player, arguments),
        "readv" => transfer::readv(player, arguments),
        "writev" => transfer::writev(player, arguments),
        "sendfile" => transfer::sendfile(player, arguments),
        "splice" => transfer::splice(player, arguments),
        "recvmsg" => message::recvmsg(player, arguments),
        "sendmsg" => message::sendmsg(player, arguments),
        "getsockopt" => options::getsockopt(player, arguments),
        "setsockopt" => options::setsockopt(player, arguments),
        "poll" => polling::poll(player, arguments),
        "epoll_create" => polling::epoll_create(call, arguments),
        "epoll_ctl" => polling::epoll_ctl(player, arguments),
        "epoll_wait" => polling::epoll_wait(player, arguments),
        name => Err(format!("Unknown system call: '{name}'")),
    }
}
