//! The chunked coding (RFC 9112 §7.1), counted and dropped.
//!
//! ```text
//!   1a;ext=1 CRLF  26 bytes  CRLF … 0 CRLF  field: value CRLF  CRLF
//!   └─ Size ─────┘ └ Data ─┘ End      └─ Trailer ────────────────┘
//! ```

use super::parser::Malformed;

/// Bytes of a size line, at most: extensions are dropped. Also the limit of all trailer lines.
const MOST_LINE_BYTES: u32 = 16 << 10;

/// A chunked body in progress.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: State,
    /// Bytes of the present line, or of all trailers.
    line_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Digits of the size.
    Size {
        size: u64,
        has_digit: bool,
    },
    /// The rest of the line after the digits.
    Extension {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// The line end after a chunk; CR was there.
    End {
        has_cr: bool,
    },
    /// A line of the trailer; whether it is empty so far.
    Trailer {
        is_empty: bool,
    },
}

impl Default for State {
    fn default() -> State {
        State::Size { size: 0, has_digit: false }
    }
}

impl Chunks {
    /// Takes in bytes up to the body's end. Returns their number, and true if the end is reached.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut taken = 0;
        while let Some(&byte) = bytes.get(taken) {
            if let State::Data { left } = &mut self.state {
                let rest = bytes.len() - taken;
                let len = usize::try_from(*left).map_or(rest, |left| left.min(rest));
                *left -= len as u64;
                taken += len;
                if *left == 0 {
                    self.state = State::End { has_cr: false };
                }
                continue;
            }
            taken += 1;
            self.line_bytes += 1;
            if self.line_bytes > MOST_LINE_BYTES {
                return Err(Malformed("a line of the chunked coding is larger than 16 KiB"));
            }
            if self.take_byte(byte)? {
                return Ok((taken, true));
            }
        }
        Ok((taken, false))
    }

    /// Takes in a byte of a line. Returns true if the body is complete.
    fn take_byte(&mut self, byte: u8) -> Result<bool, Malformed> {
        const BAD_SIZE: Malformed = Malformed("the size of a chunk cannot be read");
        self.state = match (self.state, byte) {
            (State::Size { size, .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size = size.checked_mul(16).and_then(|size| size.checked_add(digit));
                State::Size { size: size.ok_or(BAD_SIZE)?, has_digit: true }
            }
            (State::Size { has_digit: false, .. }, _) => return Err(BAD_SIZE),
            (State::Size { size, .. } | State::Extension { size }, b'\n') => self.after_line(size),
            (State::Size { size, .. }, b';' | b'\r' | b' ' | b'\t') => State::Extension { size },
            (State::Size { .. }, _) => return Err(BAD_SIZE),
            (state @ State::Extension { .. }, _) => state,
            (State::End { has_cr: false }, b'\r') => State::End { has_cr: true },
            (State::End { .. }, b'\n') => {
                self.line_bytes = 0;
                State::default()
            }
            (State::End { .. }, _) => {
                return Err(Malformed("a chunk is longer than its size"));
            }
            (State::Trailer { is_empty: true }, b'\n') => return Ok(true),
            (State::Trailer { .. }, b'\n') => State::Trailer { is_empty: true },
            (state @ State::Trailer { is_empty: true }, b'\r') => state,
            (State::Trailer { .. }, _) => State::Trailer { is_empty: false },
            (State::Data { .. }, _) => unreachable!("data is taken in by the block"),
        };
        Ok(false)
    }

    /// A size line has ended.
    fn after_line(&mut self, size: u64) -> State {
        self.line_bytes = 0;
        if size == 0 { State::Trailer { is_empty: true } } else { State::Data { left: size } }
    }
}
