//! Event logs in qlog's form (draft-ietf-quic-qlog-main-schema), as a sequence of JSON texts
//! (RFC 7464), with events of a namespace of our own.

mod read;
mod write;

pub use read::{Error, read};
pub use write::write;

/// The media type of such a log.
pub const MEDIA_TYPE: &str = "application/qlog+json-seq";

/// What the first record says of the file, and of the events in it.
const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";
const EVENT_SCHEMA: &str = "urn:x-lightwait:qlog:events:tcp-1";

/// Before each text of a sequence.
const SEPARATOR: u8 = 0x1e;

/// The namespace of our events.
const NAMESPACE: &str = "tcp:";
