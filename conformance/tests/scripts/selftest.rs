//! The runner's own tests: scripts that must fail, each with its message, and the parts that need
//! no stack.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use crate::ast::{BodySpec, Direction, IpSpec, PacketSpec, SumSpec, TosSpec, UdpSpec};
use crate::lexer::{Token, scan};
use crate::packet::{
    Body, Datagram, Expectation, Fragment, Segment, StampTolerance, build, check as compare,
    check_ends, cut, decode, encode, encode_datagram, flag, join, pattern,
};
use crate::parse::parse;
use crate::preprocess::preprocess;
use crate::{child, collect, sysctl};

type Part = fn() -> Result<(), Failed>;

/// Every test of the runner itself.
pub(crate) fn trials() -> std::io::Result<Vec<Trial>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/faults");
    let mut paths = Vec::new();
    collect(&root, &mut paths)?;
    let scripts = paths.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(format!("runner/{name}"), move || judge(&path))
    });
    let parts: [(&str, Part); 8] = [
        ("lexemes", lexemes),
        ("comes-back-the-same", comes_back_the_same),
        ("damage-is-seen", damage_is_seen),
        ("datagrams-are-compared", datagrams_are_compared),
        ("fragments-are-joined", fragments_are_joined),
        ("conditions", conditions),
        ("settings", settings),
        ("grammar-refuses", grammar_refuses),
    ];
    let parts = parts.map(|(name, test)| Trial::test(format!("runner/{name}"), test));
    Ok(scripts.chain(parts).collect())
}

/// Whether a script that says in its first line how it ends does so.
fn judge(path: &PathBuf) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let first = text.lines().next().unwrap_or_default();
    let result = child::run(path, true, None);
    let Some(wanted) = first.strip_prefix("// fails: ") else { return result };
    match result {
        Ok(()) => Err("it passes".into()),
        Err(failed) => {
            let message = failed.message().unwrap_or_default().to_owned();
            if message.contains(wanted) {
                Ok(())
            } else {
                Err(format!("wanted: {wanted}\ngot: {message}").into())
            }
        }
    }
}

fn check(holds: bool, what: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn lexemes() -> Result<(), Failed> {
    let text =
        "+.1...0.200 1:1001(1000) 0x1f S. --mss=1000 ::1 10.0.0.1 \"a\\\"b\" // end\n%{ x\n}%";
    let tokens: Vec<Token> =
        scan(text).map_err(|(_, what)| what)?.into_iter().map(|lexeme| lexeme.token).collect();
    let integer = |number: i64| Token::Integer(number, number.to_string());
    let expected = vec![
        Token::Sign('+'),
        Token::Float(0.1),
        Token::Ellipsis,
        Token::Float(0.2),
        integer(1),
        Token::Sign(':'),
        integer(1001),
        Token::Sign('('),
        integer(1000),
        Token::Sign(')'),
        Token::Hex(31),
        Token::Word("S".into()),
        Token::Sign('.'),
        Token::Flag("mss".into()),
        Token::Sign('='),
        integer(1000),
        Token::Ipv6("::1".into()),
        Token::Ipv4("10.0.0.1".into()),
        Token::Text("a\\\"b".into()),
        Token::Code("x\n".into()),
    ];
    check(tokens == expected, &format!("{tokens:?}"))
}

/// A segment over either version of IP.
fn sample(source: IpAddr, destination: IpAddr) -> Datagram {
    let segment = Segment {
        ports: (1, 2),
        seq: 3,
        ack: 4,
        flags: flag::SYN | flag::AE,
        window: 5,
        urgent: 6,
        options: vec![2, 4, 5, 180],
        payload: vec![7; 3],
    };
    let (is_v4, body) = (source.is_ipv4(), Body::Tcp(segment));
    let header_bytes = if is_v4 { 20 } else { 40 };
    let flow_label = if is_v4 { 0 } else { 9 };
    let dont_fragment = is_v4;
    Datagram { source, destination, tos: 2, ttl: 8, flow_label, dont_fragment, header_bytes, body }
}

fn segments() -> [Datagram; 2] {
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    [sample([192, 0, 2, 1].into(), [192, 168, 0, 2].into()), sample(v6, v6)]
}

/// A datagram over each version of IP.
fn datagrams() -> [Datagram; 2] {
    let body = Body::Udp { ports: (1, 2), payload: pattern(30) };
    segments().map(|segment| Datagram { body: body.clone(), ..segment })
}

fn samples() -> [Datagram; 4] {
    let ([one, two], [three, four]) = (segments(), datagrams());
    [one, two, three, four]
}

fn comes_back_the_same() -> Result<(), Failed> {
    for datagram in samples() {
        let decoded = decode(&encode(&datagram))?;
        check(decoded.as_ref() == Some(&datagram), &format!("{decoded:?}"))?;
    }
    Ok(())
}

fn damage_is_seen() -> Result<(), Failed> {
    for datagram in samples() {
        let bytes = encode(&datagram);
        for at in datagram.header_bytes..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            check(decode(&damaged).is_err(), &format!("byte {at} may change"))?;
        }
        check(decode(&bytes[..bytes.len() - 1]).is_err(), "the last byte may be missing")?;
    }
    Ok(())
}

/// A datagram that is not the one that a script expects, whole as it may be.
fn datagrams_are_compared() -> Result<(), Failed> {
    for sent in datagrams() {
        let (Body::Udp { payload, .. }, is_v4) = (&sent.body, sent.source.is_ipv4()) else {
            return Err("no datagram".into());
        };
        let judge = |actual: &Datagram| {
            let expected = Expectation {
                datagram: sent.clone(),
                tos: TosSpec::Whole(sent.tos),
                ttl: Some(sent.ttl),
                dont_fragment: true,
                window: false,
                options: false,
                any_wscale: false,
                ace: false,
            };
            let stamps = StampTolerance { tick_usecs: 0, tolerance_usecs: 0, exact_echo: false };
            compare(&expected, actual, &stamps)
                .and_then(|()| check_ends(sent.tuple(), actual.tuple()))
        };
        judge(&sent)?;
        for at in 0..payload.len() {
            let mut payload = payload.clone();
            payload[at] ^= 1;
            let body = Body::Udp { ports: (1, 2), payload };
            let other = Datagram { body, ..sent.clone() };
            check(decode(&encode(&other))?.as_ref() == Some(&other), "it is a datagram")?;
            check(judge(&other).is_err(), &format!("byte {at} may be another"))?;
        }
        let udp = |ports, payload| Datagram { body: Body::Udp { ports, payload }, ..sent.clone() };
        let others = [
            udp((3, 2), payload.clone()),
            udp((1, 3), payload.clone()),
            udp((1, 2), pattern(29)),
            udp((1, 2), pattern(31)),
            Datagram { ttl: sent.ttl + 1, ..sent.clone() },
            Datagram { tos: sent.tos ^ 1, ..sent.clone() },
            Datagram { dont_fragment: !sent.dont_fragment, ..sent.clone() },
            segments()[usize::from(!is_v4)].clone(),
        ];
        for other in others {
            check(judge(&other).is_err(), &format!("{other:?}"))?;
        }
    }
    Ok(())
}

/// Datagrams with faults are as faulty as the script says, and the reader sees it.
fn is_faulty(spec: UdpSpec) -> Result<bool, Failed> {
    let [v4, v6] = datagrams();
    let mut seen = Vec::new();
    for like in [v4, v6] {
        let body = BodySpec::Udp(spec);
        let packet = PacketSpec { direction: Direction::Inbound, ip: IpSpec::default(), body };
        let datagram = build(&packet, like.source, like.destination)?;
        seen.push(decode(&encode_datagram(&datagram, &spec)).is_err());
    }
    check(seen[0] == seen[1], "both versions are read alike")?;
    Ok(seen[0])
}

fn fragments_are_joined() -> Result<(), Failed> {
    let plain = UdpSpec { length: 30, ..UdpSpec::default() };
    check(!is_faulty(plain)?, "a datagram is read")?;
    check(is_faulty(UdpSpec { sum: SumSpec::None, ..plain })?, "no checksum is seen")?;
    check(is_faulty(UdpSpec { sum: SumSpec::Wrong, ..plain })?, "a wrong checksum is seen")?;
    check(is_faulty(UdpSpec { claimed: Some(37), ..plain })?, "a wrong length is seen")?;
    check(!is_faulty(UdpSpec { claimed: Some(38), ..plain })?, "the right length is read")?;
    for datagram in datagrams() {
        let whole = encode(&Datagram { dont_fragment: false, ..datagram });
        let pieces = cut(&whole, 16, 7);
        check(pieces.len() == 3, "38 bytes in pieces of 16")?;
        check(pieces.iter().all(|piece| decode(piece).ok().flatten().is_none()), "none is whole")?;
        let read = |pieces: &[Vec<u8>]| -> Option<Vec<Fragment>> {
            pieces.iter().map(|piece| Fragment::decode(piece)).collect()
        };
        let fragments = read(&pieces).ok_or("all are fragments")?;
        let joined = decode(&join(&fragments, 16)?)?;
        check(joined.is_some() && joined == decode(&whole)?, "together they are the datagram")?;
        check(Fragment::decode(&whole).is_none(), "a whole packet is none")?;
        check(join(&fragments, 24).is_err(), "the size matters")?;
        check(join(&fragments[1..], 16).is_err(), "the first is missing")?;
        let without = [fragments[0].clone(), fragments[2].clone()];
        check(join(&without, 16).is_err(), "the second is missing")?;
        let other = read(&cut(&whole, 16, 8)).ok_or("all are fragments")?;
        let mixed = [fragments[0].clone(), other[1].clone(), fragments[2].clone()];
        check(join(&mixed, 16).is_err(), "one is of another packet")?;
    }
    Ok(())
}

fn conditions() -> Result<(), Failed> {
    let text = "a\n#ifdef X\nb\n#ifndef Y\nc\n#else\nd\n#endif\n#endif\ne\n";
    let lines = |defined: &[&str]| preprocess(text, defined).replace('\n', "|");
    check(lines(&["X"]) == "a||b||c|||||e|", &lines(&["X"]))?;
    check(lines(&["X", "Y"]) == "a||b||||d|||e|", &lines(&["X", "Y"]))?;
    check(lines(&[]) == "a|||||||||e|", &lines(&[]))
}

fn settings() -> Result<(), Failed> {
    let text = "`sysctl -q net.ipv4.tcp_timestamps=0\n  /proc/sys/net/ipv4/tcp_sack=1`
        0 `sysctl -w net.inet.tcp.rexmit_initial=1000`
        +0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
        +0 `sysctl -w net.inet.tcp.sack.enable=0`";
    let script = parse(text, &[]).map_err(|fault| fault.what)?;
    let flags = sysctl::flags(&script);
    check(flags == ["timestamps=off", "rto.initial=1000ms"], &format!("{flags:?}"))?;
    let missing = sysctl::missing_from(include_str!("../../README.md"));
    check(missing.is_empty(), &format!("conformance/README.md has no row for {missing:?}"))
}

/// Texts that the grammar accepts, and the same texts one step beyond.
fn grammar_refuses() -> Result<(), Failed> {
    let pairs = [
        ("0 < S 0:0(0) win 65535", "0 < S 0:0(0) win 65536"),
        ("0 < . 1:11(10) ack 1 win 1", "0 < . 1:11(11) ack 1 win 1"),
        ("0 < S 0:0(0) win 1 <mss 1,nop,nop,sackOK>", "0 < S 0:0(0) win 1 <mss 1,nop,sackOK>"),
        ("0 < S 0:0(0) win 1 <raw 02000001>", "0 < S 0:0(0) win 1 <raw 020000>"),
        ("0 > S 0:0(0)", "0 < S 0:0(0)"),
        ("0 > . 1:1(0) <...>", "0 < . 1:1(0) win 1 <...>"),
        ("* > . 1:1(0)", "* < . 1:1(0) win 1"),
        ("0~1 > . 1:1(0)", "1~0 > . 1:1(0)"),
        ("0 > [ect01] . 1:1(0)", "0 < [ect01] . 1:1(0) win 1"),
        ("0 > SEW 0:0(0)", "0 > SEX 0:0(0)"),
        ("0 close(3) = 0", "0 close(3)"),
        ("0 < udp 53>80 (10)", "0 < udp 53>80 10"),
        ("0 < udp (65535)", "0 < udp (65536)"),
        ("0 < udp 1>65535 (10)", "0 < udp 1>65536 (10)"),
        ("0 < udp sum none len 9 (1)", "0 > udp sum none len 9 (1)"),
        ("0 < udp sum wrong (1)", "0 < udp sum right (1)"),
        ("0 < [cut 8, backwards, lost 2] udp (9)", "0 < [backwards] udp (9)"),
        ("0 < [cut 16] udp (9)", "0 < [cut 15] udp (9)"),
        ("0 < [from 10.0.0.1, to fd00::1] udp (9)", "0 < [from 10.0.0.1] S 0:0(0) win 1"),
        ("0 > [df] udp (9)", "0 < [df] udp (9)"),
        ("0 > [tos 0x2] udp (9)", "0 > [ect0] udp (9)"),
        ("0 < icmp unreachable x [udp 1>2 (9)]", "0 < icmp unreachable x [udp 1>2]"),
    ];
    for (good, bad) in pairs {
        if let Err(fault) = parse(good, &[]) {
            return Err(format!("{good}: {}", fault.what).into());
        }
        check(parse(bad, &[]).is_err(), bad)?;
    }
    Ok(())
}
