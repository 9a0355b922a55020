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
