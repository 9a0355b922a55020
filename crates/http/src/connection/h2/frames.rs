//! The frames of an HTTP/2 connection (RFC 9113 §4), as far as they say what a client makes the
//! server do: where one ends, and whether they bring more than they cost.
//!
//! h2 bounds what a client makes the server hold. It does not bound what a client makes it do: a
//! client may send as many frames that ask for nothing as it likes. So each connection has credit.
//! Frames that bring nothing take some of it, and answers give some back:
//!
//! ```text
//!   read     HEADERS 2 · RST_STREAM 10 · DATA with less than 256 bytes, and others 1
//!   written  DATA with less than 256 bytes 1
//!   back     an answer 10 · each 4 KiB of DATA written 1, up to what it was at first
//! ```
//!
//! A browser that cancels a hundred requests has enough of it. Without credit the connection ends
//! with ENHANCE_YOUR_CALM (§7).

/// The kinds of frames (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// The last frame of a stream (DATA, HEADERS).
pub(crate) const END_STREAM: u8 = 1;
/// The last frame of a head (HEADERS, CONTINUATION).
pub(crate) const END_HEADERS: u8 = 4;

/// RFC 9113 §7.
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The client's preface (RFC 9113 §3.4).
const PREFACE_BYTES: u8 = 24;
const HEAD_BYTES: usize = 9;
/// Bytes of a frame's content that are looked at.
const BEGIN_BYTES: usize = 18;

/// A frame's head, and the beginning of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    begin: [u8; BEGIN_BYTES],
}

impl Frame {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The error of a GOAWAY.
    fn goaway_error(&self) -> u32 {
        let [_, _, _, _, e0, e1, e2, e3, ..] = self.begin;
        u32::from_be_bytes([e0, e1, e2, e3])
    }

    /// Why h2 ends a connection by this GOAWAY, as it says itself behind the error.
    fn goaway_cause(&self) -> Option<Cause> {
        let begins = |words: &[u8]| self.begin[8..].starts_with(words);
        Some(match () {
            () if begins(b"header_lis") => Cause::Heads,
            () if begins(b"too_many_r") => Cause::Resets,
            () if begins(b"too_many_c") => Cause::Continuations,
            () if begins(b"too_many_d") => Cause::Empty,
            () => return None,
        })
    }
}

/// A GOAWAY frame (RFC 9113 §6.8).
pub(crate) fn goaway(last_stream: u32, error: u32) -> [u8; 17] {
    let mut frame = [0, 0, 8, kind::GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[13..].copy_from_slice(&error.to_be_bytes());
    frame
}

/// Finds the frames in the bytes of one direction.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    /// Bytes of the preface that are yet to come.
    preface: u8,
    /// The head and the beginning of the frame that comes now.
    seen: [u8; HEAD_BYTES + BEGIN_BYTES],
    have: u8,
    /// Bytes of its content that are yet to come, behind those.
    left: u32,
}

impl Framing {
    /// Of what the client sends.
    pub(crate) fn of_client() -> Framing {
        Framing { preface: PREFACE_BYTES, ..Framing::default() }
    }

    /// True if all that came belongs to whole frames.
    pub(crate) fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && matches!(self.preface, 0 | PREFACE_BYTES)
    }

    /// Calls `on_frame` once for each frame whose beginning is complete with these bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(Frame)) {
        let preface = bytes.len().min(self.preface.into());
        self.preface -= preface as u8;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            let skipped = bytes.len().min(self.left as usize);
            self.left -= skipped as u32;
            bytes = &bytes[skipped..];
            let have = usize::from(self.have);
            let wanted = self.wanted() - have;
            let taken = bytes.len().min(wanted);
            self.seen[have..have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken as u8;
            bytes = &bytes[taken..];
            if taken > 0 && usize::from(self.have) == self.wanted() {
                let frame = self.frame();
                self.left = frame.length.saturating_sub(BEGIN_BYTES as u32);
                (self.have, self.seen) = Default::default();
                on_frame(frame);
            }
        }
    }

    /// Bytes to see of the frame that comes now.
    fn wanted(&self) -> usize {
        if usize::from(self.have) < HEAD_BYTES {
            return HEAD_BYTES;
        }
        HEAD_BYTES + BEGIN_BYTES.min(self.frame().length as usize)
    }

    fn frame(&self) -> Frame {
        let [a, b, c, kind, flags, stream @ ..] = self.seen;
        let [s0, s1, s2, s3, begin @ ..] = stream;
        Frame {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            begin,
        }
    }
}

/// What a client spent its credit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Requests that it takes back.
    Resets,
    /// Heads in many pieces.
    Continuations,
    Settings,
    Pings,
    /// DATA that brings next to nothing.
    Empty,
    /// Windows that let next to nothing pass.
    Windows,
    /// Heads that are very much too long, as they are once they are decoded.
    Heads,
    /// PRIORITY, and frames that nobody knows.
    Others,
}

/// All causes, in their order.
const CAUSES: [Cause; 8] = [
    Cause::Resets,
    Cause::Continuations,
    Cause::Settings,
    Cause::Pings,
    Cause::Empty,
    Cause::Windows,
    Cause::Heads,
    Cause::Others,
];

/// The credit of a connection at first, and at most.
const CREDIT: u32 = 1500;
/// Pieces of one head behind the first: it fits into that.
const CONTINUATIONS: u8 = 4;
/// DATA with less than this is next to nothing, unless it is the last.
const LITTLE_BYTES: u32 = 256;
const OF_HEADERS: u32 = 2;
const OF_RESET: u32 = 10;
const BACK_FOR_ANSWER: u32 = 10;
/// DATA of so many bytes gives one back.
const BACK_BYTES: u32 = 4 << 10;

/// What one connection's client has brought and cost.
#[derive(Debug)]
pub(crate) struct Ledger {
    credit: u32,
    spent: [u32; CAUSES.len()],
    /// The pieces of the head that comes now, behind the first.
    head: Option<u8>,
    /// The latest stream of the client's.
    last_stream: u32,
    /// Heads written, and how many of them were answers of ours and have given credit back.
    heads_written: u64,
    refunded: u64,
    /// We have said that the connection ends.
    has_ended: bool,
    flood: Option<Cause>,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        Ledger {
            credit: CREDIT,
            spent: [0; CAUSES.len()],
            head: None,
            last_stream: 0,
            heads_written: 0,
            refunded: 0,
            has_ended: false,
            flood: None,
        }
    }

    fn spend(&mut self, cause: Cause, credit: u32) {
        self.spent[cause as usize] += credit;
        match self.credit.checked_sub(credit) {
            Some(left) => self.credit = left,
            None if self.flood.is_none() => self.flood = Some(self.mostly()),
            None => {}
        }
    }

    fn give_back(&mut self, credit: u32) {
        self.credit = self.credit.saturating_add(credit).min(CREDIT);
    }

    /// What most of it was spent on.
    fn mostly(&self) -> Cause {
        let most = CAUSES.into_iter().max_by_key(|cause| self.spent[*cause as usize]);
        most.unwrap_or(Cause::Others)
    }

    /// The client sent that frame.
    pub(crate) fn on_read(&mut self, frame: Frame) {
        match frame.kind {
            kind::HEADERS => {
                self.last_stream = self.last_stream.max(frame.stream);
                self.head = (!frame.has(END_HEADERS)).then_some(0);
                self.spend(Cause::Resets, OF_HEADERS);
            }
            kind::CONTINUATION => {
                let pieces = self.head.unwrap_or(0) + 1;
                self.head = (!frame.has(END_HEADERS)).then_some(pieces);
                self.spend(Cause::Continuations, 1);
                if pieces > CONTINUATIONS && self.flood.is_none() {
                    self.flood = Some(Cause::Continuations);
                }
            }
            kind::DATA if frame.length >= LITTLE_BYTES || frame.has(END_STREAM) => {}
            kind::DATA => self.spend(Cause::Empty, 1),
            kind::RST_STREAM => self.spend(Cause::Resets, OF_RESET),
            kind::SETTINGS => self.spend(Cause::Settings, 1),
            kind::PING => self.spend(Cause::Pings, 1),
            kind::WINDOW_UPDATE => self.spend(Cause::Windows, 1),
            _ => self.spend(Cause::Others, 1),
        }
    }

    /// We sent that frame.
    pub(crate) fn on_written(&mut self, frame: Frame) {
        match frame.kind {
            kind::HEADERS => self.heads_written += 1,
            kind::DATA if frame.length < LITTLE_BYTES && !frame.has(END_STREAM) => {
                self.spend(Cause::Windows, 1);
            }
            kind::DATA => self.give_back(frame.length / BACK_BYTES),
            kind::GOAWAY => {
                self.has_ended = true;
                // h2 has limits of its own.
                if frame.goaway_error() == ENHANCE_YOUR_CALM && self.flood.is_none() {
                    self.flood = Some(frame.goaway_cause().unwrap_or(self.mostly()));
                }
            }
            _ => {}
        }
    }

    /// So many requests were answered until now. One that was taken back is answered as well, and
    /// a head that h2 refuses is written, too: what is both was served.
    pub(crate) fn on_answered(&mut self, answered: u64) {
        while self.refunded < answered.min(self.heads_written) {
            self.refunded += 1;
            self.give_back(BACK_FOR_ANSWER);
        }
    }

    /// Heads that h2 refused with an answer of its own, where so many answers of ours began.
    pub(crate) fn heads_refused(&self, begun_answers: u64) -> u64 {
        self.heads_written.saturating_sub(begun_answers)
    }

    /// True if a head has begun and not ended.
    pub(crate) fn is_in_head(&self) -> bool {
        self.head.is_some()
    }

    /// The client's latest stream.
    pub(crate) fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// True once we have said that the connection ends.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What the client has no more credit for, once it has none.
    pub(crate) fn flood(&self) -> Option<Cause> {
        self.flood
    }
}

#[cfg(test)]
mod tests;
