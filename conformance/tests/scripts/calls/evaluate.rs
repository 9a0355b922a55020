//! Evaluates arguments: symbols become numbers, and escapes bytes.

use crate::ast::{Expr, MessageExpr};
use crate::symbols;

/// The expression with every symbol resolved.
pub(super) fn evaluate(expression: &Expr) -> Result<Expr, String> {
    let boxed = |inner: &Expr| evaluate(inner).map(Box::new);
    let all = |list: &[Expr]| list.iter().map(evaluate).collect::<Result<Vec<_>, _>>();
    Ok(match expression {
        Expr::Word(word) => {
            let number = symbols::number(word);
            Expr::Integer(number.ok_or_else(|| format!("unknown symbol: '{word}'"))?)
        }
        Expr::Text(text) => Expr::Text(unescape(text)?),
        Expr::Or(left, right) => {
            Expr::Integer(integer(&evaluate(left)?)? | integer(&evaluate(right)?)?)
        }
        Expr::Entry(key, value) => Expr::Entry(boxed(key)?, boxed(value)?),
        Expr::List(list) => Expr::List(all(list)?),
        Expr::Poll { fd, events, revents } => {
            Expr::Poll { fd: boxed(fd)?, events: boxed(events)?, revents: boxed(revents)? }
        }
        Expr::Epoll { events, data, value } => {
            Expr::Epoll { events: boxed(events)?, data: *data, value: boxed(value)? }
        }
        Expr::Message(message) => Expr::Message(Box::new(MessageExpr {
            vectors: all(&message.vectors)?,
            vector_count: message.vector_count,
            flags: evaluate(&message.flags)?,
            control: all(&message.control)?,
        })),
        Expr::Control { level, kind, data } => {
            Expr::Control { level: boxed(level)?, kind: boxed(kind)?, data: boxed(data)? }
        }
        Expr::ExtendedError(members) => Expr::ExtendedError(all(members)?),
        other => other.clone(),
    })
}

/// The number that an evaluated expression is.
pub(super) fn integer(expression: &Expr) -> Result<i64, String> {
    match expression {
        Expr::Integer(value) => Ok(*value),
        other => Err(format!("Bad type; actual: {other:?} expected: integer")),
    }
}

/// A number of 32 bits, signed or not.
#[expect(clippy::cast_possible_truncation, reason = "an unsigned one wraps, as in C")]
pub(super) fn int32(value: i64) -> Result<i32, String> {
    if value > i64::from(u32::MAX) || value < i64::from(i32::MIN) {
        return Err(format!("Value out of range for 32-bit integer: {value}"));
    }
    Ok(value as i32)
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(b'f') => 12,
            Some(escaped @ (b'\\' | b'"')) => escaped,
            Some(b'x') => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = String::from_utf8_lossy(&digits).into_owned();
                u8::from_str_radix(&digits, 16)
                    .map_err(|_| format!("invalid hex escape (\\xhh): '\\x{digits}'"))?
            }
            other => return Err(format!("unsupported escape code: {other:?}")),
        });
    }
    Ok(bytes)
}
