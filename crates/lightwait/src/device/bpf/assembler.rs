//! Writes the instructions of eBPF (RFC 9669) that our programs need: no more than these.
//!
//! A jump names a label, which is placed later: the programs run forwards only, so that the
//! kernel's verifier sees at once that they end.

/// A register. A call, and a load from the packet of a socket, leave nothing in `R1` to `R5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    /// A result: of a call, of a load from the packet, of the program.
    R0 = 0,
    /// The first argument. At the program's start: its context.
    R1,
    /// The second argument.
    R2,
    /// The third argument.
    R3,
    R4,
    R5,
    /// A load from the packet of a socket reads the context here.
    R6,
    R7,
    R8,
}

/// The width of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// An operation of arithmetic on 64 bits; shifts are logical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Add = 0x00,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// A condition of a jump, without signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum When {
    Equal = 0x10,
    Greater = 0x20,
    /// A bit of the right side is set in the left.
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
}

const CLASS_LOAD: u8 = 0x00;
const CLASS_LOAD_INDIRECT: u8 = 0x01;
const CLASS_BYTE_ORDER: u8 = 0x04;
const CLASS_JUMP: u8 = 0x05;
const CLASS_JUMP_32: u8 = 0x06;
const CLASS_ALU_64: u8 = 0x07;
const SOURCE_REGISTER: u8 = 0x08;
const MODE_PACKET: u8 = 0x20;
const MODE_PACKET_INDEXED: u8 = 0x40;
const MODE_MEMORY: u8 = 0x60;
const LOAD_LONG: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = CLASS_BYTE_ORDER | SOURCE_REGISTER | 0xd0;
const JUMP: u8 = CLASS_JUMP;
const CALL: u8 = CLASS_JUMP | 0x80;
const EXIT: u8 = CLASS_JUMP | 0x90;
/// The immediate of a long load is the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;

/// An instruction, as bpf(2) takes it: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program that is being written.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// The jumps, by their index, and where each leads.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label that has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Jumps to `label` lead to the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// `to = to op value`; the value's sign is extended.
    pub(crate) fn alu(&mut self, op: Op, to: Reg, value: i32) {
        self.push(CLASS_ALU_64 | op as u8, to as u8, 0, 0, value);
    }

    /// `to = to op from`.
    pub(crate) fn alu_by(&mut self, op: Op, to: Reg, from: Reg) {
        self.push(CLASS_ALU_64 | SOURCE_REGISTER | op as u8, to as u8, from as u8, 0, 0);
    }

    /// `to = value`, of 64 bits.
    pub(crate) fn long(&mut self, to: Reg, value: u64) {
        self.push(LOAD_LONG, to as u8, 0, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// `to` = the map with that descriptor.
    pub(crate) fn map(&mut self, to: Reg, descriptor: i32) {
        self.push(LOAD_LONG, to as u8, MAP_DESCRIPTOR, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// `to` = what memory holds at `base + offset`, in the machine's byte order.
    pub(crate) fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) {
        let code = CLASS_LOAD_INDIRECT | MODE_MEMORY | size as u8;
        self.push(code, to as u8, base as u8, offset, 0);
    }

    /// `R0` = what the packet of a socket has at `offset`, in the machine's byte order. Where the
    /// packet is shorter the program ends, with 0.
    pub(crate) fn packet(&mut self, size: Size, offset: i32) {
        self.push(CLASS_LOAD | MODE_PACKET | size as u8, 0, 0, 0, offset);
    }

    /// The same at `index + offset`.
    pub(crate) fn packet_at(&mut self, size: Size, index: Reg, offset: i32) {
        self.push(CLASS_LOAD | MODE_PACKET_INDEXED | size as u8, 0, index as u8, 0, offset);
    }

    /// Takes the value of `size` bits in network byte order to the machine's.
    pub(crate) fn network_to_host(&mut self, size: Size, to: Reg) {
        let bits = match size {
            Size::Byte => return,
            Size::Half => 16,
            Size::Word => 32,
        };
        self.push(TO_BIG_ENDIAN, to as u8, 0, 0, bits);
    }

    /// Jumps to `label` when the low 32 bits of `left` are so beside `right`.
    pub(crate) fn jump_if(&mut self, left: Reg, when: When, right: u32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JUMP_32 | when as u8, left as u8, 0, 0, right as i32);
    }

    /// Jumps to `label` when `left` is so beside `right`, of 64 bits.
    pub(crate) fn jump_if_by(&mut self, left: Reg, when: When, right: Reg, label: Label) {
        self.jumps.push((self.code.len(), label));
        let code = CLASS_JUMP | SOURCE_REGISTER | when as u8;
        self.push(code, left as u8, right as u8, 0, 0);
    }

    /// Jumps to `label`.
    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP, 0, 0, 0, 0);
    }

    /// `R0` = what the kernel's function of that number returns.
    pub(crate) fn call(&mut self, function: i32) {
        self.push(CALL, 0, 0, 0, function);
    }

    /// Ends the program, with `R0`.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Ends the program, with `value`.
    pub(crate) fn exit_with(&mut self, value: i32) {
        self.alu(Op::Move, Reg::R0, value);
        self.exit();
    }

    /// The program, with its jumps.
    ///
    /// # Panics
    ///
    /// Panics if a label has no place or is too far: the program is wrong.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("the label has a place");
            // Counted from the instruction behind the jump.
            let offset = place as isize - at as isize - 1;
            self.code[at].offset = offset.try_into().expect("the label is near");
        }
        self.code
    }

    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        // Two bit fields of C, whose order is the machine's.
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { code, registers, offset, immediate }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_the_kernels_headers() {
        let mut program = Assembler::default();
        let end = program.label();
        program.alu_by(Op::Move, Reg::R6, Reg::R1);
        program.load(Size::Word, Reg::R0, Reg::R6, 16);
        program.jump_if(Reg::R0, When::NotEqual, 8, end);
        program.packet(Size::Half, 12);
        program.packet_at(Size::Word, Reg::R8, 2);
        program.network_to_host(Size::Half, Reg::R0);
        program.long(Reg::R2, 0x0102_0304_f506_0708);
        program.map(Reg::R1, 7);
        program.jump_if_by(Reg::R2, When::Greater, Reg::R3, end);
        program.call(51);
        program.jump(end);
        program.place(end);
        program.exit_with(2);
        assert_eq!(
            program.finish(),
            [
                instruction(0xbf, 0x16, 0, 0),
                instruction(0x61, 0x60, 16, 0),
                instruction(0x56, 0x00, 10, 8),
                instruction(0x28, 0x00, 0, 12),
                instruction(0x40, 0x80, 0, 2),
                instruction(0xdc, 0x00, 0, 16),
                instruction(0x18, 0x02, 0, 0xf506_0708_u32 as i32),
                instruction(0x00, 0x00, 0, 0x0102_0304),
                instruction(0x18, 0x11, 0, 7),
                instruction(0x00, 0x00, 0, 0),
                instruction(0x2d, 0x32, 2, 0),
                instruction(0x85, 0x00, 0, 51),
                instruction(0x05, 0x00, 0, 0),
                instruction(0xb7, 0x00, 0, 2),
                instruction(0x95, 0x00, 0, 0),
            ]
        );
    }

    #[test]
    #[should_panic(expected = "the label has a place")]
    fn a_jump_to_nowhere_is_our_mistake() {
        let mut program = Assembler::default();
        let nowhere = program.label();
        program.jump(nowhere);
        program.finish();
    }
}
