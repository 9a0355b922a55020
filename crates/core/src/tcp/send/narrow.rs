//! A path that is narrower than what the peer takes: the sender follows what is known of it, and
//! probes whether it carries more (RFC 4821, RFC 8899).
//!
//! A probe is a segment of new data, larger than the others. If it is lost and nothing else is, the
//! path does not carry it, which says nothing of congestion (RFC 4821 §7.6.2).

use super::SendHalf;
use super::recovery::Mode;
use crate::config::TcpConfig;
use crate::flow::Seq;

/// Segments that must follow a probe, so that its loss is found without a timeout (RFC 4821 §7.4).
const FOLLOWING: u32 = 3;

/// What a connection whose path is narrow remembers of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow {
    /// The largest payload without options that the peer takes.
    most: u16,
    probe: Option<Probe>,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug)]
struct Probe {
    start: Seq,
    end: Seq,
    /// Bytes of the packet.
    size: u16,
    is_lost: bool,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// Bytes of the packet.
    pub size: u16,
    /// It arrived.
    pub arrived: bool,
}

/// What a connection has learned of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathNews {
    /// A probe has arrived, or is lost.
    Probed(Probed),
    /// Segments vanish (RFC 4821 §7.7).
    BlackHole {
        /// Bytes of payload and options in the first of them.
        payload: u16,
        /// That has lasted for long.
        again: bool,
    },
}

impl SendHalf {
    /// The path takes segments of `mss` bytes.
    pub(crate) fn on_path(&mut self, mss: u16, config: &TcpConfig) {
        if mss < self.mss {
            self.on_smaller_path(mss, config);
        } else if mss > self.mss {
            self.on_larger_path(mss);
        }
    }

    /// The path takes smaller packets than thought (RFC 1191 §6.5): send what is out again.
    fn on_smaller_path(&mut self, mss: u16, config: &TcpConfig) {
        let is_first = self.congestion.is_unused() && self.congestion.window() > self.mss.into();
        if is_first {
            // Nothing has been sent: the window is the initial one, now of smaller segments.
            self.congestion.on_idle(config.congestion.initial_window, mss.into());
            self.congestion.set_mss(mss.into());
        } else {
            self.congestion.on_mss(self.mss.into(), mss.into());
        }
        let most = self.mss;
        self.rare_mut().narrow.get_or_insert(Narrow { most, probe: None });
        self.mss = mss;
        if self.flight() > 0 && self.mode() == Mode::Open {
            self.recover_all();
        }
    }

    /// A probe has arrived, or an estimate has ended: segments may be larger again.
    fn on_larger_path(&mut self, mss: u16) {
        let Some(Narrow { most, .. }) = self.narrow() else { return };
        self.mss = mss.min(*most);
        self.congestion.set_mss(self.mss.into());
    }

    /// The payload of a probe that may leave now, where the path calls for one with `wanted` bytes
    /// of payload and options, of these `options`, and other segments have `segment` bytes.
    pub(crate) fn path_probe(&self, wanted: u16, options: u32, segment: u32) -> Option<u32> {
        let narrow = self.narrow()?;
        if wanted <= self.mss || wanted > narrow.most || narrow.probe.is_some() {
            return None;
        }
        let len = u32::from(wanted).checked_sub(options)?;
        let flight = self.flight();
        let queued = (self.buffer.len() as u32).saturating_sub(flight);
        let usable = queued.min(self.window.saturating_sub(flight));
        let may = self.recovery.is_none() && self.urgent().is_none();
        (may && usable >= len + FOLLOWING * segment).then_some(len)
    }

    /// A probe of `size` bytes, headers included, has left.
    pub(crate) fn on_path_probe_sent(&mut self, start: Seq, end: Seq, size: u16) {
        if let Some(narrow) = self.narrow_mut() {
            narrow.probe = Some(Probe { start, end, size, is_lost: false });
        }
    }

    /// What became of the probe, once that is known.
    pub(crate) fn take_probed(&mut self) -> Option<Probed> {
        let una = self.una;
        let narrow = self.narrow_mut()?;
        let Probe { end, size, is_lost, .. } = narrow.probe?;
        let arrived = !is_lost && una.at_or_after(end);
        if !arrived && !is_lost {
            return None;
        }
        narrow.probe = None;
        Some(Probed { size, arrived })
    }

    /// Something is lost, or seems to be. True if that is the probe and nothing else: congestion is
    /// no reason then.
    pub(super) fn blames_path(&mut self) -> bool {
        let Some(Probe { start, end, is_lost: false, .. }) = self.probe() else { return false };
        let lost = self.sent.next_lost(self.una, u32::MAX / 4);
        let is_alone =
            lost == Some((start, end.since(start))) && self.sent.lost(self.una) == end.since(start);
        if is_alone {
            self.set_probe_lost();
        }
        is_alone
    }

    /// What is lost begins at SND.UNA, and how far it reaches is not known: by a timeout, or by
    /// duplicate ACKs. If the probe is there, it is lost.
    pub(super) fn suspect_probe(&mut self) {
        if self.probe().is_some_and(|probe| probe.start == self.una) {
            self.set_probe_lost();
        }
    }

    /// The bytes from `start` to `end` are sent again, in segments that are no probes. Their
    /// acknowledgement says nothing of the path.
    pub(super) fn forget_probe_in(&mut self, start: Seq, end: Seq) {
        let Some(narrow) = self.narrow_mut() else { return };
        let is_outside =
            |probe: &Probe| end.at_or_before(probe.start) || start.at_or_after(probe.end);
        narrow.probe = narrow.probe.filter(is_outside);
    }

    /// The payload and options of the segment at SND.UNA, at most.
    pub(crate) fn first_payload(&self) -> u16 {
        self.flight().min(self.mss.into()) as u16
    }

    fn narrow(&self) -> Option<&Narrow> {
        self.rare.as_ref()?.narrow.as_ref()
    }

    fn narrow_mut(&mut self) -> Option<&mut Narrow> {
        self.rare.as_mut()?.narrow.as_mut()
    }

    fn probe(&self) -> Option<Probe> {
        self.narrow()?.probe
    }

    fn set_probe_lost(&mut self) {
        if let Some(probe) = self.narrow_mut().and_then(|narrow| narrow.probe.as_mut()) {
            probe.is_lost = true;
        }
    }
}
