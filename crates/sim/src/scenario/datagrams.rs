//! Datagrams between A and B: sockets on both sides that know what may come to them, and the
//! accounts of all that were sent.
//!
//! The network may lose a datagram, double it or bring it late. Nothing else may happen: what a
//! socket reads was sent to it, to the byte; and what a host counts is what came of it.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::UdpSocket;
use lightwait::rt;
use lightwait_core::Host;
use lightwait_core::rng::Rng;
use lightwait_core::udp::{Received, Transmit};

use crate::cable::{Cable, Side};
use crate::pattern::Pattern;

/// The port of the first exchange's server; the others follow.
const FIRST_PORT: u16 = 5000;
/// Beyond the longest delay of any link, and the longest wait for a fragment.
const IDLE: Duration = Duration::from_secs(100);
/// Bytes before the pattern: the exchange, the direction and the number.
const HEADER_BYTES: usize = 12;
/// The longest datagram and what it is read into.
const LONGEST: usize = 65_507;

/// What one client sends to one server, which answers each datagram with one.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The time at which A begins, from the world's beginning.
    pub start: Duration,
    /// Calls that send.
    pub calls: u32,
    /// Bytes of a datagram, at least and at most.
    pub bytes: (u64, u64),
    /// Datagrams of a call.
    pub batch: usize,
    /// The pause between two calls.
    pub pause: Duration,
    /// The client is connected.
    pub is_connected: bool,
    /// Nothing is cut into fragments.
    pub dont_fragment: bool,
    /// What comes in a row from one sender is read together.
    pub joined: bool,
    /// Bytes that wait at the server.
    pub receive_bytes: u32,
    /// Nobody is on the port.
    pub is_unheard: bool,
}

/// The datagrams of one exchange in one direction.
#[derive(Debug, Default)]
struct Way {
    /// The length of each that was sent, and how often it was read.
    sent: Vec<(usize, u32)>,
}

/// The accounts of a world's datagrams.
#[derive(Debug)]
pub(super) struct Accounts {
    seed: u64,
    ways: Vec<[Way; 2]>,
    /// What the ends of each exchange are: the client's port, once it is known.
    clients: Vec<Option<u16>>,
    /// Errors of ICMP that a client has read.
    refused: Vec<u32>,
    /// By side: datagrams that were read, and those that were refused for want of a page.
    read: [u64; 2],
    without_page: [u64; 2],
    clients_left: usize,
    servers_left: usize,
    broken: Option<String>,
}

/// What the shards of a host have counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    left: u64,
    come: u64,
    over_limit: u64,
    without_page: u64,
    unheard: u64,
    unreachable: u64,
    /// Lost in the host itself, before they left or after they came.
    lost: u64,
}

impl Counted {
    pub(super) fn by(hosts: impl IntoIterator<Item = Counted>) -> Counted {
        hosts.into_iter().fold(Counted::default(), |all, one| Counted {
            left: all.left + one.left,
            come: all.come + one.come,
            over_limit: all.over_limit + one.over_limit,
            without_page: all.without_page + one.without_page,
            unheard: all.unheard + one.unheard,
            unreachable: all.unreachable + one.unreachable,
            lost: all.lost + one.lost,
        })
    }

    pub(super) fn of(host: &Host) -> Counted {
        let counters = host.counters();
        Counted {
            left: counters.datagrams_out,
            come: counters.datagrams_in,
            over_limit: counters.datagrams_over_limit,
            without_page: counters.datagrams_without_page,
            unheard: counters.datagrams_unheard,
            unreachable: counters.unreachable,
            lost: counters.neighbour_drops + counters.messages_lost + counters.reassembly_failed,
        }
    }
}

/// One end of one exchange.
#[derive(Clone)]
pub(super) struct End {
    pub(super) number: usize,
    pub(super) side: Side,
    pub(super) addresses: [IpAddr; 2],
    pub(super) exchanges: Rc<[Exchange]>,
    pub(super) accounts: Rc<RefCell<Accounts>>,
}

impl Accounts {
    pub(super) fn new(seed: u64, exchanges: usize) -> Accounts {
        Accounts {
            seed,
            ways: (0..exchanges).map(|_| Default::default()).collect(),
            clients: vec![None; exchanges],
            refused: vec![0; exchanges],
            read: [0; 2],
            without_page: [0; 2],
            clients_left: exchanges,
            servers_left: 0,
            broken: None,
        }
    }

    /// True if every client and server has ended, or one has seen what may not be.
    pub(super) fn is_over(&self) -> bool {
        self.broken.is_some() || self.clients_left + self.servers_left == 0
    }

    /// Datagrams that were sent and read.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sent(0) + self.sent(1), self.read.iter().sum())
    }

    fn sent(&self, side: usize) -> u64 {
        self.ways.iter().map(|ways| ways[side].sent.len() as u64).sum()
    }

    pub(super) fn verdict(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Checks that both hosts have counted what came of the datagrams.
    pub(super) fn check(&self, counted: [Counted; 2], cable: &Cable) -> Result<(), String> {
        for side in [Side::A, Side::B] {
            let (ours, theirs) = (&counted[side.index()], &counted[side.other().index()]);
            let sent = self.sent(side.index());
            let pages = ours.without_page - self.without_page[side.index()];
            let read = self.read[side.index()];
            let link = cable.link_from(side).counters();
            let copies = if link.duplicated > 0 { 2 } else { 1 };
            let is_clean = link.pushed == link.delivered
                && link.corrupted + link.duplicated + ours.lost + theirs.lost == 0
                && !cable.is_narrow(side);
            let rules = [
                (
                    "each datagram that a socket took leaves once",
                    ours.left == sent || ours.left < sent && ours.unreachable > 0,
                ),
                (
                    "each that comes is read, dropped or unheard",
                    ours.come == read + ours.over_limit + ours.unheard + pages,
                ),
                ("no more come than left", theirs.come <= ours.left * copies),
                ("a clean link brings all", !is_clean || theirs.come == ours.left),
            ];
            if let Some((rule, _)) = rules.into_iter().find(|(_, holds)| !holds) {
                return Err(format!(
                    "{side:?}: {rule}: sent {sent}, read {read}, {ours:?}; there {theirs:?}; \
                     {link:?}"
                ));
            }
        }
        Ok(())
    }

    fn break_rule(&mut self, rule: String) {
        self.broken.get_or_insert(rule);
    }
}

/// The bytes of a datagram.
fn bytes_of(seed: u64, exchange: usize, way: usize, number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (field, value) in bytes.chunks_exact_mut(4).zip([exchange, way, number]) {
        field.copy_from_slice(&(value as u32).to_le_bytes());
    }
    let pattern = Pattern::new(seed ^ (exchange as u64) << 32 ^ (way as u64) << 31);
    if let Some(rest) = bytes.get_mut(HEADER_BYTES..) {
        pattern.fill((number as u64) << 17, rest);
    }
    bytes
}

/// The Internet's checksum over some bytes: what no receiver can tell apart has the same.
fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Of the two zeros, one.
    if sum == 0xffff { 0 } else { sum as u16 }
}

impl End {
    fn plan(&self) -> &Exchange {
        &self.exchanges[self.number]
    }

    /// The direction of what this end sends.
    fn way(&self) -> usize {
        self.side.index()
    }

    fn server(&self) -> SocketAddr {
        SocketAddr::new(self.addresses[1], FIRST_PORT + self.number as u16)
    }

    /// Runs the client: sends all that the plan says, and reads what comes until long after.
    pub(super) async fn run_client(self) {
        if let Err(error) = self.client().await {
            let rule = format!("exchange {}, client: {error}", self.number);
            self.accounts.borrow_mut().break_rule(rule);
        }
        self.accounts.borrow_mut().clients_left -= 1;
    }

    async fn client(&self) -> io::Result<()> {
        let plan = self.plan();
        rt::sleep(plan.start).await;
        let any: IpAddr = match self.addresses[0] {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.set_dont_fragment(plan.dont_fragment)?;
        socket.set_joined(plan.joined)?;
        let port = socket.local_addr()?.port();
        self.accounts.borrow_mut().clients[self.number] = Some(port);
        if plan.is_connected {
            socket.connect(self.server()).await?;
        }
        let mut rng = Rng::from_seed(self.accounts.borrow().seed ^ self.number as u64);
        for _ in 0..plan.calls {
            let to = (!plan.is_connected).then(|| self.server());
            self.send(&socket, to, &mut rng).await?;
            self.take_all(&socket)?;
            rt::sleep(plan.pause).await;
        }
        self.read_until_quiet(&socket, || true, |_| None).await
    }

    /// Starts the server, at each of the shards of B.
    pub(super) fn start_server(self, shard: &lightwait::shard::Handle) -> Result<(), String> {
        let any: IpAddr = match self.addresses[1] {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        if self.plan().is_unheard {
            return Ok(());
        }
        let bound = UdpSocket::bind_on(shard, (any, self.server().port()));
        let socket = bound.map_err(|error| format!("exchange {}: {error}", self.number))?;
        self.accounts.borrow_mut().servers_left += 1;
        shard.spawn_local(async move {
            if let Err(error) = self.serve(socket).await {
                let rule = format!("exchange {}, server: {error}", self.number);
                self.accounts.borrow_mut().break_rule(rule);
            }
            self.accounts.borrow_mut().servers_left -= 1;
        });
        Ok(())
    }

    async fn serve(&self, socket: UdpSocket) -> io::Result<()> {
        socket.set_recv_buffer_size(self.plan().receive_bytes as usize)?;
        socket.set_joined(self.plan().joined)?;
        let mut rng = Rng::from_seed(!self.accounts.borrow().seed ^ self.number as u64);
        let is_over = || self.accounts.borrow().clients_left == 0;
        self.read_until_quiet(&socket, is_over, |from| {
            let (at, len) = (self.next(), self.length(&mut rng));
            let bytes = bytes_of(self.accounts.borrow().seed, self.number, self.way(), at, len);
            match socket.try_send_to(&bytes, from) {
                Ok(_) => {
                    self.note_sent(&[len]);
                    None
                }
                Err(error) => self.judge_refusal(error).err(),
            }
        })
        .await
    }

    fn next(&self) -> usize {
        self.accounts.borrow().ways[self.number][self.way()].sent.len()
    }

    fn length(&self, rng: &mut Rng) -> usize {
        let (least, most) = self.plan().bytes;
        let drawn = least + rng.next_u64() % (most - least + 1);
        // What is shorter than the header says nothing: it is empty then.
        if (drawn as usize) < HEADER_BYTES { 0 } else { drawn as usize }
    }

    fn note_sent(&self, lengths: &[usize]) {
        let mut accounts = self.accounts.borrow_mut();
        let sent = &mut accounts.ways[self.number][self.way()].sent;
        sent.extend(lengths.iter().map(|len| (*len, 0)));
    }

    /// Sends as many datagrams as a call has, all of one length.
    async fn send(
        &self,
        socket: &UdpSocket,
        to: Option<SocketAddr>,
        rng: &mut Rng,
    ) -> io::Result<()> {
        let len = self.length(rng);
        let batch = if len == 0 { 1 } else { self.plan().batch };
        let (first, seed) = (self.next(), self.accounts.borrow().seed);
        let each = (first..first + batch)
            .flat_map(|number| bytes_of(seed, self.number, self.way(), number, len));
        let bytes: Vec<u8> = each.collect();
        let transmit = Transmit { to, segment: (batch > 1).then_some(len), ..Transmit::default() };
        // It is on the account before it leaves: the answer may come first.
        self.note_sent(&vec![len; batch]);
        if let Err(error) = socket.transmit(&transmit, &bytes).await {
            let mut accounts = self.accounts.borrow_mut();
            accounts.ways[self.number][self.way()].sent.truncate(first);
            drop(accounts);
            self.judge_refusal(error)?;
        }
        Ok(())
    }

    /// An error that a sender or reader may see, or not.
    fn judge_refusal(&self, error: io::Error) -> io::Result<()> {
        let mut accounts = self.accounts.borrow_mut();
        match error.kind() {
            io::ErrorKind::ConnectionRefused => accounts.refused[self.number] += 1,
            io::ErrorKind::QuotaExceeded => accounts.without_page[self.side.index()] += 1,
            io::ErrorKind::HostUnreachable | io::ErrorKind::WouldBlock => {}
            _ if error.raw_os_error() == Some(TOO_LONG) => {}
            _ => return Err(error),
        }
        Ok(())
    }

    /// Reads what has come, without waiting.
    fn take_all(&self, socket: &UdpSocket) -> io::Result<()> {
        let mut bytes = vec![0; LONGEST];
        loop {
            let mut received = [None];
            match socket.try_receive_many(&mut [IoSliceMut::new(&mut bytes)], &mut received) {
                Ok(_) => received.iter().flatten().for_each(|it| self.judge(it, &bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => self.judge_refusal(error)?,
            }
        }
    }

    /// Reads until nothing has come for long and `is_over`. `answer` may answer each datagram.
    async fn read_until_quiet(
        &self,
        socket: &UdpSocket,
        is_over: impl Fn() -> bool,
        mut answer: impl FnMut(SocketAddr) -> Option<io::Error>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; LONGEST];
        loop {
            let mut received = [None];
            let mut out = [IoSliceMut::new(&mut bytes)];
            let reading = socket.receive_many(&mut out, &mut received);
            match rt::timeout(IDLE, reading).await {
                Err(rt::Elapsed) if is_over() => return Ok(()),
                Err(rt::Elapsed) => {}
                Ok(Err(error)) => self.judge_refusal(error)?,
                Ok(Ok(_)) => {
                    let Some(received) = received[0] else { continue };
                    self.judge(&received, &bytes);
                    for _ in 0..count_of(&received) {
                        if let Some(error) = answer(received.from) {
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    /// What was read must have been sent, to here, and no oftener than the cable brought it.
    fn judge(&self, received: &Received, bytes: &[u8]) {
        let mut accounts = self.accounts.borrow_mut();
        accounts.read[self.side.index()] += count_of(received);
        let client = accounts.clients[self.number].unwrap_or(0);
        let client = SocketAddr::new(self.addresses[0], client);
        let (from, to) = match self.side {
            Side::A => (self.server(), self.addresses[0]),
            Side::B => (client, self.addresses[1]),
        };
        if (received.from, received.to) != (from, to) {
            let rule = format!("exchange {}: {received:?}, not {from} > {to}", self.number);
            return accounts.break_rule(rule);
        }
        if received.segment > received.len && received.len > 0 {
            return accounts.break_rule(format!("exchange {}: cut off: {received:?}", self.number));
        }
        let (seed, way) = (accounts.seed, 1 - self.way());
        let all = &bytes[..received.len];
        let pieces: Vec<&[u8]> = match received.len {
            0 => vec![all],
            _ => all.chunks(received.segment).collect(),
        };
        for piece in pieces {
            let sent = &mut accounts.ways[self.number][way].sent;
            if let Err(rule) = judge_datagram(seed, (self.number, way), sent, piece) {
                let rule = format!("exchange {}, {way}: {rule}", self.number);
                return accounts.break_rule(rule);
            }
        }
    }
}

/// `EMSGSIZE`.
const TOO_LONG: i32 = 90;

fn count_of(received: &Received) -> u64 {
    received.len.div_ceil(received.segment.max(1)).max(1) as u64
}

/// Judges one datagram that was read, by all that were sent that way.
fn judge_datagram(
    seed: u64,
    (exchange, way): (usize, usize),
    sent: &mut [(usize, u32)],
    bytes: &[u8],
) -> Result<(), String> {
    let field = |at: usize| {
        let field = bytes.get(at..at + 4).and_then(<[u8]>::first_chunk);
        field.map_or(usize::MAX, |field| u32::from_le_bytes(*field) as usize)
    };
    let number = match bytes.len() {
        // Empty ones are all alike: the one that was read least.
        0 => (0..sent.len()).filter(|at| sent[*at].0 == 0).min_by_key(|at| sent[*at].1),
        _ => Some(field(8)).filter(|number| *number < sent.len()),
    };
    let is_right = number.is_some_and(|number| {
        sent[number].0 == bytes.len() && bytes == bytes_of(seed, exchange, way, number, bytes.len())
    });
    if let Some(number) = number.filter(|_| is_right) {
        sent[number].1 += 1;
        // The first copy and, on a cable that doubles, the second.
        return match sent[number].1 {
            1 | 2 => Ok(()),
            copies => Err(format!("number {number} was read {copies} times")),
        };
    }
    // Damage that the checksum cannot see: another of the same length has the same sum.
    let is_unseen = (0..sent.len())
        .filter(|at| sent[*at].0 == bytes.len())
        .any(|at| sum_of(&bytes_of(seed, exchange, way, at, bytes.len())) == sum_of(bytes));
    match is_unseen {
        true => Ok(()),
        false => Err(format!("{} bytes that nobody sent, as number {number:?}", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_invention_and_a_third_copy_are_seen() {
        let mut sent = vec![(100, 0), (0, 0), (100, 0)];
        let right = bytes_of(7, 1, 0, 2, 100);
        let judge = |sent: &mut [_], bytes: &[u8]| judge_datagram(7, (1, 0), sent, bytes);
        assert_eq!(judge(&mut sent, &right), Ok(()));
        assert_eq!(judge(&mut sent, &right), Ok(()), "a double");
        assert!(judge(&mut sent, &right).is_err(), "a third");
        assert_eq!(judge(&mut sent, &[]), Ok(()));
        let mut damaged = right.clone();
        damaged[50] ^= 4;
        assert!(judge(&mut sent, &damaged).is_err());
        damaged[52] ^= 4;
        let swapped = (right[50] ^ right[52]) & 4 != 0;
        assert_eq!(judge(&mut sent, &damaged).is_ok(), swapped, "no checksum sees that");
        for foreign in [bytes_of(7, 0, 0, 2, 100), bytes_of(7, 1, 1, 2, 100)] {
            assert!(judge(&mut sent, &foreign).is_err(), "of another exchange");
        }
        assert!(judge(&mut sent, &bytes_of(7, 1, 0, 3, 100)).is_err(), "never sent");
        assert!(judge(&mut sent, &right[..99]).is_err(), "cut off");
    }
}
