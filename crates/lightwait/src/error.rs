//! The engine's errors as `io::Error`s, of the kinds that users of tokio's sockets expect.

use std::io;

use lightwait_core::Error;

/// The `io::Error` that stands for `error`, of a call or of any kind; its source is the [`Error`].
pub fn io_error(error: impl Into<Error>) -> io::Error {
    let error = error.into();
    let kind = match error {
        // Their text allocates nothing, since they are frequent and no failures.
        Error::WouldBlock => return io::ErrorKind::WouldBlock.into(),
        Error::ConnectionRefused => io::ErrorKind::ConnectionRefused,
        Error::ConnectionReset => io::ErrorKind::ConnectionReset,
        Error::ConnectionAborted => io::ErrorKind::ConnectionAborted,
        Error::TimedOut => io::ErrorKind::TimedOut,
        Error::HostUnreachable => io::ErrorKind::HostUnreachable,
        Error::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        Error::AddressInUse => io::ErrorKind::AddrInUse,
        Error::AddressNotAvailable => io::ErrorKind::AddrNotAvailable,
        Error::NotConnected => io::ErrorKind::NotConnected,
        Error::BrokenPipe => io::ErrorKind::BrokenPipe,
        Error::InvalidInput(_) => io::ErrorKind::InvalidInput,
        Error::Limit(_) => io::ErrorKind::QuotaExceeded,
        Error::PermissionDenied => io::ErrorKind::PermissionDenied,
        // It has no kind: callers look at its number.
        Error::MessageTooLong => return io::Error::from_raw_os_error(libc::EMSGSIZE),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::{ConnectError, ReadError, WriteError};

    #[test]
    fn an_error_keeps_its_kind_and_its_text() {
        let error = io_error(Error::ConnectionRefused);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), "connection refused");
        assert_eq!(io_error(ReadError::WouldBlock).kind(), io::ErrorKind::WouldBlock);
        assert_eq!(io_error(WriteError::WouldBlock).kind(), io::ErrorKind::WouldBlock);
        let reset = io_error(ReadError::Failed(Error::ConnectionReset));
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(io_error(ConnectError::Limit).kind(), io::ErrorKind::QuotaExceeded);
        let gone = io_error(WriteError::NoSuchConnection);
        assert_eq!(gone.to_string(), "invalid input: no such connection");
        let limit = io_error(Error::Limit("connections"));
        assert_eq!(limit.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(limit.to_string(), "limit reached: connections");
    }
}
