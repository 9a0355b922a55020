//! The path to another host, along which TCP writes its segments.

use core::net::IpAddr;

use crate::frame::Capabilities;
use crate::wire::fast::{Envelope, Template};
use crate::wire::{ethernet, ip};

/// The largest IP packet there is, and so the largest we hand to a device to cut.
const PACKET_BYTES_MAX: usize = 65_535;

/// How a packet gets to the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Our address.
    pub source: IpAddr,
    /// The other end's.
    pub destination: IpAddr,
    /// The link header, on a medium that has one.
    pub link: Option<ethernet::Header>,
    /// The largest IP packet on the path.
    pub mtu: u16,
    /// IPv4's DF: off only on a path narrower than we care to go.
    pub dont_fragment: bool,
    /// The size of a packet that would tell whether the path carries more; 0: none would.
    pub probe: u16,
    /// TTL or hop limit, where a packet has none of its own.
    pub hop_limit: u8,
    /// The device's capabilities.
    pub device: Capabilities,
}

impl Path {
    /// The largest TCP payload and options together in one packet.
    pub(crate) fn mss(&self) -> u16 {
        self.payload_of(self.mtu)
    }

    /// The TCP payload and options in the packet that probes the path; 0: none does.
    pub(crate) fn probe_mss(&self) -> u16 {
        self.payload_of(self.probe)
    }

    fn payload_of(&self, packet: u16) -> u16 {
        let headers = ip::header_len(self.source) + 20;
        packet.saturating_sub(headers as u16)
    }

    /// Our address, or the other end's.
    pub(crate) fn address(&self, ours: bool) -> IpAddr {
        if ours { self.source } else { self.destination }
    }

    /// This path for packets with `marks`.
    #[must_use]
    pub(crate) fn marked(&self, marks: IpFields) -> PacketPath<'_> {
        PacketPath {
            base: self,
            dont_fragment: self.dont_fragment,
            hop_limit: marks.hop_limit.unwrap_or(self.hop_limit),
            traffic_class: marks.traffic_class,
        }
    }

    /// Payload bytes that may be handed at once to a device that completes checksums, in segments
    /// of `segment` bytes, under a TCP header of `header` bytes: a multiple of `segment`.
    pub(crate) fn large_payload(&self, header: usize, segment: usize) -> usize {
        let packet = PACKET_BYTES_MAX.min(self.device.segmentation as usize);
        let payload = packet.saturating_sub(ip::header_len(self.source) + header);
        (payload / segment.max(1)).max(1) * segment
    }
}

/// The path of a packet: with what its IP header says besides the addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketPath<'a> {
    /// The fields that packets on it have in common.
    pub base: &'a Path,
    /// IPv4's DF.
    pub dont_fragment: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
}

impl PacketPath<'_> {
    /// This path for the fast layout, if all its packets are alike: IPv4 that no router cuts, with
    /// checksums of our own.
    pub(crate) fn fast(&self) -> Option<FastPath> {
        let &PacketPath { base, dont_fragment, hop_limit, traffic_class } = self;
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (base.source, base.destination) else {
            return None;
        };
        if !dont_fragment || base.device.checksum {
            return None;
        }
        let template = Envelope { source, destination, traffic_class, hop_limit }.template();
        Some(FastPath { link: base.link, template, mss: base.mss() })
    }
}

/// A path whose packets may have the fast layout, and what they have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastPath {
    /// The link header, on a medium that has one.
    pub link: Option<ethernet::Header>,
    /// The IP header.
    pub template: Template,
    /// The largest TCP payload and options together in one packet.
    pub mss: u16,
}

/// The fields that a sender asks of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct IpFields {
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// TTL or hop limit; `None`: the host's.
    pub hop_limit: Option<u8>,
}
