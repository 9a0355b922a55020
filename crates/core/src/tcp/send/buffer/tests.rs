use super::*;
use proptest::prelude::*;
use std::vec;

fn read(buffer: &mut SendBuffer, offset: usize, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    buffer.visit(offset, len, |piece| out.extend_from_slice(piece));
    let mut slices = Vec::new();
    buffer.share(offset, len, &mut slices);
    let shared: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
    assert_eq!(out, shared);
    match buffer.whole(offset, len) {
        Some(whole) => assert_eq!(whole, out),
        None => assert!(slices.len() > 1 || buffer.index_of(buffer.start + offset as u64) > 0),
    }
    out
}

#[test]
fn small_writes_share_the_tail_page() {
    let mut pool = PagePool::new(3);
    let mut buffer = SendBuffer::default();
    let mut write = |bytes| {
        assert_eq!(buffer.write(&vec![7; bytes], &mut pool), bytes);
        pool.available()
    };
    // A small page, a page, and another: what is left of three counts in whole ones.
    assert_eq!([write(1000), write(24)], [2, 2]);
    assert_eq!([write(1000), write(3000), write(96)], [1, 1, 1]);
    assert_eq!([write(1), write(4095)], [0, 0]);
}

#[test]
fn what_is_short_takes_a_small_page() {
    let mut pool = PagePool::new(1);
    let mut buffers: Vec<SendBuffer> = (0..4).map(|_| SendBuffer::default()).collect();
    for buffer in &mut buffers {
        assert_eq!(buffer.write(&[7; SMALL_BYTES], &mut pool), SMALL_BYTES);
        assert_eq!(read(buffer, 1000, 24), [7; 24]);
    }
    assert_eq!(SendBuffer::default().write(b"x", &mut pool), 0);
    buffers.iter_mut().for_each(|buffer| buffer.advance(SMALL_BYTES, &mut pool));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_full_pool_takes_what_fits_and_no_more() {
    let mut pool = PagePool::new(1);
    let mut buffer = SendBuffer::default();
    assert_eq!(buffer.write(&vec![1; PAGE_BYTES + 1], &mut pool), PAGE_BYTES);
    assert_eq!(buffer.write(&[1], &mut pool), 0);
    assert_eq!(buffer.push(&Bytes::from_static(b"x"), &mut pool), 0);
    buffer.advance(PAGE_BYTES, &mut pool);
    assert_eq!((pool.in_use(), buffer.len()), (0, 0));
    assert_eq!(buffer.push(&Bytes::from_static(b"x"), &mut pool), 1);
}

#[test]
fn long_text_takes_large_pages_and_usual_ones_if_none_is_left() {
    let mut pool = PagePool::new(9);
    let mut buffer = SendBuffer::default();
    let lens = |buffer: &SendBuffer| -> Vec<usize> {
        buffer.chunks.iter_from(0).map(|chunk| chunk.len as usize).collect()
    };
    buffer.write(&vec![1; LARGE_BYTES - 1], &mut pool);
    assert_eq!(lens(&buffer), [PAGE_BYTES, PAGE_BYTES, PAGE_BYTES, PAGE_BYTES - 1]);
    buffer.write(&[1, 2], &mut pool);
    assert_eq!((lens(&buffer)[4..].to_vec(), pool.in_use()), (vec![1], 8), "much waits");
    let written = buffer.write(&vec![3; 2 * LARGE_BYTES], &mut pool);
    assert_eq!(written, LARGE_BYTES - 1 + PAGE_BYTES);
    assert_eq!(lens(&buffer)[4..], [LARGE_BYTES, PAGE_BYTES]);
    buffer.clear(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_page_that_a_frame_shares_is_not_written_again() {
    let mut pool = PagePool::new(4);
    let mut buffer = SendBuffer::default();
    buffer.write(&[1; SMALL_BYTES + 1], &mut pool);
    let mut frame = Vec::new();
    buffer.share(0, 5, &mut frame);
    buffer.write(b"second", &mut pool);
    assert_eq!(pool.in_use(), 2);
    assert_eq!(&*frame[0], [1; 5]);
    assert_eq!(read(&mut buffer, SMALL_BYTES - 1, 6), b"\x01\x01seco");
}

#[test]
fn an_adopted_chunk_is_cut_though_no_page_is_free() {
    const CHUNK: usize = 128 << 10;
    let data = Bytes::from(many(CHUNK, 0));
    for (most, left, pages) in
        [(50, CHUNK - 4000, 32), (PAGE_BYTES, CHUNK - 4000 - PAGE_BYTES, 31), (usize::MAX, 5000, 2)]
    {
        let mut pool = PagePool::new(CHUNK / PAGE_BYTES);
        let mut buffer = SendBuffer::default();
        assert!(buffer.adopt(&data, Purpose::More, &mut pool));
        assert_eq!(pool.available(), 0);
        buffer.advance(4000, &mut pool);
        assert_eq!(buffer.cut(5000, most, &mut pool), CHUNK - 4000 - left);
        assert_eq!((buffer.len(), pool.in_use()), (left, pages));
        assert_eq!(read(&mut buffer, 0, left), data[4000..][..left]);
    }
}

#[test]
fn borrowed_bytes_are_not_charged_and_go_when_they_are_cut() {
    const CHUNK: usize = 128 << 10;
    let data = Bytes::from(many(CHUNK, 0));
    for (pages, kept) in [(2, 2), (1, 0)] {
        let mut pool = PagePool::new(pages);
        let mut buffers = [SendBuffer::default(), SendBuffer::default()];
        for buffer in &mut buffers {
            assert!(buffer.borrow(&data, &pool));
            assert_eq!((buffer.pages(&pool), pool.in_use()), (CHUNK / PAGE_BYTES, 0));
        }
        assert!(!data.is_unique());
        let [first, second] = &mut buffers;
        assert_eq!(first.cut(5000, usize::MAX, &mut pool), CHUNK - 5000);
        assert_eq!((read(first, 0, 5000), pool.in_use()), (data[..5000].to_vec(), kept));
        second.advance(CHUNK, &mut pool);
        // Where pages were refused, the bytes that stay are shared still.
        assert_eq!((data.is_unique(), pool.in_use()), (kept > 0, kept));
        first.advance(5000, &mut pool);
        assert_eq!((data.is_unique(), pool.in_use()), (true, 0));
    }
}

#[test]
fn borrowed_bytes_count_in_a_share() {
    let mut pool = PagePool::new(8);
    pool.set_share(Some(4));
    let mut buffer = SendBuffer::default();
    let data = Bytes::from(vec![1; 4 * PAGE_BYTES]);
    assert!(buffer.borrow(&data, &pool));
    assert!(!buffer.borrow(&data.slice(..1), &pool));
}

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<u8>),
    Push(Vec<u8>),
    Adopt(Vec<u8>),
    Borrow(Vec<u8>),
    Advance(usize),
    Cut(usize, usize),
    Read(usize, usize),
}

fn many(len: usize, of: u8) -> Vec<u8> {
    (0..len).map(|at| (at >> 3) as u8 ^ of).collect()
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6000).prop_map(Op::Write),
        (0usize..40_000, any::<u8>()).prop_map(|(len, of)| Op::Write(many(len, of))),
        proptest::collection::vec(any::<u8>(), 0..6000).prop_map(Op::Push),
        (1usize..140_000, any::<u8>()).prop_map(|(len, of)| Op::Adopt(many(len, of))),
        (1usize..140_000, any::<u8>()).prop_map(|(len, of)| Op::Borrow(many(len, of))),
        (0usize..30_000).prop_map(Op::Advance),
        (0usize..60_000, 0usize..400_000).prop_map(|(keep, most)| Op::Cut(keep, most)),
        (0usize..60_000, 0usize..40_000).prop_map(|(a, b)| Op::Read(a, b)),
    ]
}

proptest! {
    #[test]
    fn behaves_like_one_long_vector(ops in proptest::collection::vec(op(), 1..40)) {
        let mut pool = PagePool::new(2000);
        let mut buffer = SendBuffer::default();
        let mut model: Vec<u8> = Vec::new();
        let has_borrowed = ops.iter().any(|op| matches!(op, Op::Borrow(_)));
        for op in ops {
            match op {
                Op::Write(data) => {
                    prop_assert_eq!(buffer.write(&data, &mut pool), data.len());
                    model.extend(data);
                }
                Op::Push(data) => {
                    let pushed = buffer.push(&Bytes::from(data.clone()), &mut pool);
                    prop_assert_eq!(pushed, data.len());
                    model.extend(data);
                }
                Op::Adopt(data) => {
                    let shared = Bytes::from(data.clone());
                    prop_assert!(buffer.adopt(&shared, Purpose::More, &mut pool));
                    model.extend(data);
                }
                Op::Borrow(data) => {
                    let before = pool.in_use();
                    prop_assert!(buffer.borrow(&Bytes::from(data.clone()), &pool));
                    prop_assert_eq!(pool.in_use(), before);
                    model.extend(data);
                }
                Op::Advance(n) => {
                    let n = n.min(model.len());
                    buffer.advance(n, &mut pool);
                    model.drain(..n);
                }
                Op::Cut(keep, most) => {
                    let (before, can_cut) = (model.len(), buffer.can_cut(keep));
                    let (held, units) = (pool.in_use(), buffer.units());
                    let cut = buffer.cut(keep, most, &mut pool);
                    prop_assert!(cut <= most.min(before.saturating_sub(keep)));
                    prop_assert!(cut == 0 || can_cut && buffer.units() < units);
                    // What stays of a borrowed chunk may move into pages.
                    prop_assert!(cut == 0 || has_borrowed || pool.in_use() < held);
                    prop_assert!(most < before || !buffer.can_cut(keep));
                    let excess = buffer.len().saturating_sub(keep);
                    prop_assert!(most < before || excess < LARGE_BYTES + PAGE_BYTES);
                    model.truncate(before - cut);
                }
                Op::Read(offset, len) => {
                    let offset = offset.min(model.len());
                    let len = len.min(model.len() - offset);
                    let bytes = read(&mut buffer, offset, len);
                    prop_assert_eq!(&bytes[..], &model[offset..offset + len]);
                }
            }
            prop_assert_eq!(buffer.len(), model.len());
        }
        buffer.clear(&mut pool);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
