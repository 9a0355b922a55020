//! Waiting until a stream is ready, and reading available data without waiting.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lightwait::local::TcpStream;
use lightwait::rt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, ReadBuf, Ready};

use crate::sockets::{converse, pattern};

const PAUSE: Duration = Duration::from_millis(50);

/// The error of a call that would block.
fn blocks<T>(result: io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Sends `text` after a pause, and FIN after another.
async fn speak_late(mut stream: TcpStream, text: &[u8]) {
    rt::sleep(PAUSE).await;
    stream.write_all(text).await.unwrap();
    rt::sleep(PAUSE).await;
}

#[test]
fn ready_tells_in_which_ways() {
    converse(
        |stream| speak_late(stream, b"late"),
        |stream| async move {
            let both = Interest::READABLE | Interest::WRITABLE;
            assert_eq!(stream.ready(both).await.unwrap(), Ready::WRITABLE);
            assert_eq!(stream.ready(Interest::READABLE).await.unwrap(), Ready::READABLE);
            assert_eq!(stream.ready(both).await.unwrap(), Ready::READABLE | Ready::WRITABLE);
            assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 4);
            let at_end = stream.ready(Interest::READABLE).await.unwrap();
            assert_eq!(at_end, Ready::READABLE | Ready::READ_CLOSED);
            assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 0);
        },
    );
}

#[test]
fn a_stream_that_was_reset_is_ready_in_every_way() {
    converse(
        |stream| async move {
            rt::sleep(PAUSE).await;
            stream.abort();
        },
        |stream| async move {
            let ready = stream.ready(Interest::READABLE).await.unwrap();
            assert!(ready.is_readable() && ready.is_read_closed());
            let ready = stream.ready(Interest::WRITABLE).await.unwrap();
            assert!(ready.is_writable() && ready.is_write_closed());
            let error = stream.try_read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        },
    );
}

#[test]
fn a_poll_for_readiness_wakes_the_task_once_there_is_something() {
    converse(
        |stream| speak_late(stream, b"late"),
        |stream| async move {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(stream.poll_write_ready(&mut cx).is_ready());
            assert!(stream.poll_read_ready(&mut cx).is_pending());
            poll_fn(|cx| stream.poll_read_ready(cx)).await.unwrap();
            assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 4);
        },
    );
}

#[test]
fn io_is_tried_only_where_the_stream_is_ready() {
    converse(
        |stream| speak_late(stream, b"late"),
        |stream| async move {
            let mut calls = 0;
            let early = stream.try_io(Interest::READABLE, || {
                calls += 1;
                Ok(())
            });
            assert!(blocks(early) && calls == 0);
            let mut buffer = [0; 8];
            let read = stream.async_io(Interest::READABLE, || {
                calls += 1;
                stream.try_read(&mut buffer[..1])
            });
            assert_eq!((read.await.unwrap(), calls), (1, 1));
            let again = stream.try_io(Interest::READABLE, || stream.try_read(&mut buffer));
            assert_eq!(again.unwrap(), 3);
        },
    );
}

#[test]
fn async_io_waits_for_more_where_the_call_finds_too_little() {
    converse(
        |mut stream| async move {
            for part in [&b"one "[..], b"two"] {
                rt::sleep(PAUSE).await;
                stream.write_all(part).await.unwrap();
            }
            // The end must not wake the reader.
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        },
        |stream| async move {
            let mut held = Vec::new();
            let read = stream.async_io(Interest::READABLE, || {
                stream.try_read_buf(&mut held)?;
                if held.len() < 7 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(held.len()) }
            });
            assert_eq!(read.await.unwrap(), 7);
        },
    );
}

#[test]
fn what_is_peeked_at_stays() {
    converse(
        |stream| speak_late(stream, b"late"),
        |stream| async move {
            let (mut space, mut cx) = ([0; 8], Context::from_waker(Waker::noop()));
            let mut buffer = ReadBuf::new(&mut space);
            assert!(stream.poll_peek(&mut cx, &mut buffer).is_pending());
            let len = poll_fn(|cx| stream.poll_peek(cx, &mut buffer)).await.unwrap();
            assert_eq!((len, buffer.filled()), (4, &b"late"[..]));
            assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 4);
        },
    );
}

#[test]
fn several_buffers_are_filled_one_after_the_other() {
    converse(
        |stream| async move {
            let parts = [&b"ab"[..], b"", b"cdef"].map(IoSlice::new);
            assert_eq!(stream.try_write_vectored(&parts).unwrap(), 6);
            rt::sleep(PAUSE).await;
        },
        |stream| async move {
            let (mut a, mut b, mut c, mut d) = ([0; 1], [0; 0], [0; 3], [0; 8]);
            let mut buffers = [&mut a[..], &mut b, &mut c, &mut d].map(IoSliceMut::new);
            assert!(blocks(stream.try_read_vectored(&mut buffers)));
            stream.readable().await.unwrap();
            assert_eq!(stream.try_read_vectored(&mut buffers).unwrap(), 6);
            assert_eq!((&a[..], &c[..], &d[..2]), (&b"a"[..], &b"bcd"[..], &b"ef"[..]));
            stream.readable().await.unwrap();
            assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 0);
        },
    );
}

#[test]
fn spare_room_of_a_buffer_is_filled_and_no_more() {
    converse(
        |mut stream| async move { stream.write_all(&pattern(5000)).await.unwrap() },
        |stream| async move {
            let mut buffer = Vec::with_capacity(4096);
            assert!(blocks(stream.try_read_buf(&mut buffer)) && buffer.is_empty());
            rt::sleep(PAUSE).await;
            let room = buffer.capacity();
            assert_eq!(stream.try_read_buf(&mut buffer).unwrap(), room);
            assert_eq!(buffer, pattern(5000)[..room]);
        },
    );
}

#[test]
fn halves_can_what_the_stream_can() {
    converse(
        |mut stream| async move {
            let (mut reader, writer) = stream.split();
            assert_eq!(reader.peer_addr().unwrap(), writer.peer_addr().unwrap());
            writer.writable().await.unwrap();
            assert_eq!(writer.try_write(b"from a borrowed half").unwrap(), 20);
            let mut space = [0; 4];
            assert_eq!(reader.peek(&mut space).await.unwrap(), 4);
            assert_eq!(reader.try_read(&mut [0; 64]).unwrap(), 5);
            reader.readable().await.unwrap();
            assert_eq!(reader.try_read(&mut [0; 64]).unwrap(), 0);
        },
        |stream| async move {
            let (mut reader, writer) = stream.into_split();
            assert_eq!(reader.local_addr().unwrap(), writer.local_addr().unwrap());
            let ready = writer.ready(Interest::WRITABLE).await.unwrap();
            assert_eq!(ready, Ready::WRITABLE);
            assert_eq!(writer.try_write_vectored(&[IoSlice::new(b"owned")]).unwrap(), 5);
            assert!(reader.ready(Interest::READABLE).await.unwrap().is_readable());
            reader.readable().await.unwrap();
            let mut space = [0; 64];
            let mut buffer = ReadBuf::new(&mut space);
            let peeked = pin!(poll_fn(|cx| reader.poll_peek(cx, &mut buffer))).await.unwrap();
            let mut read = Vec::with_capacity(64);
            assert_eq!((peeked, reader.try_read_buf(&mut read).unwrap()), (20, 20));
            assert_eq!(read, b"from a borrowed half");
            assert!(blocks(reader.try_read_vectored(&mut [IoSliceMut::new(&mut [0; 8])])));
            let mut stream = writer.reunite(reader).unwrap();
            stream.shutdown().await.unwrap();
            let closed = poll_fn(|cx| match stream.poll_read_ready(cx) {
                Poll::Ready(ready) => Poll::Ready(ready.map(|()| stream.try_read(&mut [0; 1]))),
                Poll::Pending => Poll::Pending,
            });
            assert_eq!(closed.await.unwrap().unwrap(), 0);
        },
    );
}
