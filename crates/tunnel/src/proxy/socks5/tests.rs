use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::net::TcpListener;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn datagrams_keep_their_address_and_strange_ones_are_dropped() {
    for address in ["8.8.8.8:53", "[2001:db8::1]:443"].map(at) {
        let mut bytes = Vec::new();
        write_header(&mut bytes, address);
        assert!(bytes.len() <= HEADER_MAX);
        let header = bytes.len();
        bytes.extend_from_slice(b"payload");
        assert_eq!(read_datagram(&bytes), Some((address, &b"payload"[..])));
        assert_eq!(read_datagram(&bytes[..header]), Some((address, &b""[..])));
        (0..header).for_each(|len| assert_eq!(read_datagram(&bytes[..len]), None));
        bytes[2] = 1;
        assert_eq!(read_datagram(&bytes), None, "a fragment");
    }
    assert_eq!(read_datagram(&[0, 0, 0, NAME, 1, b'a', 0, 53]), None, "a name");
}

/// What comes of a talk with a proxy that reads so many bytes and says this, in turn.
fn talk(
    script: &'static [(usize, &'static [u8])],
    credentials: Option<(&'static str, &'static str)>,
) -> (Result<Vec<u8>, Refused>, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            for (len, answer) in script {
                let mut said = vec![0; *len];
                stream.read_exact(&mut said).await.unwrap();
                heard.extend(said);
                stream.write_all(answer).await.unwrap();
            }
            heard
        };
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            match greet(&mut stream, credentials).await {
                Ok(()) => open(&mut stream, at("8.8.8.8:53")).await,
                Err(refused) => Err(refused),
            }
        };
        let (heard, result) = tokio::join!(proxy, client);
        (result, heard)
    })
}

const REQUEST: [u8; 10] = [5, 1, 0, 1, 8, 8, 8, 8, 0, 53];

#[test]
fn a_connection_is_asked_for_as_rfc_1928_has_it() {
    for answer in [
        &[5, 0, 0, 1, 1, 2, 3, 4, 0, 80][..],
        &[5, 0, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 80],
        &[5, 0, 0, 3, 2, b'a', b'b', 0, 80],
        &[5, 0, 0, 3, 0, 0, 80],
    ] {
        for ahead in ["", "220 smtp"] {
            let answer = [answer, ahead.as_bytes()].concat();
            let script: &'static [(usize, &'static [u8])] =
                Box::leak(Box::new([(3, &[5, 0][..]), (10, answer.leak())]));
            let (result, heard) = talk(script, None);
            // What the far side says at once is its own.
            assert_eq!(result.unwrap(), ahead.as_bytes(), "{script:?}");
            assert_eq!(heard, [&[5, 1, 0][..], &REQUEST].concat());
        }
    }
}

#[test]
fn user_and_password_are_told_if_they_are_asked_for() {
    let asked: &[(usize, &[u8])] =
        &[(4, &[5, 2]), (8, &[1, 0]), (10, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])];
    let (result, heard) = talk(asked, Some(("me", "abc")));
    assert!(result.is_ok());
    assert_eq!(heard[4..12], *b"\x01\x02me\x03abc");
    let refused: &[(usize, &[u8])] = &[(4, &[5, 2]), (8, &[1, 1])];
    assert!(matches!(talk(refused, Some(("me", "abc"))).0, Err(Refused::Unwilling(_))));
    let unasked: &[(usize, &[u8])] = &[(4, &[5, 0]), (10, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])];
    assert!(talk(unasked, Some(("me", "abc"))).0.is_ok());
    // A method that we did not offer.
    for method in [&[5, 2], &[5, 0xff], &[5, 1]] {
        let script: &'static [(usize, &'static [u8])] = Box::leak(Box::new([(3, &method[..])]));
        assert!(matches!(talk(script, None).0, Err(Refused::Unwilling(_))), "{method:?}");
    }
}

#[test]
fn replies_mean_what_rfc_1928_says() {
    let of = |reply: u8| {
        let answer = vec![5, reply, 0, 1, 0, 0, 0, 0, 0, 0].leak();
        talk(Box::leak(Box::new([(3, &[5, 0][..]), (10, &*answer)])), None).0
    };
    assert!(matches!(of(1), Err(Refused::NoHost)));
    assert!(matches!(of(2), Err(Refused::Forbidden)));
    assert!(matches!(of(3), Err(Refused::NoNetwork)));
    assert!(matches!(of(4), Err(Refused::NoHost)));
    assert!(matches!(of(5), Err(Refused::ByHost)));
    assert!(matches!(of(7), Err(Refused::Unwilling(_))));
    assert!(matches!(of(9), Err(Refused::NoProxy(_))));
    let strange: [&[(usize, &[u8])]; 5] = [
        &[(3, &[5, 0, 7])],
        &[(3, b"HTTP/1.1 400 Bad Request\r\n")],
        &[(3, &[5])],
        &[(3, &[5, 0]), (10, &[5, 0, 0])],
        &[(3, &[5, 0]), (10, &[5, 0, 0, 9, 0, 0, 0, 0, 0, 0])],
    ];
    for script in strange {
        let result = talk(script, None).0;
        assert!(matches!(result, Err(Refused::NoProxy(_))), "{script:?}: {result:?}");
    }
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(|(ip, port)| (ip, port).into()),
        any::<([u8; 16], u16)>().prop_map(|(ip, port)| (ip, port).into()),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_nothing_shorter(
        address in any_address(), payload in vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = Vec::new();
        write_header(&mut bytes, address);
        let header = bytes.len();
        prop_assert!(header <= HEADER_MAX);
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(read_datagram(&bytes), Some((address, &payload[..])));
        for len in 0..header {
            prop_assert_eq!(read_datagram(&bytes[..len]), None);
        }
    }

    #[test]
    fn any_datagram_is_one_or_none(bytes in vec(any::<u8>(), 0..80), kind in 0u8..6) {
        let mut bytes = bytes;
        if let Some(at) = bytes.get_mut(3) {
            *at = kind;
        }
        if let Some((from, payload)) = read_datagram(&bytes) {
            let mut again = bytes[..2].to_vec();
            again.push(0);
            write_address(&mut again, from);
            again.extend_from_slice(payload);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn any_answer_has_a_length_or_is_refused_and_never_shrinks(
        bytes in vec(any::<u8>(), 0..80), good: bool, kind in 0u8..6,
    ) {
        let mut bytes = bytes;
        if good && bytes.len() > 4 {
            (bytes[0], bytes[1], bytes[3]) = (VERSION, 0, kind);
        }
        let whole = len_of(&bytes);
        for len in 0..=bytes.len() {
            match (len_of(&bytes[..len]), &whole) {
                // What was said of the beginning holds for the whole.
                (Ok(Some(early)), Ok(Some(late))) => prop_assert_eq!(early, *late),
                (Ok(Some(_)), _) => prop_assert!(false, "a length, and then none"),
                (Err(_), late) => prop_assert!(late.is_err()),
                (Ok(None), _) => {}
            }
        }
        if let Ok(Some(len)) = whole {
            prop_assert!((7..=ANSWER_BYTES).contains(&len), "{}", len);
        }
    }
}
