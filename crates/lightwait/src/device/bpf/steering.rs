//! The program that finds the shard which owns a frame's connection: [`Steering::owner`] in eBPF.
//!
//! It judges frames that come to us: their destination is our end. TCP or UDP over IPv4, whole, or
//! over IPv6 without extension headers goes to its owner. All else goes to shard 0: ARP, ICMP,
//! fragments, frames with VLAN tags, and what is too short.
//!
//! ```text
//!   IPv4   0 version, header length   6 fragment   9 protocol     12 peer   16 ours   ports
//!   IPv6   0 version                               6 next header   8 peer   24 ours   40 ports
//! ```

use lightwait_core::flow::Steering;

use super::assembler::{Assembler, Instruction, Label, Op, Reg, Size, When};

/// Offsets in `struct __sk_buff`.
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_PRESENT: i16 = 20;

const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;

/// Where the kernel's view of a frame starts when it runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the Ethernet header: a TAP that sends.
    Link,
    /// At the IP header: a packet socket that receives.
    Network,
}

impl Start {
    /// Offset of the IP header.
    fn ip(self) -> i32 {
        match self {
            Start::Link => 14,
            Start::Network => 0,
        }
    }
}

/// The program that sends all to the first.
pub(crate) fn first() -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.exit_with(0);
    program.finish()
}

/// The program that returns the owner's number.
pub(crate) fn owner(steering: &Steering, start: Start) -> Vec<Instruction> {
    let mut program = Writer { to: Assembler::default(), steering, ip: start.ip() };
    let to = &mut program.to;
    let [ipv4, ipv6, hash, other] = [(); 4].map(|()| to.label());
    to.alu_by(Op::Move, Reg::R6, Reg::R1);
    // A tag beside the frame; one inside it is a protocol of its own.
    to.load(Size::Word, Reg::R0, Reg::R6, SKB_VLAN_PRESENT);
    to.jump_if(Reg::R0, When::NotEqual, 0, other);
    to.load(Size::Word, Reg::R0, Reg::R6, SKB_PROTOCOL);
    for (protocol, label) in [(libc::ETH_P_IP, ipv4), (libc::ETH_P_IPV6, ipv6)] {
        to.jump_if(Reg::R0, When::Equal, (protocol as u16).to_be().into(), label);
    }
    to.place(other);
    to.exit_with(0);

    to.place(ipv4);
    program.ipv4(other);
    program.to.jump(hash);
    program.to.place(ipv6);
    program.ipv6(other);
    program.to.place(hash);
    program.owner();
    program.to.finish()
}

/// Writes the parts. `R7` holds the hash; `R8` is where the ports are, behind the IP header's
/// begin.
struct Writer<'a> {
    to: Assembler,
    steering: &'a Steering,
    ip: i32,
}

impl Writer<'_> {
    fn ipv4(&mut self, other: Label) {
        let (to, ip) = (&mut self.to, self.ip);
        to.packet(Size::Byte, ip);
        to.jump_if(Reg::R0, When::Less, 0x45, other);
        to.jump_if(Reg::R0, When::Greater, 0x4f, other);
        to.alu_by(Op::Move, Reg::R8, Reg::R0);
        to.alu(Op::And, Reg::R8, 0xf);
        to.alu(Op::ShiftLeft, Reg::R8, 2);
        // More fragments, or an offset.
        to.packet(Size::Half, ip + 6);
        to.jump_if(Reg::R0, When::AnyBit, 0x3fff, other);
        to.packet(Size::Byte, ip + 9);
        self.transport(other);
        self.ports();
        self.addresses(&[16, 12]);
    }

    fn ipv6(&mut self, other: Label) {
        let (to, ip) = (&mut self.to, self.ip);
        to.packet(Size::Byte, ip);
        to.alu(Op::ShiftRight, Reg::R0, 4);
        to.jump_if(Reg::R0, When::NotEqual, 6, other);
        to.packet(Size::Byte, ip + 6);
        self.transport(other);
        self.to.alu(Op::Move, Reg::R8, 40);
        self.ports();
        self.addresses(&[24, 28, 32, 36, 8, 12, 16, 20]);
    }

    /// Leaves for `other` unless `R0` is the number of a protocol with ports.
    fn transport(&mut self, other: Label) {
        let to = &mut self.to;
        let has_ports = to.label();
        to.jump_if(Reg::R0, When::Equal, PROTOCOL_TCP, has_ports);
        to.jump_if(Reg::R0, When::NotEqual, PROTOCOL_UDP, other);
        to.place(has_ports);
    }

    /// Begins the hash with the ports: the peer's come first in the frame, ours in the hash.
    fn ports(&mut self) {
        let (to, keys) = (&mut self.to, self.steering.keys());
        to.long(Reg::R7, keys[0]);
        to.packet_at(Size::Word, Reg::R8, self.ip);
        to.alu_by(Op::Move, Reg::R1, Reg::R0);
        to.alu(Op::ShiftRight, Reg::R1, 16);
        to.alu(Op::And, Reg::R0, 0xffff);
        to.alu(Op::ShiftLeft, Reg::R0, 16);
        to.alu_by(Op::Or, Reg::R0, Reg::R1);
        self.term(keys[1]);
    }

    /// Adds the words at these offsets of the IP header.
    fn addresses(&mut self, offsets: &[i32]) {
        for (offset, key) in offsets.iter().zip(&self.steering.keys()[2..]) {
            self.to.packet(Size::Word, self.ip + offset);
            self.term(*key);
        }
    }

    /// Adds the product of `R0` and its key.
    fn term(&mut self, key: u64) {
        self.to.long(Reg::R1, key);
        self.to.alu_by(Op::Multiply, Reg::R1, Reg::R0);
        self.to.alu_by(Op::Add, Reg::R7, Reg::R1);
    }

    /// Ends with the owner by the hash.
    fn owner(&mut self) {
        let to = &mut self.to;
        to.alu(Op::ShiftRight, Reg::R7, 32);
        to.alu(Op::Multiply, Reg::R7, self.steering.shards().into());
        to.alu(Op::ShiftRight, Reg::R7, 32);
        to.alu_by(Op::Move, Reg::R0, Reg::R7);
        to.exit();
    }
}

#[cfg(test)]
mod tests;
