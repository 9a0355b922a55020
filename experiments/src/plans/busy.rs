//! A busy server under each way to hold TIME-WAIT, for Faber, Touch & Yue 1999. The modules have a
//! server and its clients ([`lan`]), the work of WebSTONE's clients ([`web`], [`webstone`]), and
//! the lists in which other systems look for a connection ([`blocks`]).

pub(super) mod blocks;
pub(super) mod lan;
pub(super) mod web;
pub(super) mod webstone;

use lightwait_core::Config;
use lightwait_core::config::{TimeWaitState, Wish};

/// Bytes of an mbuf (MSIZE of 4.4BSD), times the mbufs of a connection: `inpcb` and `tcpcb`. The
/// paper's Table 2 has 722.7 KB for 49.09 connections a second: 251 bytes for each of a minute.
pub(super) const PAPER_BLOCK_BYTES: f64 = 256.0;

/// The end that holds TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// The end that closes first: the server.
    Unmodified,
    /// The client takes it over: the paper's TCP modification.
    Swapped,
    /// The client, by agreement: the paper proposes it, and has not built it.
    Negotiated,
    /// The client, since it closes first: HTTP with CLIENT_CLOSE.
    ClientCloses,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            System::Unmodified => "unmodified",
            System::Swapped => "TCP (swap)",
            System::Negotiated => "negotiated",
            System::ClientCloses => "HTTP (client closes)",
        }
    }

    /// Applies this system to both ends' configurations. The server keeps whole blocks or records.
    pub(super) fn apply(self, server: &mut Config, clients: &mut [Config], state: TimeWaitState) {
        server.tcp.time_wait.state = state;
        for client in clients.iter_mut() {
            client.tcp.time_wait.close_swap = self == System::Swapped;
        }
        if self == System::Negotiated {
            server.tcp.time_wait.negotiate = Wish::Client;
            clients.iter_mut().for_each(|client| client.tcp.time_wait.negotiate = Wish::Client);
        }
    }
}

/// The mean of `values`, and their standard deviation.
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation - f64::sqrt(32.0 / 7.0)).abs() < 1e-12, "{deviation}");
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }
}
