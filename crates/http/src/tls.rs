//! TLS (RFC 8446, RFC 5246), by rustls with ring: what a server shows to its clients.
//!
//! ```text
//!   hyper ── RefusingStream ── TimeoutStream ── Secured ── byte stream
//!                            │          │
//!                        Phase: Handshake, then Idle, Head, Busy as without TLS
//! ```
//!
//! `Secured` lies beneath all that serves a connection, so that limits, timeouts, the access log
//! and the memory hold as they do without TLS. A handshake is the first thing that a connection
//! waits for: it has the time of a request's head.
//!
//! What a client may resume is sealed in a ticket that the client keeps (RFC 8446 §4.6.1), so that
//! sessions take no memory here. There is no early data: it could be played again.

mod sealed;
mod secured;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ParsedCertificate, ProducesTickets, ResolvesServerCert,
};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};

pub(crate) use sealed::Sealed;
pub(crate) use secured::Secured;
pub use secured::Tls;

/// The names of what may be spoken on top (RFC 7301 §6), the best first.
pub(crate) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// A certificate with its chain and its private key.
#[derive(Clone, Debug)]
pub struct Identity(Arc<CertifiedKey>);

/// What is wrong with a certificate or its key.
#[derive(Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// The certificates: there is none, or one is no X.509 certificate.
    Chain(String),
    /// The private key: there is none, or none of a kind that serves.
    Key(String),
    /// The key is not that of the first certificate.
    Mismatch,
}

impl fmt::Display for IdentityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityFault::Chain(text) | IdentityFault::Key(text) => f.write_str(text),
            IdentityFault::Mismatch => {
                f.write_str("the key is not that of the first certificate: give the pair")
            }
        }
    }
}

impl std::error::Error for IdentityFault {}

impl Identity {
    /// Reads a chain, the server's own certificate first, and its key, both in PEM (RFC 7468). The
    /// key is PKCS #8, PKCS #1 or SEC 1, without a password.
    ///
    /// # Errors
    /// The fault of the chain or of the key, as a text for people.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Identity, IdentityFault> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let certificates = certificates
            .map_err(|error| IdentityFault::Chain(format!("no certificates in PEM: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let is_locked = key.windows(9).any(|word| word == b"ENCRYPTED");
            IdentityFault::Key(match error {
                _ if is_locked => {
                    "the key has a password: `openssl pkey -in IN -out OUT` takes it off".to_owned()
                }
                rustls::pki_types::pem::Error::NoItemsFound => {
                    "there is no private key in it: give the file that says PRIVATE KEY".to_owned()
                }
                error => format!("no key in PEM: {error}"),
            })
        })?;
        Identity::new(certificates, key)
    }

    /// An identity of a certificate and its key, in DER; the key is PKCS #8.
    ///
    /// # Errors
    /// The fault of the certificate or of the key.
    pub fn from_der(certificate: Vec<u8>, key: Vec<u8>) -> Result<Identity, IdentityFault> {
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key);
        Identity::new(vec![CertificateDer::from(certificate)], PrivateKeyDer::Pkcs8(key))
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, IdentityFault> {
        let Some(own) = chain.first() else {
            let text = "there is no certificate in it: give the file that says CERTIFICATE";
            return Err(IdentityFault::Chain(text.to_owned()));
        };
        ParsedCertificate::try_from(own)
            .map_err(|error| IdentityFault::Chain(format!("no X.509 certificate: {error}")))?;
        let identity = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let identity = identity.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => IdentityFault::Mismatch,
            error => IdentityFault::Key(format!("a key of no kind that serves: {error}")),
        })?;
        Ok(Identity(Arc::new(identity)))
    }

    /// SHA-256 of the server's own certificate, as a client may show it.
    pub fn fingerprint(&self) -> [u8; 32] {
        let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
        let hash = suite.common.hash_provider.hash(&self.0.cert[0]);
        hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// True if the certificate is for a server of that name.
    fn is_for(&self, name: &ServerName<'_>) -> bool {
        let own = ParsedCertificate::try_from(&self.0.cert[0]);
        own.is_ok_and(|own| verify_server_name(&own, name).is_ok())
    }
}

/// The identities of a server.
#[derive(Debug)]
struct Shown(Vec<Identity>);

impl Shown {
    /// The first identity for a server of that name, or else the first of all.
    fn of(&self, name: Option<&str>) -> &Identity {
        let first = &self.0[0];
        let Some(name) = name.filter(|_| self.0.len() > 1) else { return first };
        let Ok(name) = ServerName::try_from(name) else { return first };
        self.0.iter().find(|identity| identity.is_for(&name)).unwrap_or(first)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()).0.clone())
    }
}

/// What a server shows to its clients. Clones share it, on any thread.
#[derive(Clone)]
pub struct Credentials(Arc<Held>);

struct Held {
    provider: Arc<CryptoProvider>,
    /// Seals the tickets. It outlives the identities: a client that was here may resume.
    tickets: Arc<dyn ProducesTickets>,
    now: Mutex<Arc<ServerConfig>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Shows the first of these identities that is for the name that a client asks for (RFC 6066
    /// §3), or else the first of all.
    ///
    /// # Errors
    /// If there is no identity, or no chance for the keys of tickets.
    pub fn new(identities: Vec<Identity>) -> Result<Credentials, Error> {
        let provider = Arc::new(ring::default_provider());
        let tickets = ring::Ticketer::new()?;
        let now = Mutex::new(config(&provider, &tickets, identities)?);
        Ok(Credentials(Arc::new(Held { provider, tickets, now })))
    }

    /// Shows other identities to the clients that come from now on.
    ///
    /// # Errors
    /// If there is none: what was shown is shown still.
    pub fn replace(&self, identities: Vec<Identity>) -> Result<(), Error> {
        let next = config(&self.0.provider, &self.0.tickets, identities)?;
        *self.0.now.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// What a connection that begins now has.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn config(
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<dyn ProducesTickets>,
    identities: Vec<Identity>,
) -> Result<Arc<ServerConfig>, Error> {
    if identities.is_empty() {
        return Err(Error::General("there is no certificate to show".to_owned()));
    }
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shown(identities)));
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    config.ticketer = tickets.clone();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

#[cfg(test)]
pub(crate) mod tests;
