//! Bytes both ways: many, in small pieces, and against an end that does not read.

use std::io::{IoSlice, IoSliceMut};

use bytes::{Bytes, BytesMut};
use lightwait::net::TcpSocket;
use lightwait_core::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{PORT, connected, run, stacks, written_until_full};

/// Byte `index` of what the tests send.
fn byte(index: usize) -> u8 {
    (index % 251) as u8
}

#[test]
fn megabytes_cross_both_ways_through_small_buffers() {
    const BYTES: usize = 8 << 20;
    run(async {
        let (server, client) = stacks();
        let socket = TcpSocket::new_v4_on(&server);
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.set_send_buffer_size(8 << 10).unwrap();
        socket.bind((server.address(), PORT).into()).unwrap();
        let listener = socket.listen(4).unwrap();
        let echo = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap()
        });
        let socket = TcpSocket::new_v4_on(&client);
        socket.set_send_buffer_size(5000).unwrap();
        let stream = socket.connect((server.address(), PORT).into()).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let sender = tokio::spawn(async move {
            let (mut sent, mut piece) = (0, 1);
            while sent < BYTES {
                // Of all sizes around those at which a write takes another way.
                piece = (piece * 7 + 3) % 20_000 + 1;
                let piece = piece.min(BYTES - sent);
                let data: Vec<u8> = (sent..sent + piece).map(byte).collect();
                writer.write_all(&data).await.unwrap();
                sent += piece;
            }
            writer.shutdown().await.unwrap();
        });
        let (mut heard, mut buffer) = (0, vec![0; 3001]);
        loop {
            let len = reader.read(&mut buffer).await.unwrap();
            if len == 0 {
                break;
            }
            let is_sound =
                buffer[..len].iter().enumerate().all(|(at, got)| *got == byte(heard + at));
            assert!(is_sound, "at {heard}");
            heard += len;
        }
        assert_eq!(heard, BYTES);
        sender.await.unwrap();
        assert_eq!(echo.await.unwrap(), BYTES as u64);
    });
}

#[test]
fn shared_bytes_arrive_as_they_were_written() {
    run(async {
        let (mut near, far, ..) = connected().await;
        let data: Bytes = (0..300_000).map(byte).collect();
        let sent = data.clone();
        let sender = tokio::spawn(async move {
            far.write_all_bytes(sent).await.unwrap();
            assert_eq!(far.try_write_bytes(&Bytes::new()).unwrap(), 0);
        });
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).await.unwrap();
        sender.await.unwrap();
        assert!(heard == data);
    });
}

#[test]
fn vectored_calls_fill_and_empty_slices_in_order() {
    run(async {
        let (near, mut far, ..) = connected().await;
        let slices = [b"one ", b"" as &[u8], b"two ", b"three"].map(IoSlice::new);
        assert_eq!(near.try_write_vectored(&slices).unwrap(), 13);
        let mut heard = [0; 13];
        far.peek(&mut heard).await.unwrap();
        far.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"one two three");
        far.write_all(b"abcdefg").await.unwrap();
        while near.peek(&mut [0; 7]).await.unwrap() < 7 {}
        let (mut first, mut second) = ([0; 3], [0; 8]);
        let mut slices = [&mut first[..], &mut [], &mut second[..]].map(IoSliceMut::new);
        assert_eq!(near.try_read_vectored(&mut slices).unwrap(), 7);
        assert_eq!((&first, &second[..4]), (b"abc", b"defg" as &[u8]));
        far.write_all(b"rest").await.unwrap();
        near.readable().await.unwrap();
        let mut buffer = BytesMut::with_capacity(64);
        assert_eq!(near.try_read_buf(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..], b"rest");
    });
}

#[test]
fn a_reader_that_does_not_read_holds_up_the_writer() {
    run(async {
        let (server, client) = stacks();
        let socket = TcpSocket::new_v4_on(&server);
        socket.set_recv_buffer_size(32 << 10).unwrap();
        socket.bind((server.address(), PORT).into()).unwrap();
        let listener = socket.listen(4).unwrap();
        let socket = TcpSocket::new_v4_on(&client);
        socket.set_send_buffer_size(32 << 10).unwrap();
        let far = socket.connect((server.address(), PORT).into()).await.unwrap();
        let (mut near, _) = listener.accept().await.unwrap();
        let written = written_until_full(&far).await;
        // Two crossings and the two buffers of the stacks.
        assert!((64 << 10..=256 << 10).contains(&written), "{written}");
        let sizes = server.with_host(Host::pages_in_use).await.unwrap();
        assert!(sizes < 64, "{sizes} pages");
        let sender = tokio::spawn(async move {
            far.writable().await.unwrap();
            drop(far);
        });
        let mut heard = vec![0; written];
        near.read_exact(&mut heard).await.unwrap();
        assert!(heard.iter().all(|byte| *byte == 7));
        sender.await.unwrap();
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn bytes_sent_one_by_one_do_not_pile_up_as_pages() {
    run(async {
        let (mut near, mut far, ..) = connected().await;
        far.set_nodelay(true).unwrap();
        const BYTES: usize = 2000;
        for index in 0..BYTES {
            far.write_all(&[byte(index)]).await.unwrap();
            if index % 8 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut heard = vec![0; BYTES];
        near.read_exact(&mut heard).await.unwrap();
        assert!(heard.iter().enumerate().all(|(index, got)| *got == byte(index)));
    });
}
