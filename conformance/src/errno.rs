//! Error numbers, with the values of Linux.

use lightwait_core::{AcceptError, ConnectError, Error, ReadError, WriteError};

/// A value of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub libc::c_int);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub const $name: Errno = Errno(libc::$name);
            )*
        }
    };
}

names! {
    EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF ECONNABORTED ECONNREFUSED
    ECONNRESET EDESTADDRREQ EDOM EEXIST EFAULT EHOSTUNREACH EINPROGRESS EINTR EINVAL EISCONN ELOOP
    EMSGSIZE ENETUNREACH ENOBUFS ENODEV ENOENT ENOPROTOOPT ENOTCONN ENOTSOCK ENOTTY EOPNOTSUPP
    EPERM EPIPE EPROTONOSUPPORT ESOCKTNOSUPPORT ESPIPE ETIMEDOUT
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::WouldBlock => Errno::EAGAIN,
            Error::ConnectionRefused => Errno::ECONNREFUSED,
            Error::ConnectionReset => Errno::ECONNRESET,
            Error::ConnectionAborted => Errno::ECONNABORTED,
            Error::TimedOut => Errno::ETIMEDOUT,
            Error::HostUnreachable => Errno::EHOSTUNREACH,
            Error::NetworkUnreachable => Errno::ENETUNREACH,
            Error::AddressInUse => Errno::EADDRINUSE,
            Error::AddressNotAvailable => Errno::EADDRNOTAVAIL,
            Error::NotConnected => Errno::ENOTCONN,
            Error::BrokenPipe => Errno::EPIPE,
            Error::MessageTooLong => Errno::EMSGSIZE,
            Error::PermissionDenied => Errno::EACCES,
            Error::Limit(_) => Errno::ENOBUFS,
            // `Error` may grow: an error without a number of its own is the caller's mistake.
            _ => Errno::EINVAL,
        }
    }
}

/// A call's own error has the number of the [`Error`] that it converts to.
macro_rules! numbered_as_error {
    ($($name:ty),*) => {$(
        impl From<$name> for Errno {
            fn from(error: $name) -> Errno {
                Error::from(error).into()
            }
        }
    )*};
}

numbered_as_error!(AcceptError, ConnectError, ReadError, WriteError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_the_number_that_linux_gives_it() {
        let table = [
            (Error::WouldBlock, libc::EWOULDBLOCK),
            (Error::ConnectionRefused, libc::ECONNREFUSED),
            (Error::ConnectionReset, libc::ECONNRESET),
            (Error::ConnectionAborted, libc::ECONNABORTED),
            (Error::TimedOut, libc::ETIMEDOUT),
            (Error::HostUnreachable, libc::EHOSTUNREACH),
            (Error::NetworkUnreachable, libc::ENETUNREACH),
            (Error::AddressInUse, libc::EADDRINUSE),
            (Error::AddressNotAvailable, libc::EADDRNOTAVAIL),
            (Error::NotConnected, libc::ENOTCONN),
            (Error::BrokenPipe, libc::EPIPE),
            (Error::MessageTooLong, libc::EMSGSIZE),
            (Error::PermissionDenied, libc::EACCES),
            (Error::InvalidInput("nothing"), libc::EINVAL),
            (Error::Limit("connections"), libc::ENOBUFS),
        ];
        for (error, number) in table {
            assert_eq!(Errno::from(error).0, number, "{error}");
        }
    }
}
