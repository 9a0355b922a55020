use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn emitted(options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    options.emit(&mut out);
    assert_eq!(out.len(), options.len());
    out
}

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock { start: Seq(start), end: Seq(end) }
}

fn blocks(n: u32) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    for i in 0..n {
        assert!(blocks.push(block(i * 100, i * 100 + 50)));
    }
    blocks
}

const STAMPS: Option<Timestamps> = Some(Timestamps { value: 0x0102_0304, echo: 0x0506_0708 });

#[test]
fn a_syn_has_the_options_in_the_usual_order() {
    let syn = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: STAMPS,
        ..Options::default()
    };
    let bytes = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7];
    assert_eq!(emitted(&syn), bytes);
    assert_eq!(Options::parse(&bytes), Ok(syn));
}

#[test]
fn a_later_segment_has_them_aligned() {
    let sack = blocks(1);
    let later = Options { timestamps: STAMPS, sack, ..Options::default() };
    let bytes = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 50];
    assert_eq!(emitted(&later), bytes);
    assert_eq!(Options::parse(&bytes), Ok(later));
    let permitted = Options { sack_permitted: true, ..Options::default() };
    assert_eq!(emitted(&permitted), [1, 1, 4, 2]);
}

#[test]
fn sack_blocks_are_cut_to_what_fits() {
    let alone = Options { sack: blocks(4), ..Options::default() };
    assert_eq!((alone.len(), alone.sack_room()), (36, 4));
    let mut beside = Options { timestamps: STAMPS, ..alone };
    assert_eq!((beside.len(), beside.sack_room()), (40, 3));
    assert_eq!(Options::parse(&emitted(&beside)).unwrap().sack, blocks(3));
    assert!(beside.experimental.push(253, &[0; 14]));
    assert_eq!((beside.len(), beside.sack_room()), (40, 1));
    assert!(beside.experimental.push(253, &[]));
    assert_eq!((beside.len(), beside.sack_room()), (32, 0));
}

#[test]
fn the_fifth_sack_block_is_refused() {
    let mut four = blocks(4);
    assert!(!four.push(block(1, 2)));
    assert_eq!(four, blocks(4));
    assert_eq!(four.iter().len(), 4);
}

#[test]
fn a_syn_with_everything_just_fits() {
    let mut full = Options {
        mss: Some(1460),
        window_scale: Some(14),
        sack_permitted: true,
        timestamps: STAMPS,
        ..Options::default()
    };
    assert!(full.experimental.push(253, &[9; 18]));
    assert_eq!(full.len(), MAX_OPTIONS_BYTES);
    assert_eq!(Options::parse(&emitted(&full)), Ok(full));
    assert!(!full.experimental.push(254, &[]), "one beyond");
}

#[test]
fn experimental_options_are_kept_up_to_the_bound_others_not() {
    let mut kept = Experimental::default();
    assert!(!kept.push(252, &[1]));
    assert!(!kept.push(253, &[0; 19]));
    assert!(kept.push(253, &[1, 2, 3]));
    assert!(kept.push(254, &[4, 5]));
    assert!(kept.iter().eq([(253, &[1u8, 2, 3][..]), (254, &[4, 5][..])]));
    // On the wire one may be longer: it is passed over, what follows is not.
    let mut bytes = std::vec![253, 21];
    bytes.resize(21, 0);
    bytes.extend_from_slice(&[254, 2]);
    let parsed = Options::parse(&bytes).unwrap();
    assert!(parsed.experimental.iter().eq([(254, &[][..])]));
}

#[test]
fn illegal_lengths_are_malformed_and_their_legal_twins_are_not() {
    let illegal = [&[2][..], &[2, 0], &[2, 1], &[2, 4, 5], &[99, 3], &[1, 1, 8, 11, 0], &[99, 0]];
    for bytes in illegal {
        assert_eq!(Options::parse(bytes), Err(Malformed::TcpOptionLength), "{bytes:?}");
    }
    assert_eq!(Options::parse(&[99, 2]), Ok(Options::default()));
    assert_eq!(Options::parse(&[99, 3, 0]), Ok(Options::default()));
    // After the end of the list nothing is looked at.
    assert_eq!(Options::parse(&[1, 0, 2, 0]), Ok(Options::default()));
}

#[test]
fn a_known_kind_of_another_length_is_ignored() {
    let strange = [
        &[2, 3, 5][..],
        &[2, 5, 5, 5, 5],
        &[3, 2],
        &[3, 4, 1, 1],
        &[4, 3, 0],
        &[5, 2],
        &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0],
    ];
    for bytes in strange {
        assert_eq!(Options::parse(bytes), Ok(Options::default()), "{bytes:?}");
    }
    let mut five_blocks = std::vec![5, 42];
    five_blocks.resize(42, 0);
    assert_eq!(Options::parse(&five_blocks), Ok(Options::default()));
}

#[test]
fn the_mss_leaves_room_for_the_headers() {
    assert_eq!(mss_for_mtu(1500, false), 1460);
    assert_eq!(mss_for_mtu(1500, true), 1440);
    assert_eq!(mss_for_mtu(39, false), 0);
}

prop_compose! {
    /// Options whose SACK blocks fit.
    pub(crate) fn any_options()(
        mss: Option<u16>, window_scale: Option<u8>, sack_permitted: bool,
        stamps: Option<(u32, u32)>, edges in vec(any::<(u32, u32)>(), 0..=4),
        experiments in vec((253u8..=254, vec(any::<u8>(), 0..12)), 0..3),
    ) -> Options {
        let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
        let mut options =
            Options { mss, window_scale, sack_permitted, timestamps, ..Options::default() };
        for (kind, data) in experiments {
            options.experimental.push(kind, &data);
        }
        for (start, end) in edges.into_iter().take(options.sack_room()) {
            options.sack.push(block(start, end));
        }
        options
    }
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(options in any_options()) {
        let bytes = emitted(&options);
        prop_assert!(bytes.len() <= MAX_OPTIONS_BYTES && bytes.len().is_multiple_of(4));
        prop_assert_eq!(options.is_empty(), bytes.is_empty());
        prop_assert_eq!(Options::parse(&bytes), Ok(options));
    }

    #[test]
    fn any_bytes_are_options_or_malformed(bytes in vec(any::<u8>(), 0..60)) {
        if let Ok(options) = Options::parse(&bytes) {
            prop_assert!(options.len() <= MAX_OPTIONS_BYTES);
            let again = Options::parse(&emitted(&options)).unwrap();
            prop_assert_eq!(again.timestamps, options.timestamps);
        }
    }
}

#[test]
fn the_other_layout_has_the_scale_first_and_fills_up_at_the_end() {
    let bsd = Options { mss: Some(1460), layout: Layout::ScaleFirst, ..Options::default() };
    let scaled = Options { window_scale: Some(6), ..bsd };
    let permitted = Options { sack_permitted: true, ..scaled };
    let full = Options { timestamps: STAMPS, ..permitted };
    let tail = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(emitted(&scaled), [2, 4, 0x05, 0xb4, 1, 3, 3, 6]);
    assert_eq!(emitted(&permitted)[8..], [4, 2, 0, 0]);
    assert_eq!(emitted(&full)[4..10], [1, 3, 3, 6, 4, 2]);
    assert_eq!(emitted(&full)[10..], tail);
    assert_eq!(emitted(&Options { sack_permitted: false, ..full })[8..10], [1, 1]);
    assert_eq!(Options::parse(&emitted(&full)), Ok(Options { layout: Layout::default(), ..full }));
}
