//! Connections over TLS, and what a server says of TLS in its answers.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::rt::{Read, Write};

use super::h2::Http2;
use super::{Handler, Server};
use crate::answer::page;
use crate::body::Body;
use crate::config::ServerConfig;
use crate::connection::timeouts::Phase;
use crate::control::Control;
use crate::head::authority;
use crate::limits::admission::{CONNECTION_BYTES, Entry, TLS_BYTES};
use crate::tls::{Credentials, Secured, Tls};

/// HTTPS's own port.
const HTTPS_PORT: u16 = 443;

/// Why a connection over TLS failed.
#[derive(Debug)]
pub enum SecuredError {
    /// The handshake failed.
    Handshake(String),
    /// What followed it failed.
    Http(hyper::Error),
}

impl fmt::Display for SecuredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecuredError::Handshake(why) => write!(f, "the TLS handshake failed: {why}"),
            SecuredError::Http(error) => error.fmt(f),
        }
    }
}

impl Error for SecuredError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SecuredError::Handshake(_) => None,
            SecuredError::Http(error) => error.source(),
        }
    }
}

impl<H: Handler> Server<H> {
    /// Admits a connection of `peer` that begins with a TLS handshake, as [`Server::enter`] does.
    pub fn enter_secured(&self, peer: SocketAddr) -> Entry {
        self.admissions.enter(peer.ip(), CONNECTION_BYTES + TLS_BYTES, &self.clock.timer)
    }

    /// Serves one connection until it is over, over TLS with these credentials: what
    /// [`Server::serve_controlled`] does, once the handshake is made. A handshake must be complete
    /// within [`ServerConfig::header_timeout`].
    ///
    /// # Errors
    /// The handshake failed, which [`Server::tls`] counts; or those of
    /// [`Server::serve_controlled`].
    pub fn serve_secured<I, C>(
        self: Rc<Self>,
        io: I,
        control: C,
        peer: SocketAddr,
        credentials: &Credentials,
    ) -> impl Future<Output = Result<(), SecuredError>> + use<H, I, C>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Clone + Unpin,
    {
        let charge = self.admissions.charge_connection(TLS_BYTES);
        let phase = Phase::new(self.clock.timer.now());
        let (config, timer) = (credentials.current(), self.clock.timer.clone());
        let admissions = self.admissions.clone();
        let made = Secured::new((io, control), config, phase.clone(), timer, admissions);
        let running = match made {
            Ok((stream, sealed)) => {
                let told = sealed.clone();
                Ok((self.run((stream, sealed), phase, peer, true), told))
            }
            // A configuration that no session can have: the stream is dropped.
            Err(error) => {
                self.admissions.count_tls(|tls| tls.failed_broken += 1);
                Err(SecuredError::Handshake(error.to_string()))
            }
        };
        async move {
            let _charge = charge;
            let (running, told) = running?;
            let outcome = running.await;
            match told.failure() {
                Some(why) => Err(SecuredError::Handshake(why)),
                None => outcome.map_err(SecuredError::Http),
            }
        }
    }

    /// Serves one connection over a stream without TLS, whose client speaks HTTP/2 from the
    /// beginning (RFC 9113 §3.3). See [`Server::serve_controlled`].
    ///
    /// # Errors
    /// Those of [`Server::serve_controlled`].
    pub fn serve_http2<I, C>(
        self: Rc<Self>,
        io: I,
        control: C,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<(), hyper::Error>> + use<H, I, C>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Clone + Unpin,
    {
        let now = self.clock.timer.now();
        let phase = Phase::new(now);
        phase.on_secured(now, true);
        self.run((io, control), phase, peer, false)
    }

    /// What came over HTTP/2, and what was refused of it.
    pub fn http2(&self) -> Http2 {
        self.admissions.http2()
    }

    /// How many TLS handshakes were made, and how many failed.
    pub fn tls(&self) -> Tls {
        self.admissions.tls()
    }
}

/// What a server says of HTTPS to its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpsPolicy {
    redirect_to: Option<u16>,
    strict_transport: Option<Duration>,
}

impl HttpsPolicy {
    pub(super) fn of(config: &ServerConfig) -> HttpsPolicy {
        let ServerConfig { redirect_to, strict_transport, .. } = *config;
        HttpsPolicy { redirect_to, strict_transport }
    }

    /// The answer to a request that came without TLS, where it should not have: the same over TLS.
    /// `None` if such requests are served.
    pub(super) fn redirect<B>(self, request: &Request<B>) -> Option<Response<Body>> {
        let port = self.redirect_to?;
        let headers = request.headers();
        let Some(authority) = authority(request.uri(), headers) else {
            let why =
                "The request names no host to find over HTTPS: ask for https:// and the host.";
            return Some(page(headers, StatusCode::BAD_REQUEST, why));
        };
        let host = authority.host();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let path = if path == "*" { "/" } else { path };
        let to = match port {
            HTTPS_PORT => format!("https://{host}{path}"),
            port => format!("https://{host}:{port}{path}"),
        };
        let Ok(location) = HeaderValue::from_str(&to) else {
            let why = "The request's target cannot be asked for over HTTPS.";
            return Some(page(headers, StatusCode::BAD_REQUEST, why));
        };
        // A request that may do more than ask keeps its method (RFC 9110 §15.4.9).
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
        let status =
            if is_safe { StatusCode::MOVED_PERMANENTLY } else { StatusCode::PERMANENT_REDIRECT };
        let mut response = page(headers, status, &format!("This server answers at {to} alone."));
        response.headers_mut().insert(header::LOCATION, location);
        Some(response)
    }

    /// Says that a browser must ask over TLS alone, if the server says so (RFC 6797 §7.1).
    pub(super) fn say_strict_transport(self, headers: &mut HeaderMap) {
        if let Some(age) = self.strict_transport
            && let Ok(value) = HeaderValue::from_str(&format!("max-age={}", age.as_secs()))
        {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
        }
    }
}
