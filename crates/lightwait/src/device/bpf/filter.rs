//! The program of XDP that takes from an interface what is ours, and leaves all else to the
//! kernel's own stack.
//!
//! ```text
//!   ARP            38 the address asked for, or answered
//!   IPv4           20 fragment   23 protocol   30 to     14 + header length: ports
//!   IPv6           20 next header              38 to     54 ports
//!   NDP            54 type       62 the address asked for, or told
//! ```
//!
//! Offsets count from the Ethernet header. A frame that is too short for its kind, or has VLAN
//! tags, is the kernel's.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::assembler::{Assembler, Instruction, Label, Op, Reg, Size, When};

/// Offsets in `struct xdp_md`.
const XDP_DATA: i16 = 0;
const XDP_DATA_END: i16 = 4;
const XDP_QUEUE: i16 = 16;

/// The verdict that leaves the frame to the kernel.
const PASS: i32 = 2;

/// The kernel's function that sends the frame to a map's entry, or returns its last argument.
const REDIRECT_MAP: i32 = 51;

const ICMP: u32 = 1;
const TCP: u32 = 6;
const ICMPV6: u32 = 58;
const NEIGHBOR_SOLICITATION: u32 = 135;
const NEIGHBOR_ADVERTISEMENT: u32 = 136;

/// The frame's begin, and its end.
const FRAME: Reg = Reg::R2;
const END: Reg = Reg::R3;

/// What becomes of a frame that is ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    /// The socket of its queue gets it, by the map with that descriptor; without a socket the
    /// kernel.
    ToSocket(i32),
    /// The program returns that verdict, for a test.
    #[cfg(test)]
    Verdict(i32),
}

/// The program that takes what is for `addresses`. With `ports` it leaves to the kernel what is
/// neither TCP to one of these ports nor ICMP nor a neighbour's.
pub(crate) fn ours(
    addresses: &[IpAddr],
    ports: Option<&RangeInclusive<u16>>,
    take: Take,
) -> Vec<Instruction> {
    let mut to = Assembler::default();
    let [arp, ipv4, ipv6, ours, pass] = [(); 5].map(|()| to.label());
    let mut filter = Filter { to, addresses, ports, ours, pass };
    let to = &mut filter.to;
    to.alu_by(Op::Move, Reg::R6, Reg::R1);
    to.load(Size::Word, FRAME, Reg::R6, XDP_DATA);
    to.load(Size::Word, END, Reg::R6, XDP_DATA_END);
    filter.has(14);
    let to = &mut filter.to;
    to.load(Size::Half, Reg::R0, FRAME, 12);
    // The kernel refuses a program with a part that no frame comes to.
    let has_ipv4 = addresses.iter().any(IpAddr::is_ipv4);
    let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
    let kinds = [
        (has_ipv4, libc::ETH_P_ARP, arp),
        (has_ipv4, libc::ETH_P_IP, ipv4),
        (has_ipv6, libc::ETH_P_IPV6, ipv6),
    ];
    for (_, kind, label) in kinds.into_iter().filter(|(is_ours, ..)| *is_ours) {
        to.jump_if(Reg::R0, When::Equal, (kind as u16).to_be().into(), label);
    }
    to.jump(pass);
    if has_ipv4 {
        filter.to.place(arp);
        filter.arp();
        filter.to.place(ipv4);
        filter.ipv4();
    }
    if has_ipv6 {
        filter.to.place(ipv6);
        filter.ipv6();
    }
    if has_ipv4 || has_ipv6 {
        filter.take(take);
    }
    filter.to.place(pass);
    filter.to.exit_with(PASS);
    filter.to.finish()
}

/// Writes the parts.
struct Filter<'a> {
    to: Assembler,
    addresses: &'a [IpAddr],
    ports: Option<&'a RangeInclusive<u16>>,
    ours: Label,
    pass: Label,
}

impl Filter<'_> {
    /// Leaves frames shorter than `len` bytes to the kernel.
    fn has(&mut self, len: i32) {
        self.to.alu_by(Op::Move, Reg::R1, FRAME);
        self.to.alu(Op::Add, Reg::R1, len);
        self.to.jump_if_by(Reg::R1, When::Greater, END, self.pass);
    }

    fn arp(&mut self) {
        self.has(14 + 28);
        self.jump_if_ipv4(38, self.ours);
        self.to.jump(self.pass);
    }

    fn ipv4(&mut self) {
        let for_us = self.to.label();
        self.has(14 + 20);
        self.jump_if_ipv4(30, for_us);
        self.to.jump(self.pass);
        self.to.place(for_us);
        let Some(ports) = self.ports else { return self.to.jump(self.ours) };
        let (to, ours, pass) = (&mut self.to, self.ours, self.pass);
        to.load(Size::Byte, Reg::R0, FRAME, 23);
        to.jump_if(Reg::R0, When::Equal, ICMP, ours);
        to.jump_if(Reg::R0, When::NotEqual, TCP, pass);
        // The ports of a fragment are not known.
        to.load(Size::Half, Reg::R0, FRAME, 20);
        to.jump_if(Reg::R0, When::AnyBit, 0x3fff_u16.to_be().into(), pass);
        to.load(Size::Byte, Reg::R4, FRAME, 14);
        to.alu(Op::And, Reg::R4, 0xf);
        to.alu(Op::ShiftLeft, Reg::R4, 2);
        let packet = Reg::R5;
        to.alu_by(Op::Move, packet, FRAME);
        to.alu_by(Op::Add, packet, Reg::R4);
        to.alu_by(Op::Move, Reg::R1, packet);
        to.alu(Op::Add, Reg::R1, 14 + 4);
        to.jump_if_by(Reg::R1, When::Greater, END, pass);
        to.load(Size::Half, Reg::R0, packet, 14 + 2);
        self.jump_by_port(ports);
    }

    fn ipv6(&mut self) {
        let [for_us, neighbour] = [(); 2].map(|()| self.to.label());
        self.has(14 + 40);
        self.jump_if_ipv6(38, for_us);
        // A neighbour asks a group for our address, or tells a group that it has it.
        let (to, pass) = (&mut self.to, self.pass);
        to.load(Size::Byte, Reg::R0, FRAME, 38);
        to.jump_if(Reg::R0, When::NotEqual, 0xff, pass);
        to.load(Size::Byte, Reg::R0, FRAME, 20);
        to.jump_if(Reg::R0, When::NotEqual, ICMPV6, pass);
        self.has(14 + 40 + 24);
        let to = &mut self.to;
        to.load(Size::Byte, Reg::R0, FRAME, 54);
        to.jump_if(Reg::R0, When::Equal, NEIGHBOR_SOLICITATION, neighbour);
        to.jump_if(Reg::R0, When::NotEqual, NEIGHBOR_ADVERTISEMENT, pass);
        to.place(neighbour);
        self.jump_if_ipv6(62, self.ours);
        self.to.jump(self.pass);
        self.to.place(for_us);
        let Some(ports) = self.ports else { return self.to.jump(self.ours) };
        let (to, ours, pass) = (&mut self.to, self.ours, self.pass);
        to.load(Size::Byte, Reg::R0, FRAME, 20);
        to.jump_if(Reg::R0, When::Equal, ICMPV6, ours);
        to.jump_if(Reg::R0, When::NotEqual, TCP, pass);
        self.has(14 + 40 + 4);
        self.to.load(Size::Half, Reg::R0, FRAME, 56);
        self.jump_by_port(ports);
    }

    /// Jumps to `label` if one of our IPv4 addresses is at `offset`.
    fn jump_if_ipv4(&mut self, offset: i16, label: Label) {
        self.to.load(Size::Word, Reg::R0, FRAME, offset);
        for address in self.addresses {
            if let IpAddr::V4(address) = address {
                let word = u32::from_ne_bytes(address.octets());
                self.to.jump_if(Reg::R0, When::Equal, word, label);
            }
        }
    }

    /// Jumps to `label` if one of our IPv6 addresses is at `offset`.
    fn jump_if_ipv6(&mut self, offset: i16, label: Label) {
        const WORDS: [Reg; 4] = [Reg::R0, Reg::R4, Reg::R5, Reg::R7];
        for (register, at) in WORDS.into_iter().zip([0, 4, 8, 12]) {
            self.to.load(Size::Word, register, FRAME, offset + at);
        }
        for address in self.addresses {
            let IpAddr::V6(address) = address else { continue };
            let next = self.to.label();
            for (register, bytes) in WORDS.into_iter().zip(address.octets().as_chunks::<4>().0) {
                self.to.jump_if(register, When::NotEqual, u32::from_ne_bytes(*bytes), next);
            }
            self.to.jump(label);
            self.to.place(next);
        }
    }

    /// Ends with the port in `R0`, as it is in the frame.
    fn jump_by_port(&mut self, ports: &RangeInclusive<u16>) {
        self.to.network_to_host(Size::Half, Reg::R0);
        self.to.jump_if(Reg::R0, When::Less, (*ports.start()).into(), self.pass);
        self.to.jump_if(Reg::R0, When::Greater, (*ports.end()).into(), self.pass);
        self.to.jump(self.ours);
    }

    fn take(&mut self, take: Take) {
        let to = &mut self.to;
        to.place(self.ours);
        match take {
            Take::ToSocket(map) => {
                to.map(Reg::R1, map);
                to.load(Size::Word, Reg::R2, Reg::R6, XDP_QUEUE);
                to.alu(Op::Move, Reg::R3, PASS);
                to.call(REDIRECT_MAP);
                to.exit();
            }
            #[cfg(test)]
            Take::Verdict(verdict) => to.exit_with(verdict),
        }
    }
}

#[cfg(test)]
mod tests;
