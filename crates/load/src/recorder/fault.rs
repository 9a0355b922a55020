//! The reasons for which a request got no answer.

use std::io;

/// A reason for which a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No process listens at that address and port.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer closed the connection before the answer was complete.
    Closed,
    /// No answer came in time.
    Timeout,
    /// There is no route to the peer.
    Unreachable,
    /// The answer is not HTTP/1.1, or is too large.
    Malformed,
    /// The TLS handshake failed, or the peer does not speak TLS.
    Tls,
    /// The source address and port were not available.
    Source,
    /// The process or the system has no file descriptor or memory left.
    Resources,
    /// The request was pending when the load ended.
    Unfinished,
    /// Any other reason.
    Other,
}

impl Fault {
    /// All reasons.
    pub const ALL: [Fault; 11] = [
        Fault::Refused,
        Fault::Reset,
        Fault::Closed,
        Fault::Timeout,
        Fault::Unreachable,
        Fault::Malformed,
        Fault::Tls,
        Fault::Source,
        Fault::Resources,
        Fault::Unfinished,
        Fault::Other,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Refused => "refused",
            Fault::Reset => "reset",
            Fault::Closed => "closed_early",
            Fault::Timeout => "timeout",
            Fault::Unreachable => "unreachable",
            Fault::Malformed => "malformed",
            Fault::Tls => "tls",
            Fault::Source => "source_address",
            Fault::Resources => "resources",
            Fault::Unfinished => "unfinished",
            Fault::Other => "other",
        }
    }

    /// The reason that a socket's error means.
    pub fn of(error: &io::Error) -> Fault {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionRefused => Fault::Refused,
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => Fault::Reset,
            Kind::UnexpectedEof => Fault::Closed,
            Kind::TimedOut => Fault::Timeout,
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => {
                Fault::Unreachable
            }
            Kind::InvalidData if is_tls(error) => Fault::Tls,
            Kind::InvalidData => Fault::Malformed,
            Kind::AddrInUse | Kind::AddrNotAvailable => Fault::Source,
            Kind::OutOfMemory | Kind::QuotaExceeded => Fault::Resources,
            // EMFILE, ENFILE and ENOBUFS have no kind of their own.
            _ if matches!(error.raw_os_error(), Some(23 | 24 | 105)) => Fault::Resources,
            _ => Fault::Other,
        }
    }
}

fn is_tls(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<tokio_rustls::rustls::Error>()).is_some()
}

/// The number of faults of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults([u64; Fault::ALL.len()]);

impl Faults {
    /// Counts `more` faults.
    pub fn count(&mut self, fault: Fault, more: u64) {
        self.0[fault as usize] += more;
    }

    /// Adds the counters of another load.
    pub fn add(&mut self, other: &Faults) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// The number of faults of that kind.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// The number of all faults.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The kinds that occurred, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        let all = Fault::ALL.iter().map(|fault| (*fault, self.of(*fault)));
        all.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_name_and_a_count_of_its_own() {
        let mut faults = Faults::default();
        for (count, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, count);
            faults.count(fault, count as u64);
        }
        faults.count(Fault::Refused, 1);
        let names: std::collections::HashSet<_> = Fault::ALL.map(Fault::name).into();
        assert_eq!((names.len(), faults.sum()), (11, 56));
        assert_eq!((faults.of(Fault::Refused), faults.of(Fault::Timeout)), (1, 3));
    }

    #[test]
    fn the_kernels_errors_are_told_apart() {
        for (errno, fault) in [
            (111, Fault::Refused),
            (104, Fault::Reset),
            (110, Fault::Timeout),
            (113, Fault::Unreachable),
            (98, Fault::Source),
            (99, Fault::Source),
            (24, Fault::Resources),
            (23, Fault::Resources),
            (105, Fault::Resources),
            (12, Fault::Resources),
            (1, Fault::Other),
        ] {
            assert_eq!(Fault::of(&io::Error::from_raw_os_error(errno)), fault, "{errno}");
        }
        assert_eq!(Fault::of(&io::ErrorKind::UnexpectedEof.into()), Fault::Closed);
    }
}
