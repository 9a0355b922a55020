//! Reads an input's bytes as a sequence of decisions.
//!
//! The source reads an input from its front, a decision at a time; beyond its end every decision is
//! zero. So any input has a meaning, a change of one byte changes little, and the beginning of an
//! input decides the beginning of its run.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    /// The whole of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Source { rest: input }
    }

    /// True if every further decision is zero.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// One of `n` numbers from 0, by the next byte; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// The next `n` bytes, or as many as are left.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Everything that is left.
    pub fn take_all(&mut self) -> &'a [u8] {
        self.take(self.rest.len())
    }

    /// How far a number is from its right value: mostly a little, or about a half or a quarter of
    /// the space, sometimes anywhere.
    pub fn distance(&mut self) -> u32 {
        const NEAR: [i32; 16] =
            [0, 1, -1, 2, -2, 3, 100, -100, 536, 1000, -1000, 1460, 65_535, -65_536, 1 << 20, 8];
        match self.u8() {
            n @ 0..=127 => NEAR[usize::from(n) % NEAR.len()] as u32,
            n @ 128..=191 => u32::from(n - 128),
            n @ 192..=223 => 0u32.wrapping_sub(u32::from(n - 191)),
            n @ 224..=231 => (1u32 << 31).wrapping_add(u32::from(n)).wrapping_sub(228),
            n @ 232..=239 => (1u32 << 30).wrapping_add(u32::from(n)).wrapping_sub(236),
            240..=247 => u32::from(self.u16()),
            _ => self.u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_end_every_decision_is_zero() {
        let mut source = Source::new(&[7]);
        assert_eq!(source.u8(), 7);
        assert!(source.is_empty());
        assert_eq!((source.u32(), source.below(9), source.flag()), (0, 0, false));
        assert_eq!(source.distance(), 0);
        assert!(source.take(3).is_empty());
    }

    #[test]
    fn distances_reach_both_sides_of_zero_and_of_the_horizon() {
        let all: Vec<u32> = (0..=255).map(|n| Source::new(&[n]).distance()).collect();
        for wanted in [0, 1, u32::MAX, 1 << 31, (1 << 31) - 1, (1 << 31) + 1, 1 << 30] {
            assert!(all.contains(&wanted), "{wanted:#x}");
        }
    }
}
