//! Every knob of the server and of the file service: its default, its unit, and why.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::files::path::RelativePath;
use crate::files::{CacheRule, Passwords};

/// Limits and timeouts of connections.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// A request's head must be complete this long after its first byte, or a slow sender would
    /// hold a connection for ever. 15 s.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this long. 60 s: less than browsers wait, so
    /// that the server decides.
    pub idle_timeout: Duration,
    /// A connection without a request frees what only requests need after this long (buffers and
    /// the parser: nine tenths of its memory), and takes it again at the next request's first byte.
    /// 1 s: longer than the pauses while a page loads.
    pub rest_after: Duration,
    /// A connection is reset when its peer takes no byte of a response for this long. 30 s.
    pub write_stall_timeout: Duration,
    /// A connection is reset when its peer takes fewer bytes of responses a second than this, over
    /// `min_rate_window`; 0: never. 1,000: a quarter of what GPRS carried.
    pub min_rate_bytes: u32,
    /// See `min_rate_bytes`. 60 s.
    pub min_rate_window: Duration,
    /// Connections at most; one counts until its peer has acknowledged every answer. For another
    /// one the connection closes that has waited longest for a request, or else is reset whose peer
    /// takes nothing; if there is none, the new one is reset. 65,536.
    pub max_connections: usize,
    /// Connections of one client at most (an IPv4 address, or an IPv6 network of 64 bits); for
    /// another one a connection of that client closes, likewise. Clients on the loopback are not
    /// counted. 32,768: a proxy or a NAT may stand before very many.
    pub max_client_connections: usize,
    /// Responses in flight at most; other requests are answered with 503. 65,536.
    pub max_responses: usize,
    /// A connection fails when a request's body brings no byte for this long. 15 s.
    pub read_stall_timeout: Duration,
    /// Requests that an HTTP/2 connection may have open at a time. 100, the least that RFC 9113
    /// §6.5.2 recommends.
    pub max_streams: u32,
    /// Bytes in a request's head, at most; beyond it 431 (RFC 6585 §5). 16 KiB, what Apache and
    /// nginx allow in all; at least 8 KiB, hyper's own least buffer.
    pub max_header_bytes: usize,
    /// Fields in a request's head, at most; beyond it 431. 100.
    pub max_header_fields: usize,
    /// Requests on one connection, at most; the last is answered with `Connection: close`. No
    /// limit.
    pub max_requests: Option<u64>,
    /// After closing our half with unread data of the peer's: how much of it is read and dropped,
    /// so that a reset does not overtake the response (RFC 9112 §9.6). 1 MiB.
    pub linger_bytes: usize,
    /// The time for that. 2 s.
    pub linger_timeout: Duration,
    /// Asks clients of HTTP/1.1 to close first ([`client_close`](crate::client_close)), on each
    /// answer after which the server would close. Off: a connection whose client does not know the
    /// option would stay open for the grace.
    pub ask_client: bool,
    /// What a connection without TLS is sent to: the port of HTTPS on the same host. `None`: such
    /// connections are served as well.
    pub redirect_to: Option<u16>,
    /// How long a browser that was here over TLS must ask over TLS alone (RFC 6797). `None`: says
    /// nothing of it.
    pub strict_transport: Option<Duration>,
    /// How long a client may take to close after it has all answers, if it said that it closes or
    /// was asked to; then the server closes first. 1 s: a round trip and a pause of the client's. A
    /// waiting connection takes much more memory than a TIME-WAIT.
    pub client_close_grace: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(60),
            rest_after: Duration::from_secs(1),
            write_stall_timeout: Duration::from_secs(30),
            min_rate_bytes: 1000,
            min_rate_window: Duration::from_secs(60),
            max_connections: 65_536,
            max_client_connections: 32_768,
            max_responses: 65_536,
            read_stall_timeout: Duration::from_secs(15),
            max_streams: 100,
            max_header_bytes: 16 << 10,
            max_header_fields: 100,
            max_requests: None,
            linger_bytes: 1 << 20,
            linger_timeout: Duration::from_secs(2),
            ask_client: false,
            redirect_to: None,
            strict_transport: None,
            client_close_grace: Duration::from_secs(1),
        }
    }
}

/// The behaviour of the file service, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesConfig {
    /// The file to serve for a directory that has it. `index.html`.
    pub index: String,
    /// Lists a directory that has no index; else 403. On.
    pub listing: bool,
    /// Serves and lists names that start with a dot. Off: a checkout's `.git` is not for everyone.
    /// `.well-known` (RFC 8615) is served either way.
    pub hidden: bool,
    /// Entries in a listing, at most; the page says when there are more. 10 000.
    pub max_listing: usize,
    /// Bytes in a request's path, at most; beyond it 414. 4096, the file system's own limit.
    pub max_path_bytes: usize,
    /// Ranges in one request, at most; a request for more gets the whole file (RFC 9110 §14.2
    /// allows it, against requests for many small ranges). 16.
    pub max_ranges: usize,
    /// Bytes read from a file at a time; a response holds at most two such chunks beside what the
    /// connection buffers. 128 KiB.
    pub chunk_bytes: usize,
    /// A request's body is read and dropped up to this size, so that the connection can be kept;
    /// beyond it the connection closes. 64 KiB.
    pub max_drain_bytes: usize,
    /// The time for that, at most. 5 s.
    pub drain_timeout: Duration,
    /// Bytes of files in memory, at most, with the cache's own memory for each: short files, and
    /// blocks of longer ones that are requested again, of `chunk_bytes` each. They are charged to
    /// the memory of responses, and given back where that is scarce. 64 MiB; 0: none.
    pub cache_bytes: usize,
    /// Longer files are not kept whole in memory: they are read a chunk at a time. 128 KiB, a
    /// chunk.
    pub cache_file_bytes: usize,
    /// Longer files that stay open, at most. 512; 0: none.
    pub cache_open: usize,
    /// How long a kept file is served before its path is looked up again. A request within that
    /// time may get the previous version, whole. 1 s: one look-up of each file a second costs
    /// nothing beside the requests for it. Zero keeps nothing.
    pub cache_age: Duration,
    /// Bytes of listings in memory, at most, while their directories do not change. 16 MiB: a
    /// listing of 10,000 entries takes about two.
    pub listing_cache_bytes: usize,
    /// Serves a file that lies compressed beside the plain one, as NAME.br, NAME.zst or NAME.gz, to
    /// clients that take the coding (RFC 9110 §12.5.3). Off: each costs a look-up.
    pub precompressed: bool,
    /// Compresses text of 512 bytes to 1 MiB for clients that take brotli or gzip, on a thread of
    /// the source's, two files at a time, and keeps the result with the files in memory. Off.
    pub compress: bool,
    /// The `Cache-Control` of files: of those that name a file the first one. None.
    pub cache_control: Vec<CacheRule>,
    /// The file to serve for a path that names nothing and has no extension: a page whose script
    /// knows the path. None: 404.
    pub fallback: Option<RelativePath>,
    /// The files to serve in place of our own pages, by the status that they tell. None.
    pub error_pages: Vec<(StatusCode, RelativePath)>,
    /// The origins whose scripts may read files, or `*` for all (Fetch §3.2). None.
    pub origins: Vec<HeaderValue>,
    /// Who may read what is under a path, over TLS alone (RFC 7617). None: everyone, everything.
    pub passwords: Vec<Passwords>,
    /// How long a listing is kept: files change without a change of their directory. 2 s; zero
    /// keeps none.
    pub listing_cache_age: Duration,
}

impl Default for FilesConfig {
    fn default() -> Self {
        FilesConfig {
            index: "index.html".to_owned(),
            listing: true,
            hidden: false,
            max_listing: 10_000,
            max_path_bytes: 4096,
            max_ranges: 16,
            chunk_bytes: 128 << 10,
            max_drain_bytes: 64 << 10,
            drain_timeout: Duration::from_secs(5),
            cache_bytes: 64 << 20,
            cache_file_bytes: 128 << 10,
            cache_open: 512,
            cache_age: Duration::from_secs(1),
            listing_cache_bytes: 16 << 20,
            listing_cache_age: Duration::from_secs(2),
            precompressed: false,
            compress: false,
            cache_control: Vec::new(),
            fallback: None,
            error_pages: Vec::new(),
            origins: Vec::new(),
            passwords: Vec::new(),
        }
    }
}

impl FilesConfig {
    /// How long clients may keep that file.
    pub(crate) fn cache_control(&self, path: &RelativePath) -> Option<&HeaderValue> {
        self.cache_control.iter().find(|rule| rule.names(path)).map(CacheRule::value)
    }

    /// The file that tells that status.
    pub(crate) fn error_page(&self, status: StatusCode) -> Option<&RelativePath> {
        let mut pages = self.error_pages.iter();
        pages.find(|(known, _)| *known == status).map(|(_, path)| path)
    }
}
