//! Prints packets as scripts write them, for messages.

use super::{Body, Datagram, Segment, flag, options, word};

/// One line, like tcpdump's.
pub(crate) fn show(datagram: &Datagram) -> String {
    let ecn = match datagram.tos & 3 {
        0 => "",
        1 => "[ect1] ",
        2 => "[ect0] ",
        _ => "[ce] ",
    };
    let body = match &datagram.body {
        Body::Tcp(segment) => show_tcp(segment),
        Body::Udp { payload, .. } => format!("udp ({})", payload.len()),
        Body::Icmp { kind, code, rest } => {
            format!("icmp type_{kind} code_{code} ({})", rest.len() + 4)
        }
    };
    format!("{ecn}{body}")
}

fn show_tcp(segment: &Segment) -> String {
    let length = segment.payload.len();
    let end = u32::try_from(length).map_or(0, |length| segment.seq.wrapping_add(length));
    let mut text = format!("{} {}:{end}({length})", show_flags(segment.flags), segment.seq);
    if segment.has(flag::ACK) {
        text += &format!(" ack {}", segment.ack);
    }
    text += &format!(" win {}", segment.window);
    if segment.urgent != 0 {
        text += &format!(" urg {}", segment.urgent);
    }
    if !segment.options.is_empty() {
        text += &format!(" <{}>", show_options(&segment.options));
    }
    text
}

fn show_flags(flags: u16) -> String {
    let letters = [
        (flag::FIN, 'F'),
        (flag::SYN, 'S'),
        (flag::RST, 'R'),
        (flag::PSH, 'P'),
        (flag::URG, 'U'),
        (flag::ECE, 'E'),
        (flag::CWR, 'W'),
        (flag::AE, 'A'),
        (flag::ACK, '.'),
    ];
    let text: String = letters
        .into_iter()
        .filter(|(flag, _)| flags & flag != 0)
        .map(|(_, letter)| letter)
        .collect();
    if text.is_empty() { "-".into() } else { text }
}

fn show_options(bytes: &[u8]) -> String {
    let (places, error) = options(bytes);
    let broken = error.is_some();
    let count = places.len();
    let shown: Vec<String> = places
        .into_iter()
        .enumerate()
        .map(|(index, (kind, place))| {
            let option = &bytes[place];
            if broken && index + 1 == count {
                format!("?{option:02x?}")
            } else {
                show_option(kind, option)
            }
        })
        .collect();
    shown.join(",")
}

fn show_option(kind: u8, option: &[u8]) -> String {
    match kind {
        0 => "eol".into(),
        1 => "nop".into(),
        2 => format!("mss {}", u16::from_be_bytes([option[2], option[3]])),
        3 => format!("wscale {}", option[2]),
        4 => "sackOK".into(),
        5 => {
            let blocks = option[2..].chunks_exact(8);
            let blocks: Vec<String> =
                blocks.map(|block| format!("{}:{}", word(block, 0), word(block, 4))).collect();
            format!("sack {}", blocks.join(" "))
        }
        8 => format!("TS val {} ecr {}", word(option, 2), word(option, 6)),
        other => format!("option {other} {:02x?}", &option[2..]),
    }
}
