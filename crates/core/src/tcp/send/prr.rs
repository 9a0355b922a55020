//! Proportional rate reduction: how fast the window's reduction is carried out in a recovery
//! (RFC 6937, with the later rule that only an ACK which advances and shows no further loss may
//! speed it up).
//!
//! For each segment that arrives, a part of a segment leaves, so that the pipe shrinks to the
//! threshold within a round trip. Once losses have made it smaller than that, it grows back: by
//! what arrives, and by a segment more for an ACK that is good news.

/// The reduction of one recovery, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    /// RecoverFS: what was in flight when it began, but for what had arrived.
    flight: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    sent: u32,
    /// What may leave now.
    allowed: u32,
}

/// What an ACK in a recovery has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// DeliveredData: bytes newly acknowledged or sacked.
    pub delivered: u32,
    /// SND.UNA has advanced, and nothing more is lost.
    pub is_safe: bool,
    /// Bytes believed to be in the network.
    pub pipe: u32,
    /// ssthresh.
    pub threshold: u32,
    /// The largest segment.
    pub mss: u32,
}

impl Prr {
    /// A recovery begins with so many bytes in flight that had not arrived before the ACK which
    /// began it.
    pub(crate) fn new(flight: u32) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, sent: 0, allowed: 0 }
    }

    /// Bytes that may leave now.
    pub(crate) fn allowed(&self) -> u32 {
        self.allowed
    }

    pub(crate) fn on_ack(&mut self, progress: Progress) {
        let Progress { delivered, is_safe, pipe, threshold, mss } = progress;
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        self.allowed = if pipe > threshold {
            let share = u64::from(self.delivered) * u64::from(threshold);
            let due = share.div_ceil(u64::from(self.flight)).min(u32::MAX.into()) as u32;
            due.saturating_sub(self.sent)
        } else {
            let arrived = self.delivered.saturating_sub(self.sent).max(delivered);
            let most = if is_safe { arrived.saturating_add(mss) } else { arrived };
            most.min(threshold - pipe)
        };
    }

    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
        self.allowed = self.allowed.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn ack(pipe: u32, is_safe: bool) -> Progress {
        Progress { delivered: MSS, is_safe, pipe, threshold: 10 * MSS, mss: MSS }
    }

    /// RFC 6937 §4, Figure 3: twenty in flight, the first is lost. Half as many leave as arrive,
    /// and ten have left when all have arrived.
    #[test]
    fn half_as_much_leaves_as_arrives_above_the_threshold() {
        let mut prr = Prr::new(20 * MSS);
        let mut pipe = 19 * MSS;
        let mut sent = std::vec::Vec::new();
        for _ in 0..19 {
            pipe -= MSS;
            prr.on_ack(ack(pipe, false));
            let count = prr.allowed() / MSS;
            pipe += count * MSS;
            prr.on_sent(count * MSS);
            sent.push(count);
        }
        assert_eq!(sent[..8], [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!((sent.iter().sum::<u32>(), pipe), (10, 10 * MSS));
    }

    /// RFC 6937 §4, Figure 4: so much is lost that the pipe is under the threshold at once.
    #[test]
    fn below_it_one_leaves_for_each_and_two_for_good_news() {
        let mut prr = Prr::new(20 * MSS);
        prr.on_ack(ack(4 * MSS, false));
        assert_eq!(prr.allowed(), MSS, "packet conservation");
        prr.on_sent(MSS);
        prr.on_ack(ack(4 * MSS, true));
        assert_eq!(prr.allowed(), 2 * MSS, "slow start");
        prr.on_sent(2 * MSS);
        prr.on_ack(ack(10 * MSS - 300, true));
        assert_eq!(prr.allowed(), 300, "not beyond the threshold");
    }

    #[test]
    fn at_the_threshold_nothing_leaves_but_what_is_beyond_it() {
        let allowed = |pipe: u32| {
            let mut prr = Prr::new(20 * MSS);
            prr.on_ack(ack(pipe, false));
            prr.allowed()
        };
        assert_eq!([10 * MSS + 1, 10 * MSS, 10 * MSS - 1].map(allowed), [MSS / 2, 0, 1]);
    }

    #[test]
    fn an_ack_without_news_lets_nothing_go() {
        let mut prr = Prr::new(20 * MSS);
        prr.on_ack(Progress { delivered: 0, ..ack(0, true) });
        assert_eq!(prr.allowed(), 0);
    }
}
