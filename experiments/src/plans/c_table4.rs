//! Table 4: the comparison of the three systems, with a check for each cell. Connections are
//! counted at the end that holds them, and packets where they were captured, in virtual time.
//!
//! The checks of CLIENT_CLOSE use our HTTP server and a client that closes first ([`http`]).

mod http;

use std::time::Duration;

use lightwait_core::config::{TimeWaitState, Wish};
use lightwait_core::{Config, Host};
use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::plan::Outcome;
use crate::plans::busy::System;
use crate::plans::busy::lan::{
    Captured, Filter, Lan, Time, client_config, is_reset_in_time_wait, server_config,
};
use crate::plans::busy::web::{self, Done, Web};
use crate::report::{Report, Table};

/// Connections of a check, one after the other.
const CONNECTIONS: u64 = 50;
const FILE_BYTES: u32 = 500;
/// The delay of one direction.
const DELAY: Duration = Duration::from_millis(1);
/// The length of a check: more than all connections take, and less than TIME-WAIT.
const LENGTH: Duration = Duration::from_secs(30);
/// The bit of a segment's flags.
const RST: u8 = 4;
/// The option's kind (RFC 4727).
const EXPERIMENT: u8 = 253;

/// The configurations of the checks' worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// Both ends are modified.
    Both,
    /// Only the client is modified.
    ClientAlone,
    /// Only the server is modified.
    ServerAlone,
    /// Both are, and the server ignores RSTs in TIME-WAIT (RFC 1337).
    Guarded,
    /// Only the server is, and it accepts only clients that agree, if it can require that.
    Required,
}

/// The results of a world.
struct Seen {
    done: Done,
    /// In TIME-WAIT at the end.
    server: usize,
    client: usize,
    captured: Vec<Captured>,
}

impl Seen {
    /// True if all connections ended well, with every byte.
    fn is_whole(&self) -> bool {
        let bytes = CONNECTIONS * u64::from(FILE_BYTES + web::HEADER);
        (self.done.connections, self.done.failed, self.done.bytes) == (CONNECTIONS, 0, bytes)
    }

    /// Each packet as TCP sees it: direction, flags, options, length of the data.
    fn segments(&self) -> Vec<(bool, u8, Vec<u8>, usize)> {
        let of = |captured: &Captured| {
            let Tcp { flags, options, text } = tcp(&captured.packet);
            (captured.from_server, flags, options, text.len())
        };
        self.captured.iter().map(of).collect()
    }

    /// The data in each direction, as the applications read it.
    fn texts(&self) -> [Vec<u8>; 2] {
        [false, true].map(|from_server| {
            let of_it = self.captured.iter().filter(|c| c.from_server == from_server);
            of_it.flat_map(|captured| tcp(&captured.packet).text.to_vec()).collect()
        })
    }

    fn per_connection(&self) -> f64 {
        self.captured.len() as f64 / CONNECTIONS as f64
    }
}

/// The fields of a segment that the checks use.
struct Tcp<'a> {
    flags: u8,
    /// Kinds of options.
    options: Vec<u8>,
    text: &'a [u8],
}

/// The segment of an IPv4 packet without options.
fn tcp(packet: &[u8]) -> Tcp<'_> {
    let segment = &packet[20..usize::from(u16::from_be_bytes([packet[2], packet[3]]))];
    let (header, text) = segment.split_at(usize::from(segment[12] >> 4) * 4);
    let (mut options, mut at) = (Vec::new(), 20);
    while at < header.len() && header[at] != 0 {
        options.push(header[at]);
        at += if header[at] == 1 { 1 } else { usize::from(header[at + 1]) };
    }
    Tcp { flags: header[13], options, text }
}

fn is_no_reset(_server: &Host, packet: &[u8]) -> bool {
    tcp(packet).flags & RST == 0
}

fn see(system: System, setup: Setup) -> Seen {
    see_on(system, setup, None)
}

/// Runs a world on a path on which only those packets reach the server that `passes` lets.
fn see_on(system: System, setup: Setup, passes: Option<Filter>) -> Seen {
    let (mut server, mut clients) = (server_config(), vec![client_config(0)]);
    system.apply(&mut server, &mut clients, TimeWaitState::Compact);
    let plain = |config: &mut Config| {
        config.tcp.time_wait.close_swap = false;
        config.tcp.time_wait.negotiate = Wish::Off;
    };
    match setup {
        Setup::Both | Setup::Guarded => {}
        Setup::ClientAlone => plain(&mut server),
        Setup::ServerAlone => clients.iter_mut().for_each(plain),
        Setup::Required => {
            clients.iter_mut().for_each(plain);
            server.tcp.time_wait.require = system == System::Negotiated;
        }
    }
    let link = LinkConfig { delay: DELAY, ..LinkConfig::default() };
    let mut lan = Lan::new(Time::Made, server, &[web::PORT], clients, &link);
    lan.captured = Some(Vec::new());
    lan.filter = passes;
    if setup == Setup::Guarded {
        lan.filter = Some(|server, packet| !is_reset_in_time_wait(server, packet));
    }
    let plan =
        web::Plan { files: vec![(FILE_BYTES, 1)], count: CONNECTIONS, ..web::Plan::default() };
    let mut web = Web::new(plan, lan.now);
    lan.rest(&mut web, LENGTH);
    Seen {
        done: web.done,
        server: lan.server().time_wait_len(),
        client: lan.client(0).time_wait_len(),
        captured: lan.captured.take().unwrap_or_default(),
    }
}

/// The result of a check: whether the cell is a yes, and the reason.
type Found = (bool, String);

/// A row of the table.
struct Row {
    title: &'static str,
    /// The paper's: negotiation, swap, CLIENT_CLOSE.
    paper: [bool; 3],
    /// The name of the check, and the check.
    name: &'static str,
    check: fn(System) -> Found,
    /// The same check, of something to which it must give the other answer, for each of
    /// [`SYSTEMS`]; `None`: the cell of CLIENT_CLOSE.
    ablated: Option<fn(usize) -> Found>,
}

const SYSTEMS: [(&str, System); 2] =
    [("negotiation", System::Negotiated), ("swap", System::Swapped)];

const OTHERS: Ablation = Ablation {
    name: "others",
    instead: "each cell is checked with a system, a setup or a path to which it says the contrary",
};

const ROWS: [Row; 8] = [
    Row {
        title: "reduces TIME-WAIT loading",
        paper: [true, true, true],
        name: "the server has none where it had one for each connection",
        check: reduces_loading,
        ablated: Some(|_| reduces_loading(System::Unmodified)),
    },
    Row {
        title: "compatible with current protocols",
        paper: [true, true, true],
        name: "either end modified, the other not: all is served, one end waits",
        check: is_compatible,
        ablated: Some(is_incompatible),
    },
    Row {
        title: "effective if only the client is modified",
        paper: [false, true, true],
        name: "an unmodified server has none",
        check: needs_client_alone,
        ablated: Some(|at| needs_client_alone([System::Swapped, System::Unmodified][at])),
    },
    Row {
        title: "allows to prevent assassination",
        paper: [true, false, true],
        name: "a server that heeds no RST in TIME-WAIT has none",
        check: may_be_guarded,
        ablated: Some(|at| may_be_guarded([System::Unmodified, System::Negotiated][at])),
    },
    Row {
        title: "no changes to the transport protocol",
        paper: [false, false, true],
        name: "flags, options and lengths of all segments are as ever",
        check: leaves_transport,
        ablated: Some(|_| leaves_transport(System::Unmodified)),
    },
    Row {
        title: "no changes to application protocols",
        paper: [true, true, false],
        name: "the text both ways is as ever",
        check: leaves_application,
        ablated: None,
    },
    Row {
        title: "adds no packet exchanges",
        paper: [true, false, false],
        name: "as many packets are captured as ever",
        check: adds_no_packets,
        ablated: Some(|at| adds_no_packets([System::Swapped, System::Unmodified][at])),
    },
    Row {
        title: "allocation is a requirement of establishment",
        paper: [true, false, false],
        name: "a client that does not take part gets no connection",
        check: is_required,
        ablated: Some(|at| is_required([System::Unmodified, System::Negotiated][at])),
    },
];

fn reduces_loading(system: System) -> Found {
    let [before, after] = [System::Unmodified, system].map(|system| see(system, Setup::Both));
    let all = CONNECTIONS as usize;
    let holds = before.is_whole() && after.is_whole() && before.server == all;
    let holds = holds && (after.server, after.client) == (0, all);
    (
        holds,
        format!(
            "{} → {} at the server, {} at the client",
            before.server, after.server, after.client
        ),
    )
}

fn is_compatible(system: System) -> Found {
    is_compatible_if(system, Setup::ServerAlone, None)
}

/// The same for a server alone in that setup, and a path on which only those packets reach it.
fn is_compatible_if(system: System, alone: Setup, passes: Option<Filter>) -> Found {
    let [client, server] = [Setup::ClientAlone, alone].map(|setup| see_on(system, setup, passes));
    let all = CONNECTIONS as usize;
    let one_waits = |seen: &Seen| seen.is_whole() && seen.server + seen.client == all;
    let failed = client.done.failed + server.done.failed;
    (
        one_waits(&client) && one_waits(&server),
        format!(
            "{failed} failed; client alone: {} and {}; server alone: {} and {} wait",
            client.server, client.client, server.server, server.client
        ),
    )
}

/// A server that requires negotiation, and a path that drops the RSTs of swap.
fn is_incompatible(at: usize) -> Found {
    match SYSTEMS[at].1 {
        System::Negotiated => is_compatible_if(System::Negotiated, Setup::Required, None),
        system => is_compatible_if(system, Setup::ServerAlone, Some(is_no_reset)),
    }
}

fn needs_client_alone(system: System) -> Found {
    let seen = see(system, Setup::ClientAlone);
    (seen.is_whole() && seen.server == 0, format!("{} at the server", seen.server))
}

fn may_be_guarded(system: System) -> Found {
    let seen = see(system, Setup::Guarded);
    (seen.is_whole() && seen.server == 0, format!("{} at the server", seen.server))
}

fn leaves_transport(system: System) -> Found {
    let [plain, seen] = [System::Unmodified, system].map(|system| see(system, Setup::Both));
    let (before, after) = (plain.segments(), seen.segments());
    let options = after.iter().filter(|segment| segment.2.contains(&EXPERIMENT)).count();
    let resets = after.iter().filter(|segment| segment.1 & RST != 0).count();
    (before == after, format!("{options} segments with a new option, {resets} RSTs"))
}

fn leaves_application(system: System) -> Found {
    let [plain, seen] = [System::Unmodified, system].map(|system| see(system, Setup::Both));
    let texts = seen.texts();
    let bytes = texts.each_ref().map(Vec::len);
    (plain.is_whole() && texts == plain.texts(), format!("{} and {} bytes", bytes[0], bytes[1]))
}

fn adds_no_packets(system: System) -> Found {
    let [plain, seen] = [System::Unmodified, system].map(|system| see(system, Setup::Both));
    let found =
        format!("{:.2} → {:.2} a connection", plain.per_connection(), seen.per_connection());
    (plain.captured.len() == seen.captured.len(), found)
}

fn is_required(system: System) -> Found {
    let seen = see(system, Setup::Required);
    let is_refused = seen.done.failed == CONNECTIONS && seen.server == 0;
    (is_refused, format!("{} served, {} refused", seen.done.connections, seen.done.failed))
}

fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The seed of the clients.
pub(crate) fn seeds() -> Vec<u64> {
    vec![web::SEED]
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_ablated = report.is_ablated(&OTHERS);
    let mut table = Table::new(&[
        "",
        "negotiation",
        "paper's",
        "swap",
        "paper's swap",
        "CLIENT_CLOSE",
        "paper's CLIENT_CLOSE",
    ]);
    let mut checks = Table::new(&["property", "system", "check", "found"]);
    let (column, whole) = (http::column(is_ablated)?, http::column(false)?);
    let rows = ROWS.into_iter().zip(column).zip(whole);
    for ((Row { title, paper, name, check, ablated }, closes), whole) in rows {
        let mut cells = Vec::new();
        for (at, (system_name, system)) in SYSTEMS.into_iter().enumerate() {
            let paper = paper[at];
            let (yes, found) = match (is_ablated, ablated) {
                (false, _) => check(system),
                (true, Some(ablated)) => ablated(at),
                (true, None) => whole.1.clone(),
            };
            checks.row(&[&title, &system_name, &name, &format!("{}: {found}", word(yes))]);
            report.claim(
                &format!("{system_name}, {title}: {}", word(paper)),
                &OTHERS,
                yes == paper,
                found,
            );
            cells.extend([word(yes), word(paper)]);
        }
        let (name, (yes, found)) = closes;
        checks.row(&[&title, &"CLIENT_CLOSE", &name, &format!("{}: {found}", word(yes))]);
        let claim = format!("CLIENT_CLOSE, {title}: {}", word(paper[2]));
        report.claim(&claim, &OTHERS, yes == paper[2], found);
        let [a, b, c, d] = [cells[0], cells[1], cells[2], cells[3]];
        table.row(&[&title, &a, &b, &c, &d, &word(yes), &word(paper[2])]);
    }
    report.table("table4", &table)?;
    report.table("checks", &checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_tells_the_systems_apart() {
        // Each row is compared to the unmodified system.
        let (yes, no) = (|check: fn(System) -> Found| check(System::Unmodified).0, false);
        assert_eq!(yes(reduces_loading), no);
        assert_eq!(yes(needs_client_alone), no);
        assert_eq!(yes(may_be_guarded), no);
        assert_eq!(yes(is_required), no);
        assert!(yes(is_compatible) && yes(leaves_transport) && yes(leaves_application));
        assert!(yes(adds_no_packets));
    }

    #[test]
    fn a_plain_connection_has_six_packets_and_all_its_text() {
        let seen = see(System::Unmodified, Setup::Both);
        assert!(seen.is_whole(), "{:?}", seen.done);
        assert_eq!(seen.texts().map(|text| text.len()), [50 * 100, 50 * 637]);
        let first: Vec<u8> = seen.segments().iter().take(2).map(|segment| segment.1).collect();
        assert_eq!(first, [2, 18], "SYN, and SYN with ACK");
    }
}
