//! The ends of connections: in order, by halves, by RST, and with what was written before.

use std::io;
use std::time::Duration;

use lightwait::net::{TcpListener, TcpStream};
use lightwait_core::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{PORT, connected, kind, pair, run, stacks};

#[test]
fn half_closed_streams_still_carry_the_other_way() {
    run(async {
        let (mut near, mut far, ..) = connected().await;
        far.write_all(b"question").await.unwrap();
        far.shutdown().await.unwrap();
        let mut asked = String::new();
        near.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "question");
        assert_eq!(kind(far.write(b"more").await), Some(io::ErrorKind::BrokenPipe));
        near.write_all(b"answer").await.unwrap();
        drop(near);
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "answer");
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "again");
    });
}

#[test]
fn a_dropped_stream_sends_what_was_written() {
    run(async {
        let (mut near, mut far, ..) = connected().await;
        let data = vec![9; 1 << 20];
        let sent = data.clone();
        tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            drop(far);
        });
        // The peer begins to read later.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).await.unwrap();
        assert!(heard == data);
    });
}

#[test]
fn a_stream_dropped_with_unread_data_is_reset() {
    run(async {
        let (near, mut far, ..) = connected().await;
        far.write_all(b"unread").await.unwrap();
        near.readable().await.unwrap();
        drop(near);
        assert_eq!(kind(far.read(&mut [0; 1]).await), Some(io::ErrorKind::ConnectionReset));
    });
}

#[test]
fn linger_zero_and_abort_reset_what_was_not_read() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        for by_linger in [true, false] {
            let (near, mut far) = pair(&listener, &client).await;
            if by_linger {
                near.set_zero_linger().unwrap();
                assert_eq!(near.linger().unwrap(), Some(Duration::ZERO));
                drop(near);
            } else {
                near.abort();
            }
            assert_eq!(kind(far.read(&mut [0; 1]).await), Some(io::ErrorKind::ConnectionReset));
            let written = far.write(b"x").await;
            assert_eq!(kind(written), Some(io::ErrorKind::BrokenPipe), "told once");
            assert!(far.take_error().unwrap().is_none());
        }
    });
}

#[test]
fn a_waiting_writer_hears_of_a_reset() {
    run(async {
        let (near, mut far, ..) = connected().await;
        let writer = tokio::spawn(async move {
            let chunk = [1; 16 << 10];
            loop {
                if let Err(error) = far.write_all(&chunk).await {
                    return error.kind();
                }
            }
        });
        near.readable().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        near.abort();
        assert_eq!(writer.await.unwrap(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn dropped_halves_close_what_they_are_halves_of() {
    run(async {
        let (near, far, ..) = connected().await;
        let (mut reader, writer) = near.into_split();
        let (mut other, mut far_writer) = far.into_split();
        drop(writer);
        assert_eq!(other.read(&mut [0; 1]).await.unwrap(), 0, "FIN");
        far_writer.write_all(b"still open").await.unwrap();
        let mut heard = [0; 10];
        reader.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"still open");
        let stream = other.reunite(far_writer).unwrap();
        drop(stream);
        assert_eq!(reader.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn halves_of_two_streams_do_not_make_one() {
    run(async {
        let (near, far, ..) = connected().await;
        let (reader, writer) = near.into_split();
        let (other_reader, other_writer) = far.into_split();
        let error = reader.reunite(other_writer).unwrap_err();
        let lightwait::net::ReuniteError(reader, other_writer) = error;
        assert!(reader.reunite(writer).is_ok() && other_writer.reunite(other_reader).is_ok());
    });
}

#[test]
fn a_dropped_listener_resets_what_was_not_accepted() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut far = TcpStream::connect_on(&client, at).await.unwrap();
        drop(listener);
        assert_eq!(kind(far.read(&mut [0; 1]).await), Some(io::ErrorKind::ConnectionReset));
        let refused = TcpStream::connect_on(&client, at).await;
        assert_eq!(kind(refused), Some(io::ErrorKind::ConnectionRefused));
        let listener = TcpListener::bind_on(&server, at).await.unwrap();
        pair(&listener, &client).await;
    });
}

#[test]
fn a_dropped_connect_leaves_no_connection_behind() {
    run(async {
        let (_server, client) = stacks();
        // Nobody has that address: the SYN is never answered.
        let never = TcpStream::connect_on(&client, ("10.0.0.77", 80));
        let short = tokio::time::timeout(Duration::from_millis(50), never).await;
        assert!(short.is_err());
        while client.with_host(Host::connections).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
