//! The runner's own tests: scripts that must fail, each with its message, and the parts that need
//! no stack.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use crate::lexer::{Token, scan};
use crate::packet::{Body, Datagram, Segment, decode, encode, flag};
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
    let parts: [(&str, Part); 6] = [
        ("lexemes", lexemes),
        ("comes-back-the-same", comes_back_the_same),
        ("damage-is-seen", damage_is_seen),
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
    Datagram { source, destination, tos: 2, ttl: 8, flow_label, header_bytes, body }
}

fn samples() -> [Datagram; 2] {
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    [sample([192, 0, 2, 1].into(), [192, 168, 0, 2].into()), sample(v6, v6)]
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
    ];
    for (good, bad) in pairs {
        if let Err(fault) = parse(good, &[]) {
            return Err(format!("{good}: {}", fault.what).into());
        }
        check(parse(bad, &[]).is_err(), bad)?;
    }
    Ok(())
}
