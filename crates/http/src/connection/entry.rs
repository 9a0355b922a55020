//! How connections come into a server, and its limits on them.

use std::net::SocketAddr;

use super::secured::HttpsPolicy;
use super::{Handler, Server};
use crate::config::ServerConfig;
use crate::limits::admission::{Admission, CONNECTION_BYTES, Entry, Refusal, Tally};

impl<H: Handler> Server<H> {
    /// Admits a connection of `peer`, which counts against the limits while the admission lives.
    ///
    /// # Errors
    /// If there are too many connections, of all or of that client, or too little memory. The
    /// caller should reset the connection; the server has counted it.
    pub fn admit(&self, peer: SocketAddr) -> Result<Admission, Refusal> {
        self.admissions.admit(peer.ip(), self.clock.timer.now())
    }

    /// Admits a connection of `peer` as [`admit`](Server::admit) does, or asks the servers that
    /// share the [`Clients`](crate::Clients) for a place of its client's.
    pub fn enter(&self, peer: SocketAddr) -> Entry {
        self.admissions.enter(peer.ip(), CONNECTION_BYTES, &self.clock.timer)
    }

    /// Closes connections that wait for their peers where a client of theirs [comes](Server::enter)
    /// to another server. Never returns.
    pub fn give_places(&self) -> impl Future<Output = ()> + use<H> {
        let (admissions, timer) = (self.admissions.clone(), self.clock.timer.clone());
        async move { admissions.give_places(timer).await }
    }

    /// Holds from now on to the limits of `config` on connections, on those of a client and on
    /// responses in flight, and sends clients to HTTPS as it says. Connections that wait close
    /// until there are as few as may be.
    pub fn reconfigure(&self, config: &ServerConfig) {
        self.admissions.set_limits(config, self.clock.timer.now());
        self.https.set(HttpsPolicy::of(config));
    }

    /// Connections inside, and how many there may be.
    pub fn connections(&self) -> (usize, usize) {
        self.admissions.connections()
    }

    /// How many connections were refused, and how many reset because their peers took too little.
    pub fn tally(&self) -> Tally {
        self.admissions.tally()
    }
}
