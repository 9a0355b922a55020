//! A client of HTTP's CONNECT (RFC 9110 §9.3.6, RFC 9112 §3.2.3).

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Refused;

/// Bytes and fields of an answer's head, at most.
const HEAD_MAX: usize = 8192;
const FIELDS_MAX: usize = 64;

/// Has the proxy connect to `destination`. What the far side says at once stays in the stream.
pub(super) async fn open(
    stream: &mut TcpStream,
    credentials: Option<(&str, &str)>,
    destination: SocketAddr,
) -> Result<(), Refused> {
    let who = match credentials {
        None => String::new(),
        Some((user, password)) => {
            let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
            format!("Proxy-Authorization: Basic {encoded}\r\n")
        }
    };
    let request = format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{who}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(Refused::of_talk)?;
    let mut head = Vec::new();
    loop {
        // Only the head is taken.
        let mut ahead = [0; HEAD_MAX];
        let len = stream.peek(&mut ahead[head.len()..]).await.map_err(Refused::of_talk)?;
        if len == 0 {
            let text = match head.len() {
                HEAD_MAX => "its answer is too long",
                _ => "it has closed the connection midway",
            };
            return Err(Refused::NoProxy(text.to_owned()));
        }
        let before = head.len();
        head.extend_from_slice(&ahead[before..before + len]);
        let status = status_of(&head)?;
        let taken = status.map_or(len, |(_, end)| end - before);
        stream.read_exact(&mut ahead[..taken]).await.map_err(Refused::of_talk)?;
        match status {
            Some((200..=299, _)) => return Ok(()),
            Some((status, _)) => return Err(refused(status)),
            None => {}
        }
    }
}

/// The status, and where the head ends, once it is there.
fn status_of(bytes: &[u8]) -> Result<Option<(u16, usize)>, Refused> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => Ok(Some((response.code.unwrap_or_default(), end))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(Refused::NoProxy(format!("its answer is no HTTP: {error}"))),
    }
}

fn refused(status: u16) -> Refused {
    match status {
        407 => Refused::Unwilling("it wants a user and a password, or others".to_owned()),
        401 | 403 | 451 => Refused::Forbidden,
        405 | 501 => Refused::NoProxy(format!("its answer to CONNECT is {status}: it is no proxy")),
        // A gateway's error does not say which: RFC 9110 §15.6.3 to §15.6.5.
        500..=599 => Refused::NoHost,
        _ => Refused::NoProxy(format!("its answer is {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What comes of a talk with a proxy that answers with these pieces, what it heard, and what
    /// was left in the stream.
    fn talk(
        pieces: &'static [&'static str],
        credentials: Option<(&'static str, &'static str)>,
    ) -> (Result<(), Refused>, String, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let proxy = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut heard = String::new();
                while !heard.ends_with("\r\n\r\n") {
                    heard.push(char::from(stream.read_u8().await.unwrap()));
                }
                for piece in pieces {
                    // One that has given up reads no more.
                    let _ = stream.write_all(piece.as_bytes()).await;
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                heard
            };
            let client = async {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let result = open(&mut stream, credentials, "[2001:db8::1]:443".parse().unwrap());
                let (result, mut left) = (result.await, String::new());
                if result.is_ok() {
                    stream.read_to_string(&mut left).await.unwrap();
                }
                (result, left)
            };
            let (heard, (result, left)) = tokio::join!(proxy, client);
            (result, heard, left)
        })
    }

    #[test]
    fn the_head_alone_is_taken() {
        let whole: &[&str] = &["HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n220 smtp"];
        let in_pieces: &[&str] = &["HTTP/1.1 2", "00 OK\r\n", "\r", "\n220", " smtp"];
        for pieces in [whole, in_pieces] {
            let (result, heard, left) = talk(pieces, None);
            assert!(result.is_ok(), "{result:?}");
            let expected = "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n";
            assert_eq!((&*heard, &*left), (expected, "220 smtp"));
        }
        let (_, heard, _) = talk(whole, Some(("Aladdin", "open sesame")));
        assert!(heard.contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"));
    }

    #[test]
    fn a_refusal_says_why() {
        let of = |text: &'static str| talk(Box::leak(Box::new([text])), None).0;
        assert!(matches!(of("HTTP/1.1 403 Forbidden\r\n\r\n"), Err(Refused::Forbidden)));
        assert!(matches!(of("HTTP/1.1 407 Who?\r\n\r\n"), Err(Refused::Unwilling(_))));
        assert!(matches!(of("HTTP/1.1 502 Bad Gateway\r\n\r\n"), Err(Refused::NoHost)));
        for text in ["HTTP/1.1 301 Away\r\n\r\n", "HTTP/1.1 501 What?\r\n\r\n"] {
            assert!(matches!(of(text), Err(Refused::NoProxy(_))), "{text}");
        }
        assert!(matches!(of("\x05\x00"), Err(Refused::NoProxy(_))));
        assert!(matches!(of("HTTP/1.1 200 O"), Err(Refused::NoProxy(_))), "cut off");
    }

    #[test]
    fn a_head_has_no_end_of_bytes() {
        let head = |len: usize| {
            let start = "HTTP/1.1 200 OK\r\nX: ";
            format!("{start}{}\r\n\r\n", "x".repeat(len - start.len() - 4))
        };
        for (len, fits) in [(HEAD_MAX, true), (HEAD_MAX + 1, false)] {
            let result = talk(Box::leak(Box::new([&*head(len).leak()])), None).0;
            assert_eq!(result.is_ok(), fits, "{len}: {result:?}");
        }
    }
}
