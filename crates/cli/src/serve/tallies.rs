//! The counters of the file service, by name, beside those of its stack.

use lightwait_http::{CacheTally, Http2, Tally, Tls};

use crate::counts::Counter;

/// The server's, of responses.
pub(super) fn of_responses(tally: &Tally) -> [Counter; 7] {
    let count = Counter::of;
    let [informal, successful, redirected, faulty, failed] = tally.responses;
    [
        count("http_responses", tally.responses.iter().sum(), "Responses that are over."),
        count("http_responses_1xx", informal, "Of them, informational ones."),
        count("http_responses_2xx", successful, "Of them, successful ones."),
        count("http_responses_3xx", redirected, "Of them, redirections."),
        count("http_responses_4xx", faulty, "Of them, those to faulty requests."),
        count("http_responses_5xx", failed, "Of them, those that the server failed to give."),
        count("http_body_bytes", tally.body_bytes, "Bytes of bodies handed to connections."),
    ]
}

/// The server's, of connections.
pub(super) fn of_connections(tally: &Tally) -> [Counter; 12] {
    let count = Counter::of;
    [
        count(
            "http_rests",
            tally.rests,
            "Connections that freed what only requests need, since no request came.",
        ),
        count(
            "http_refused_for_memory",
            tally.refused_for_memory,
            "Connections refused, because there was no memory for them.",
        ),
        count(
            "http_closed_for_memory",
            tally.closed_for_memory,
            "Connections that waited for their peers, closed because others needed the memory.",
        ),
        count(
            "http_closed_for_place",
            tally.closed_for_place,
            "Connections that waited longest, closed because a limit was reached and others came.",
        ),
        count(
            "http_refused_connections",
            tally.refused_connections,
            "Connections refused, because there were too many.",
        ),
        count(
            "http_refused_client_connections",
            tally.refused_client_connections,
            "Connections refused, because there were too many of one client.",
        ),
        count(
            "http_refused_responses",
            tally.refused_responses,
            "Requests answered with 503, because too many responses were in flight.",
        ),
        count(
            "http_timed_out_idle",
            tally.timed_out_idle,
            "Connections closed, because no request came.",
        ),
        count(
            "http_timed_out_heads",
            tally.timed_out_heads,
            "Connections closed, because the head of a request was not complete in time.",
        ),
        count(
            "http_timed_out_bodies",
            tally.timed_out_bodies,
            "Connections closed, because the body of a request stalled.",
        ),
        count(
            "http_reset_stalled",
            tally.reset_stalled,
            "Connections reset, because the peer took nothing of what was written.",
        ),
        count(
            "http_reset_slow",
            tally.reset_slow,
            "Connections reset, because the peer took too little of it.",
        ),
    ]
}

/// The server's, of clients that close first.
pub(super) fn of_closes(tally: &Tally) -> [Counter; 6] {
    let count = Counter::of;
    [
        count(
            "http_client_closes",
            tally.client_closes,
            "CLIENT_CLOSE requests obeyed: the client closed first.",
        ),
        count(
            "http_client_closes_unended",
            tally.client_closes_unended,
            "CLIENT_CLOSE requests whose clients did not close within the grace.",
        ),
        count(
            "http_client_closes_refused",
            tally.client_closes_refused,
            "CLIENT_CLOSE requests that are not well formed, answered with 400.",
        ),
        count("http_asked", tally.asked, "Connections whose clients were asked to close first."),
        count(
            "http_asked_obeyed",
            tally.asked_obeyed,
            "Connections whose clients obeyed that request.",
        ),
        count(
            "http_asked_unheeded",
            tally.asked_unheeded,
            "Connections whose clients did not obey it.",
        ),
    ]
}

/// The server's, of TLS handshakes.
pub(super) fn of_tls(tls: &Tls) -> [Counter; 8] {
    let count = Counter::of;
    [
        count("tls_handshakes", tls.handshakes, "TLS handshakes that were completed."),
        count("tls_resumed", tls.resumed, "Of them, those that resumed a session by its ticket."),
        count(
            "tls_failed_not_tls",
            tls.failed_not_tls,
            "TLS handshakes that failed: what came first was no TLS.",
        ),
        count(
            "tls_failed_nothing_shared",
            tls.failed_nothing_shared,
            "TLS handshakes that failed: the client has no version, cipher or protocol of ours.",
        ),
        count(
            "tls_failed_refused",
            tls.failed_refused,
            "TLS handshakes that failed: the client refused, for example the certificate.",
        ),
        count(
            "tls_failed_broken",
            tls.failed_broken,
            "TLS handshakes that failed: the client broke the protocol.",
        ),
        count(
            "tls_failed_left",
            tls.failed_left,
            "TLS handshakes that the client left, or whose connection failed.",
        ),
        count(
            "tls_failed_unfinished",
            tls.failed_unfinished,
            "TLS handshakes that took too long, or made room for others.",
        ),
    ]
}

/// The server's, of HTTP/2.
pub(super) fn of_http2(http2: &Http2) -> [Counter; 13] {
    let count = Counter::of;
    [
        count("http2_connections", http2.connections, "Connections that spoke HTTP/2."),
        count("http2_requests", http2.requests, "Requests on them."),
        count("http2_heads_refused", http2.heads_refused, "Heads refused as too long."),
        count(
            "http2_reset_stalled",
            http2.reset_stalled,
            "Streams reset, because the peer let nothing of their answers pass.",
        ),
        count(
            "http2_reset_slow",
            http2.reset_slow,
            "Streams reset, because the peer let too little of their answers pass.",
        ),
        count("http2_flood_resets", http2.flood_resets, "HTTP/2 connections ended: resets."),
        count(
            "http2_flood_continuations",
            http2.flood_continuations,
            "HTTP/2 connections ended: heads in too many pieces.",
        ),
        count("http2_flood_settings", http2.flood_settings, "HTTP/2 connections ended: SETTINGS."),
        count("http2_flood_pings", http2.flood_pings, "HTTP/2 connections ended: PINGs."),
        count("http2_flood_empty", http2.flood_empty, "HTTP/2 connections ended: empty DATA."),
        count("http2_flood_windows", http2.flood_windows, "HTTP/2 connections ended: windows."),
        count(
            "http2_flood_heads",
            http2.flood_heads,
            "HTTP/2 connections ended: heads very much too long.",
        ),
        count(
            "http2_flood_others",
            http2.flood_others,
            "HTTP/2 connections ended: other frames that ask for nothing.",
        ),
    ]
}

/// The file cache's.
pub(super) fn of_cache(tally: &CacheTally) -> [Counter; 12] {
    let count = Counter::of;
    [
        count("file_cache_hits", tally.hits, "Requests whose file was in memory."),
        count("file_cache_open_hits", tally.open_hits, "Requests whose file was open."),
        count("file_cache_misses", tally.misses, "Requests whose file had to be opened."),
        count(
            "file_cache_block_hits",
            tally.block_hits,
            "Blocks of open files that were in memory.",
        ),
        count(
            "file_cache_block_misses",
            tally.block_misses,
            "Blocks of open files that had to be read.",
        ),
        count(
            "file_cache_revalidations",
            tally.revalidations,
            "Files that were checked and had not changed.",
        ),
        count(
            "file_cache_outdated",
            tally.outdated,
            "Kept files that had changed or were gone when checked.",
        ),
        count(
            "file_cache_given_back_bytes",
            tally.given_back_bytes,
            "Bytes given back because connections needed the memory.",
        ),
        Counter::level("file_cache_bytes", tally.bytes, "Bytes of files in memory."),
        Counter::level("file_cache_open", tally.open, "Files that are kept open."),
        count(
            "http_files_changed_midway",
            tally.changed_midway,
            "Responses that failed because their file changed during the transfer.",
        ),
        count(
            "http_files_compressed",
            tally.compressed,
            "Files compressed as they were asked for.",
        ),
    ]
}
