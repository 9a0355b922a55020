//! The engine's errors as `io::Error`s, of the kinds that users of tokio's sockets expect.

use std::io;

use lightwait_core::Error;

/// The `io::Error` that stands for `error`; its source is the error itself.
pub fn io_error(error: Error) -> io::Error {
    let kind = match error {
        // Their text allocates nothing: these are no failures, but daily bread.
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
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_and_its_text() {
        let error = io_error(Error::ConnectionRefused);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), "connection refused");
        assert_eq!(io_error(Error::WouldBlock).kind(), io::ErrorKind::WouldBlock);
        let limit = io_error(Error::Limit("connections"));
        assert_eq!(limit.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(limit.to_string(), "limit reached: connections");
    }
}
