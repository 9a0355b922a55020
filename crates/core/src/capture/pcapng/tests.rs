use crate::capture::pcapng::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn file() -> Vec<u8> {
    let mut out = Vec::new();
    section(&mut out);
    interface(Medium::Ethernet, "tap0", &mut out);
    out
}

fn read(bytes: &[u8]) -> Vec<Result<Block<'_>, ReadError>> {
    Reader::new(bytes).collect()
}

#[test]
fn the_first_bytes_are_what_every_reader_looks_for() {
    let mut out = Vec::new();
    section(&mut out);
    let expected = [
        0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0,
    ];
    assert_eq!(out, expected);
    out.clear();
    interface(Medium::Ip, "ab", &mut out);
    let expected = [
        1, 0, 0, 0, 40, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0, b'a', b'b', 0, 0, 9, 0, 1,
        0, 9, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0,
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_name_is_cut_between_characters() {
    for (name, bytes) in [("x".repeat(255), 255), ("x".repeat(256), 255), ("é".repeat(128), 254)] {
        let mut out = Vec::new();
        interface(Medium::Ip, &name, &mut out);
        assert_eq!(u16_le(&out, 18), Some(bytes));
        assert_eq!(read(&out), [Ok(Block::Interface { medium: Some(Medium::Ip) })]);
    }
}

/// The last thing read, its error as a pair.
fn what(bytes: &[u8]) -> Result<Block<'_>, (usize, &'static str)> {
    read(bytes).last().copied().unwrap().map_err(|error| (error.offset, error.what))
}

#[test]
fn a_broken_capture_is_refused_where_it_is_broken() {
    let good = file();
    assert_eq!(what(&good), Ok(Block::Interface { medium: Some(Medium::Ethernet) }));
    assert_eq!(what(&good[..good.len() - 1]), Err((28, "the block is cut short")));
    assert_eq!(what(&good[..30]), Err((28, "the block is cut short")));

    let mut lengths = good.clone();
    let last = lengths.len() - 4;
    lengths[last] ^= 4;
    assert_eq!(what(&lengths), Err((28, "the block's two lengths differ")));
    let mut impossible = good.clone();
    impossible[4] = 8;
    assert_eq!(what(&impossible), Err((0, "the block's length is impossible")));
    let mut order = good.clone();
    order[8..12].reverse();
    assert_eq!(what(&order), Err((0, "the section is not little-endian")));
    let mut microseconds = good;
    let at = microseconds.len() - 12;
    assert_eq!(microseconds[at], NANOSECONDS);
    microseconds[at] = 6;
    let error = "the interface's time is not in nanoseconds";
    assert_eq!(what(&microseconds), Err((28, error)));
}

#[test]
fn other_blocks_and_link_types_are_passed_over() {
    let mut out = Vec::new();
    block(5, &mut out, |out| out.extend_from_slice(&[0; 4]));
    interface(Medium::Ethernet, "", &mut out);
    out[24] = 113;
    assert_eq!(read(&out), [Ok(Block::Other(5)), Ok(Block::Interface { medium: None })]);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        frames in vec((any::<u64>(), 0..3, vec(any::<u8>(), 0..70)), 0..5), number: u32,
    ) {
        let mut out = file();
        let directions = [None, Some(Direction::Inbound), Some(Direction::Outbound)];
        for (ns, direction, bytes) in &frames {
            let direction = directions[*direction as usize];
            packet(number, Instant::from_nanos(*ns), direction, bytes, &mut out);
        }
        let blocks = read(&out);
        prop_assert_eq!(blocks[0], Ok(Block::Section));
        prop_assert_eq!(blocks.len(), 2 + frames.len());
        for (block, (ns, direction, bytes)) in blocks[2..].iter().zip(&frames) {
            let expected = Block::Packet {
                interface: number,
                time: Instant::from_nanos(*ns),
                direction: directions[*direction as usize],
                original_len: bytes.len() as u32,
                bytes,
            };
            prop_assert_eq!(*block, Ok(expected));
        }
    }

    #[test]
    fn any_bytes_are_blocks_or_an_error(bytes in vec(any::<u8>(), 0..100), start in 0usize..3) {
        let mut file = file();
        file.truncate([0, 28, usize::MAX][start]);
        file.extend_from_slice(&bytes);
        prop_assert!(Reader::new(&file).count() <= file.len() / 12 + 1);
    }
}
