//! The calls that set and read socket options.

use super::Arguments;
use crate::ast::Expr;
use crate::play::{Output, Player, Prepared, Returned};

pub(super) fn getsockopt(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(5)?;
    let fd = arguments.fd(0, player)?;
    let (level, name) = (arguments.int(1)?, arguments.int(2)?);
    let wanted = arguments.get(3)?.clone();
    let length = u32::try_from(arguments.bracketed_int(4)?).map_err(|_| "negative optlen")?;
    let prepared = Prepared::new(move |door| {
        let mut value = vec![0; length as usize + 1];
        let (answer, written) = door.getsockopt(fd, level, name, &mut value, length);
        Returned { answer, output: Output::Bytes(value, written) }
    });
    Ok(prepared.then(move |_, returned| {
        let Output::Bytes(value, written) = &returned.output else { return Ok(()) };
        if *written != length {
            return Err(format!("Bad getsockopt optlen: expected: {length} actual: {written}"));
        }
        check_value(&wanted, value.get(..length as usize).unwrap_or(value))
    }))
}

fn check_value(wanted: &Expr, actual: &[u8]) -> Result<(), String> {
    let expected = match wanted {
        Expr::Text(bytes) => bytes.clone(),
        Expr::In6Addr(octets) => octets.to_vec(),
        Expr::List(_) if actual.len() != 4 => {
            return Err(format!("Unsupported getsockopt optlen: {}", actual.len()));
        }
        Expr::List(_) => number(wanted)?.to_ne_bytes().to_vec(),
        other => return Err(format!("unsupported getsockopt value type: {other:?}")),
    };
    if expected.len() != actual.len() {
        let (expected, actual) = (expected.len(), actual.len());
        return Err(format!("Bad getsockopt optval: {expected} bytes expected, optlen {actual}"));
    }
    if expected == actual {
        return Ok(());
    }
    Err(match (wanted, <[u8; 4]>::try_from(actual)) {
        (Expr::List(_), Ok(bytes)) => format!(
            "Bad getsockopt optval: expected: {} actual: {}",
            number(wanted)?,
            i32::from_ne_bytes(bytes)
        ),
        _ => format!(
            "Bad getsockopt optval: expected: '{}' actual: '{}'",
            expected.escape_ascii(),
            actual.escape_ascii()
        ),
    })
}

/// The number of `[n]`.
fn number(list: &Expr) -> Result<i32, String> {
    Arguments(std::slice::from_ref(list)).bracketed_int(0)
}

pub(super) fn setsockopt(
    player: &mut Player,
    arguments: &Arguments<'_>,
) -> Result<Prepared, String> {
    arguments.count(5)?;
    let fd = arguments.fd(0, player)?;
    let (level, name) = (arguments.int(1)?, arguments.int(2)?);
    let length = arguments.int(4)?.cast_unsigned();
    let value = match arguments.get(3)? {
        Expr::Linger { onoff, linger } => [onoff.to_ne_bytes(), linger.to_ne_bytes()].concat(),
        Expr::Text(bytes) => {
            let mut bytes = bytes.clone();
            bytes.push(0);
            bytes
        }
        Expr::In6Addr(octets) => octets.to_vec(),
        list @ Expr::List(_) => number(list)?.to_ne_bytes().to_vec(),
        other => return Err(format!("unsupported setsockopt value type: {other:?}")),
    };
    Ok(Prepared::new(move |door| door.setsockopt(fd, level, name, &value, length).into()))
}
