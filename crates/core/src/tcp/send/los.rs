//! The local optimization scheme of Cohen & Cohen 2002 §3: the least send buffer with which a
//! connection always has something to send. Pure arithmetic on what the congestion controller
//! predicts.
//!
//! While a read of the source is under way, nothing is added to the buffer. A read that takes k
//! round trips needs, beside what is in flight, all that those k rounds may send. It should bring
//! what the k rounds after them may send:
//!
//! ```text
//!   hiwat(k)     = floor(cwnd) + next + … + next^k
//!   read_size(k) = next^(k+1) + … + next^(2k)
//! ```
//!
//! `next(cwnd)` is the window one round trip on, `next^i` the window i round trips on. Nothing is
//! stored: both follow from the window whenever they are asked for, so that they grow and shrink
//! with it.
//!
//! A run of segments that the device cuts never waits for this bound. What may leave at once is the
//! window less what is in flight, and beyond what is in flight the buffer has room for more.

use crate::tcp::congestion::Congestion;

/// The paper's first read, in segments.
const FIRST_READ_SEGMENTS: u32 = 3;

/// The most round trips of a read that count: the work per question is bounded by them. From an
/// initial window on, 32 rounds carry 858 segments, more than the largest buffer holds by default.
pub(crate) const FACTOR_MAX: u32 = 32;

/// T_fact: how many round trips a read takes, rounded up, 1 at least; `preset` where either time is
/// not known (0).
pub fn factor(read_time_ns: u64, srtt_ns: u64, preset: u32) -> u32 {
    if read_time_ns == 0 || srtt_ns == 0 {
        return preset.clamp(1, FACTOR_MAX);
    }
    // Nearly always it is shorter: nothing is divided.
    if read_time_ns <= srtt_ns {
        return 1;
    }
    read_time_ns.div_ceil(srtt_ns).min(FACTOR_MAX.into()) as u32
}

/// The inputs of the scheme, of a connection in its present state.
#[derive(Clone, Copy, Debug)]
pub struct Los<'a> {
    /// The congestion controller, which predicts the window.
    pub(crate) congestion: &'a Congestion,
    /// The window to count from, bytes: the paper's sender window, the lesser of the congestion
    /// window and the peer's.
    pub window: u32,
    /// No later window is larger: the peer's present window, bytes. A peer that reads keeps it
    /// open; before one that does not, each round would only lie in memory.
    pub most: u32,
    /// A segment, bytes.
    pub mss: u32,
    /// T_fact.
    pub factor: u32,
}

impl Los<'_> {
    /// The bytes that the buffer should hold, sent or not, but no more than `limit`.
    pub fn hiwat(&self, limit: u32) -> u32 {
        let whole = self.window - self.window % self.mss;
        let (fresh, _) = self.rounds(self.window, limit.saturating_sub(whole));
        self.whole_segments(whole.saturating_add(fresh)).min(limit)
    }

    /// The bytes that a read should bring, but no more than `limit`: those sent while the next
    /// one is under way.
    pub fn read_size(&self, limit: u32) -> u32 {
        let (_, window) = self.rounds(self.window, limit);
        let (bytes, _) = self.rounds(window, limit);
        self.whole_segments(bytes).min(limit)
    }

    /// What the first read should bring, in bytes, but no more than `limit`: all that the buffer
    /// should hold.
    pub(crate) fn first_read(&self, limit: u32) -> u32 {
        self.hiwat(limit).max(FIRST_READ_SEGMENTS.saturating_mul(self.mss)).min(limit)
    }

    /// The sum of the next `factor` windows behind `window`, and the last of them. Those that
    /// would pass `limit` are left out, but for the first that does.
    fn rounds(&self, mut window: u32, limit: u32) -> (u32, u32) {
        let mut sum: u32 = 0;
        for _ in 0..self.factor {
            window = self.congestion.next(window, self.mss).min(self.most);
            sum = sum.saturating_add(window);
            if sum >= limit {
                break;
            }
        }
        (sum, window)
    }

    /// Half a segment is not sent where more follows.
    fn whole_segments(&self, bytes: u32) -> u32 {
        bytes - bytes % self.mss
    }
}

#[cfg(test)]
mod tests;
