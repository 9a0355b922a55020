//! Bytes that show their place: each follows from a seed and its position in the stream. A missing,
//! doubled or swapped byte is found at once, without a copy to compare with.

/// The stream of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The stream of that seed.
    pub fn new(seed: u64) -> Self {
        Pattern { seed }
    }

    /// Fills `out` with the bytes from `position` on.
    pub fn fill(&self, position: u64, out: &mut [u8]) {
        for (byte, at) in out.iter_mut().zip(position..) {
            *byte = self.byte(at);
        }
    }

    /// The position of the first byte that differs from the stream's at `position` on.
    pub fn first_difference(&self, position: u64, bytes: &[u8]) -> Option<u64> {
        bytes.iter().zip(position..).find(|(byte, at)| **byte != self.byte(*at)).map(|(_, at)| at)
    }

    fn byte(&self, position: u64) -> u8 {
        let word = ((position / 8) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (word >> ((position % 8) * 8)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_swapped_or_foreign_stream_is_seen() {
        let pattern = Pattern::new(7);
        let mut bytes = [0; 100];
        pattern.fill(1000, &mut bytes);
        assert_eq!(pattern.first_difference(1000, &bytes), None);
        assert!(pattern.first_difference(1001, &bytes).is_some());
        assert!(pattern.first_difference(1008, &bytes).is_some());
        assert!(Pattern::new(8).first_difference(1000, &bytes).is_some());
        bytes[50] ^= 1;
        assert_eq!(pattern.first_difference(1000, &bytes), Some(1050));
    }
}
