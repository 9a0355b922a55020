//! TLS over another network: a connection is open when its handshake is done.

use std::env;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, HandshakeKind, RootCertStore,
    SignatureScheme,
};

use super::{Handshake, Network};

/// HTTP/2's name (RFC 9113 §3.1).
const HTTP_2: &[u8] = b"h2";
/// Servers whose sessions are kept: there is one.
const SESSIONS: usize = 8;
/// Bytes read and dropped at a time after the peer's close_notify.
const REST_BYTES: usize = 512;

/// The TLS configuration for one server. The handshake has the server's name (SNI) and asks for
/// HTTP/1.1 (ALPN), and resumes no session: each connection counts as a new client's. Clones share
/// one configuration.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    is_http2: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The issuers of certificates that are trusted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// These authorities.
    Authorities(RootCertStore),
    /// Every issuer.
    Anybody,
}

impl Trust {
    /// The authorities that this system trusts, or those of the file that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// A line that says why there are none.
    pub fn of_the_system() -> Result<Trust, String> {
        let found = rustls_native_certs::load_native_certs();
        if let Some(file) = env::var_os("SSL_CERT_FILE")
            && let Some(error) = found.errors.iter().find(|error| is_about(error, &file))
        {
            return Err(format!("SSL_CERT_FILE: {error}"));
        }
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added > 0 {
            return Ok(Trust::Authorities(store));
        }
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        Err(format!("no certificate of an authority is found here, or by SSL_CERT_FILE{why}"))
    }
}

impl Tls {
    /// The configuration for a server of that name, or address.
    ///
    /// # Errors
    /// If `host` is not a valid name.
    pub fn new(host: &str, trust: Trust) -> Result<Tls, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is not a name that a certificate can have"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring has the ciphers of both versions");
        let builder = match trust {
            Trust::Authorities(store) => builder.with_root_certificates(store),
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Credulous(provider)))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name, is_http2: false })
    }

    /// Asks for HTTP/2 alone.
    pub fn for_http2(self) -> Tls {
        let tls = self.with(|config| config.alpn_protocols = vec![HTTP_2.to_vec()]);
        Tls { is_http2: true, ..tls }
    }

    /// Resumes sessions where the server offers that, as a client does that comes again.
    pub fn resuming(self) -> Tls {
        self.with(|config| config.resumption = Resumption::in_memory_sessions(SESSIONS))
    }

    fn with(self, change: impl FnOnce(&mut ClientConfig)) -> Tls {
        let mut config = ClientConfig::clone(self.connector.config());
        change(&mut config);
        Tls { connector: TlsConnector::from(Arc::new(config)), ..self }
    }
}

/// True if that file could not be read.
fn is_about(error: &rustls_native_certs::Error, file: &OsStr) -> bool {
    matches!(&error.kind, rustls_native_certs::ErrorKind::Io { path, .. } if path == file)
}

/// A user's description of a TLS error, if `error` is one.
pub fn explain(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(error) => {
            let why = match error {
                // An authority that is trusted may have the name of the one that signed it.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "it is signed by nobody who is trusted here; SSL_CERT_FILE can name who signed \
                     it"
                    .to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "it has expired".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "it is not valid yet; see the clock of this machine".to_owned()
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    format!("it is another server's: {error}")
                }
                _ if is_of_an_authority(error) => {
                    "it is an authority's own, as `openssl req -x509` makes them; a server's takes \
                     `-addext basicConstraints=critical,CA:FALSE`"
                        .to_owned()
                }
                _ => error.to_string(),
            };
            format!("its certificate is not accepted: {why} (--insecure accepts any)")
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; is it http://?".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!("it refuses the TLS handshake: {alert:?}"),
        _ => format!("TLS: {error}"),
    })
}

/// True if a server shows the certificate of an authority. rustls has no name for that error.
fn is_of_an_authority(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else { return false };
    other.to_string().contains("CaUsedAsEndEntity")
}

/// A network with TLS over each of its connections.
#[derive(Clone, Debug)]
pub struct Secured<N> {
    network: N,
    tls: Tls,
}

impl<N> Secured<N> {
    /// Puts TLS over that network.
    pub fn new(network: N, tls: Tls) -> Secured<N> {
        Secured { network, tls }
    }
}

impl<N: Network> Network for Secured<N> {
    type Stream = SecuredStream<N::Stream>;

    async fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Self::Stream> {
        let stream = self.network.connect(from, to).await?;
        let opened = self.network.now();
        let stream = self.tls.connector.connect(self.tls.name.clone(), stream).await?;
        let session = stream.get_ref().1;
        if self.tls.is_http2 && session.alpn_protocol() != Some(HTTP_2) {
            let why = io::Error::other("the server does not speak HTTP/2");
            return Err(why);
        }
        let handshake = Handshake {
            is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            took: self.network.now().saturating_sub(opened),
        };
        Ok(SecuredStream(stream, handshake))
    }

    fn handshake(stream: &Self::Stream) -> Option<Handshake> {
        Some(stream.1)
    }

    fn now(&self) -> Duration {
        self.network.now()
    }

    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static {
        self.network.sleep_until(when)
    }

    fn alarm(&self, when: Duration) -> impl Future<Output = io::Result<()>> {
        self.network.alarm(when)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.network.spawn(task);
    }
}

/// A connection with TLS. It ends when the connection below ends, not at the peer's close_notify:
/// else the load would close first, and keep the TIME-WAIT.
#[derive(Debug)]
pub struct SecuredStream<S>(TlsStream<S>, Handshake);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for SecuredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut rest = [0; REST_BYTES];
            let mut rest = ReadBuf::new(&mut rest);
            ready!(Pin::new(self.0.get_mut().0).poll_read(context, &mut rest))?;
            if rest.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SecuredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Accepts any certificate, if the server has its key.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
