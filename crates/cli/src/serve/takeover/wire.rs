//! What two processes say to each other over the socket of `--takeover`.
//!
//! ```text
//!   new process                                old process
//!     Hello ────────────────────────────────▶  is it alike?
//!     ◀───────────────── Refused, or Offer ──  with descriptors
//!     Begin: all is open ───────────────────▶  receives no more
//!     ◀── Ends, Remains, … one after another,
//!         Complete
//!     Serving ──────────────────────────────▶  is it in time?
//!     ◀────────────────────────────── Given ──
//!     receives                                 ends its connections
//!     ◀───── Remains, Gone: while they end ──
//! ```
//!
//! The old process has waited long enough at some moment. A `Serving` that comes then finds nobody:
//! without `Given` the new process does not go on, so that never both serve.
//!
//! A message is its length in 4 bytes, its kind in one, and its text. Descriptors go with the first
//! byte of an offer (SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lightwait::wrap::handover::Ends;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use serde_json::{Value, json};

/// The version of all this: another one refuses.
pub(super) const VERSION: u64 = 2;

/// The longest message, in bytes: records are cut into pieces.
const LONGEST: usize = 4 << 20;
/// Descriptors in a message at most (SCM_MAX_FD).
const DESCRIPTORS: usize = 253;
/// Bytes of a message before its text.
const HEAD_LEN: usize = 5;

/// What the new process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u64,
    pub(super) pid: u64,
    pub(super) shards: u64,
    /// The device, such as `tap lw0`, or `bridge`.
    pub(super) stack: String,
    /// Our addresses on the device.
    pub(super) addresses: Vec<String>,
    /// Where it wants to listen on the kernel's stack, and its admin door.
    pub(super) listens: Vec<String>,
    pub(super) admin: Option<String>,
}

/// What the old process has, beside the descriptors. These are: a queue of the device and a channel
/// for each shard, if there is a device; the listening sockets; the admin door; and the socket of
/// the takeover itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) pid: u64,
    /// The secret of its host, and the hardware address.
    pub(super) secret: Option<[u8; 32]>,
    pub(super) hardware: [u8; 6],
    /// When its time began, in ns of the kernel's monotonic clock.
    pub(super) origin_ns: u64,
    /// Queues of the device.
    pub(super) queues: u64,
    /// The addresses of the listening sockets.
    pub(super) listens: Vec<String>,
    pub(super) has_admin: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Hello(Hello),
    Offer(Offer),
    /// Why the old process gives nothing.
    Refused(String),
    /// The new process has opened all that it needs.
    Begin,
    /// Connections of a shard, and whether it has sent SYN cookies lately.
    Ends(u16, bool, Vec<Ends>),
    /// What is left of closed ones, encoded.
    Remains(u16, Vec<u8>),
    /// That is all there is.
    Complete,
    /// The new process serves, once it is told that all is its own.
    Serving,
    /// All is the new process's from here on.
    Given,
    /// Connections that are over, without a record.
    Gone(Vec<Ends>),
}

/// One end of the conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    stream: UnixStream,
    descriptors: Vec<OwnedFd>,
}

impl Conversation {
    pub(super) fn new(stream: UnixStream) -> Conversation {
        Conversation { stream, descriptors: Vec::new() }
    }

    /// The user of the process at the other end.
    pub(super) fn peer_user(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(&self.stream)?.uid.as_raw())
    }

    /// How long the next message may take; `None`: for ever.
    pub(super) fn wait(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
    }

    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with descriptors.
    pub(super) fn send_with(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = encode(message);
        let mut sent = 0;
        let rights = || SendAncillaryMessage::ScmRights(descriptors);
        let mut space = vec![MaybeUninit::uninit(); rights().size()];
        while sent < bytes.len() {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !descriptors.is_empty() && !ancillary.push(rights()) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let slices = [IoSlice::new(&bytes[sent..])];
            let flags = SendFlags::NOSIGNAL;
            sent += rustix::io::retry_on_intr(|| {
                rustix::net::sendmsg(&self.stream, &slices, &mut ancillary, flags)
            })?;
        }
        Ok(())
    }

    /// The next message. Fails if the other process is gone, or says something else.
    pub(super) fn receive(&mut self) -> io::Result<Message> {
        let mut head = [0; HEAD_LEN];
        self.fill(&mut head)?;
        let [a, b, c, d, kind] = head;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > LONGEST {
            return Err(nonsense());
        }
        let mut text = vec![0; len];
        self.fill(&mut text)?;
        decode(kind, &text).ok_or_else(nonsense)
    }

    /// The descriptors that have come.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        while filled < bytes.len() {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes[filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = rustix::io::retry_on_intr(|| {
                rustix::net::recvmsg(&self.stream, &mut slices, &mut ancillary, flags)
            })?;
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += received.bytes;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    self.descriptors.extend(rights);
                }
            }
            if self.descriptors.len() > DESCRIPTORS {
                return Err(nonsense());
            }
        }
        Ok(())
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process speaks another language")
}

const HELLO: u8 = 1;
const OFFER: u8 = 2;
const REFUSED: u8 = 3;
const BEGIN: u8 = 4;
const ENDS: u8 = 5;
const REMAINS: u8 = 6;
const COMPLETE: u8 = 7;
const SERVING: u8 = 8;
const GONE: u8 = 9;
const GIVEN: u8 = 10;

fn encode(message: &Message) -> Vec<u8> {
    let (kind, text) = match message {
        Message::Hello(hello) => (HELLO, hello.object().to_string().into_bytes()),
        Message::Offer(offer) => (OFFER, offer.object().to_string().into_bytes()),
        Message::Refused(why) => (REFUSED, why.clone().into_bytes()),
        Message::Begin => (BEGIN, Vec::new()),
        Message::Ends(shard, cookies, ends) => {
            let mut text = shard.to_be_bytes().to_vec();
            text.push((*cookies).into());
            ends.iter().for_each(|ends| encode_ends(ends, &mut text));
            (ENDS, text)
        }
        Message::Remains(shard, remains) => (REMAINS, [&shard.to_be_bytes()[..], remains].concat()),
        Message::Complete => (COMPLETE, Vec::new()),
        Message::Serving => (SERVING, Vec::new()),
        Message::Given => (GIVEN, Vec::new()),
        Message::Gone(ends) => {
            let mut text = Vec::new();
            ends.iter().for_each(|ends| encode_ends(ends, &mut text));
            (GONE, text)
        }
    };
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&len.to_be_bytes()[..], &[kind], &text].concat()
}

fn decode(kind: u8, text: &[u8]) -> Option<Message> {
    Some(match kind {
        HELLO => Message::Hello(Hello::of(&serde_json::from_slice(text).ok()?)?),
        OFFER => Message::Offer(Offer::of(&serde_json::from_slice(text).ok()?)?),
        REFUSED => Message::Refused(String::from_utf8_lossy(text).into_owned()),
        BEGIN => Message::Begin,
        ENDS => {
            let ([a, b, cookies], ends) = text.split_first_chunk()?;
            Message::Ends(u16::from_be_bytes([*a, *b]), *cookies != 0, decode_ends(ends)?)
        }
        REMAINS => {
            let (shard, remains) = text.split_first_chunk()?;
            Message::Remains(u16::from_be_bytes(*shard), remains.to_vec())
        }
        COMPLETE => Message::Complete,
        SERVING => Message::Serving,
        GIVEN => Message::Given,
        GONE => Message::Gone(decode_ends(text)?),
        _ => return None,
    })
}

/// Each end as its IP version, its address and its port.
fn encode_ends((ours, theirs): &Ends, text: &mut Vec<u8>) {
    for end in [ours, theirs] {
        match end.ip() {
            IpAddr::V4(address) => {
                text.push(4);
                text.extend(address.octets());
            }
            IpAddr::V6(address) => {
                text.push(6);
                text.extend(address.octets());
            }
        }
        text.extend(end.port().to_be_bytes());
    }
}

fn decode_ends(mut text: &[u8]) -> Option<Vec<Ends>> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let mut end = || -> Option<SocketAddr> {
            let (version, rest) = text.split_first()?;
            let (address, rest): (IpAddr, _) = match version {
                4 => rest.split_first_chunk::<4>().map(|(it, rest)| ((*it).into(), rest))?,
                6 => rest.split_first_chunk::<16>().map(|(it, rest)| ((*it).into(), rest))?,
                _ => return None,
            };
            let (port, rest) = rest.split_first_chunk()?;
            text = rest;
            Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
        };
        let ours = end()?;
        all.push((ours, end()?));
    }
    Some(all)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

impl Hello {
    fn object(&self) -> Value {
        json!({
            "version": self.version,
            "pid": self.pid,
            "shards": self.shards,
            "stack": self.stack,
            "addresses": self.addresses,
            "listens": self.listens,
            "admin": self.admin,
        })
    }

    fn of(object: &Value) -> Option<Hello> {
        Some(Hello {
            version: object["version"].as_u64()?,
            pid: object["pid"].as_u64().unwrap_or_default(),
            shards: object["shards"].as_u64().unwrap_or_default(),
            stack: object["stack"].as_str().unwrap_or_default().to_owned(),
            addresses: texts(&object["addresses"]).unwrap_or_default(),
            listens: texts(&object["listens"]).unwrap_or_default(),
            admin: object["admin"].as_str().map(str::to_owned),
        })
    }
}

impl Offer {
    fn object(&self) -> Value {
        json!({
            "pid": self.pid,
            "secret": self.secret,
            "hardware": self.hardware,
            "origin_ns": self.origin_ns,
            "queues": self.queues,
            "listens": self.listens,
            "has_admin": self.has_admin,
        })
    }

    fn of(object: &Value) -> Option<Offer> {
        fn octets<const N: usize>(value: &Value) -> Option<[u8; N]> {
            let octets = value.as_array()?.iter().map(|it| u8::try_from(it.as_u64()?).ok());
            octets.collect::<Option<Vec<u8>>>()?.try_into().ok()
        }
        Some(Offer {
            pid: object["pid"].as_u64()?,
            secret: match &object["secret"] {
                Value::Null => None,
                secret => Some(octets(secret)?),
            },
            hardware: octets(&object["hardware"])?,
            origin_ns: object["origin_ns"].as_u64()?,
            queues: object["queues"].as_u64()?,
            listens: texts(&object["listens"])?,
            has_admin: object["has_admin"].as_bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn pair() -> [Conversation; 2] {
        let (one, other) = UnixStream::pair().unwrap();
        [one, other].map(Conversation::new)
    }

    fn ends() -> Vec<Ends> {
        let at = |text: &str| text.parse().unwrap();
        vec![(at("10.0.0.2:80"), at("10.0.0.1:4000")), (at("[fd00::2]:80"), at("[fd00::1]:4001"))]
    }

    #[test]
    fn every_message_arrives_as_it_was() {
        let hello = Hello {
            version: VERSION,
            pid: 7,
            shards: 2,
            stack: "tap lw0".to_owned(),
            addresses: vec!["10.0.0.2/24".to_owned()],
            listens: Vec::new(),
            admin: None,
        };
        let secret = Some([9; 32]);
        let offer = Offer { pid: 8, secret, hardware: [2; 6], queues: 2, ..Offer::default() };
        let [mut one, mut other] = pair();
        for message in [
            Message::Hello(hello),
            Message::Offer(offer),
            Message::Refused("no".to_owned()),
            Message::Begin,
            Message::Ends(3, true, ends()),
            Message::Remains(1, vec![1; 3 << 20]),
            Message::Complete,
            Message::Serving,
            Message::Given,
            Message::Gone(ends()),
        ] {
            std::thread::scope(|scope| {
                scope.spawn(|| one.send(&message).unwrap());
                assert_eq!(other.receive().unwrap(), message);
            });
        }
        drop(one);
        assert_eq!(other.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn descriptors_go_with_their_message() {
        let [mut one, mut other] = pair();
        let (file, mut end) = UnixStream::pair().unwrap();
        one.send_with(&Message::Offer(Offer::default()), &[file.as_fd(); 3]).unwrap();
        drop(file);
        other.receive().unwrap();
        let got = other.take_descriptors();
        assert_eq!(got.len(), 3);
        rustix::net::send(&got[2], b"x", SendFlags::empty()).unwrap();
        io::Read::read_exact(&mut end, &mut [0]).unwrap();
        assert!(one.peer_user().is_ok() && other.take_descriptors().is_empty());
    }

    #[test]
    fn what_is_no_message_is_refused_and_silence_ends() {
        let [mut one, mut other] = pair();
        for bytes in [&[0, 0, 0, 0, 99][..], &[0xff, 0, 0, 0, 1], &[0, 0, 0, 2, 9, 4, 1]] {
            io::Write::write_all(&mut one.stream, bytes).unwrap();
            assert_eq!(other.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        other.wait(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(other.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for kind in 0..=255 {
            for len in 0..40 {
                decode(kind, &vec![4; len]);
            }
        }
    }
}
