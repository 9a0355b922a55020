//! The process that another takes over from.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lightwait::rt;
use lightwait::shard::Handle;
use lightwait::wrap::handover::{self, Ends, Switch, Way};
use lightwait_core::Instant;
use lightwait_core::flow::Tuple;
use lightwait_core::host::{Remains, Socket};
use rustix::process::geteuid;
use tokio::sync::Notify;

use super::wire::{Conversation, Hello, Message, Offer, VERSION};
use super::{Takeover, monotonic_ns};
use crate::log::Record;
use crate::serve::Stacks;
use crate::serve::admin::Shards;
use crate::serve::signals::Signals;

/// How long a new process may take to say what it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to open its files, certificates and sockets.
const BEGIN_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to serve, while nobody receives from the device.
const SERVING_PATIENCE: Duration = Duration::from_secs(5);
/// How long it may hear nothing after that: it waits for its shards, which may be busy, and the
/// connections here are reset if it is taken for dead.
const HEARING_PATIENCE: Duration = Duration::from_secs(60);
/// How often a shard tells of connections that are over.
const REPORT: Duration = Duration::from_millis(10);
/// Connections that it looks at each time.
const LOOKS: usize = 4096;
/// Connections, or records, in a message.
const PIECE: usize = 50_000;

/// What a shard hands over.
struct State {
    cookies: bool,
    ends: Vec<Ends>,
    remains: Vec<Remains>,
    now: Instant,
}

/// Gives to the first process that asks and can take. Returns when the shards are gone.
pub(super) fn give_to_next(
    takeover: &Takeover,
    shards: &Shards,
    given: &Notify,
    signals: &Signals,
) {
    let door = {
        let door = takeover.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.as_ref().and_then(|door| door.try_clone().ok())
    };
    let Some(door) = door else { return };
    loop {
        let accepted = door.accept();
        if signals.is_stop() {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(REPORT);
            continue;
        };
        match offer(takeover, stream, shards) {
            Ok((talk, pid, states, channels)) => {
                drop(door);
                let late = commit(takeover, shards, states, channels);
                given.notify_waiters();
                takeover.write(Record::HandedOver { pid });
                signals.hand_over();
                return tell(takeover, talk, &late);
            }
            Err(why) => {
                let text = format!("A process could not take over: {why}. This one serves on.");
                takeover.write(Record::Trouble { text });
            }
        }
    }
}

type Begun = (Conversation, u64, Vec<State>, Vec<OwnedFd>);

/// Hands everything to a process, up to the moment at which it serves. After a failure this process
/// serves on as before.
fn offer(takeover: &Takeover, stream: UnixStream, shards: &Shards) -> Result<Begun, String> {
    let mut talk = Conversation::new(stream);
    let text = |error: std::io::Error| error.to_string();
    let user = talk.peer_user().map_err(text)?;
    if user != geteuid().as_raw() && user != 0 {
        return Err(format!("it is of user {user}"));
    }
    talk.wait(Some(HELLO_PATIENCE)).map_err(text)?;
    let Message::Hello(hello) = talk.receive().map_err(text)? else {
        return Err("it did not say what it is".to_owned());
    };
    if let Some(why) = unlike(&takeover.hello, &hello) {
        let _ = talk.send(&Message::Refused(why.clone()));
        return Err(why);
    }
    let channels = send_offer(takeover, &hello, &mut talk).map_err(text)?;
    talk.wait(Some(BEGIN_PATIENCE)).map_err(text)?;
    let begin = talk.receive().map_err(text)?;
    if begin != Message::Begin {
        return Err("it did not begin".to_owned());
    }
    talk.wait(Some(SERVING_PATIENCE)).map_err(text)?;
    let outcome = hand_over(takeover, shards, &mut talk, !channels.is_empty());
    if outcome.is_err() {
        // A shard that is stuck takes it once it goes on.
        let _ = set_ways(takeover, shards, || Way::Straight);
    }
    Ok((talk, hello.pid, outcome?, channels))
}

/// Why the new process cannot take over from this one.
fn unlike(old: &Hello, new: &Hello) -> Option<String> {
    let pid = old.pid;
    if new.version != VERSION {
        return Some(format!(
            "process {pid} hands over by version {VERSION} of the protocol, and not by {}: stop \
             it, and start the new one",
            new.version
        ));
    }
    if old.stack != new.stack {
        return Some(format!("process {pid} serves on {}, not on {}", old.stack, new.stack));
    }
    if old.shards != new.shards {
        return Some(format!(
            "process {pid} has --shards {}, which a takeover cannot change",
            old.shards
        ));
    }
    let lacking = old.addresses.iter().find(|address| !new.addresses.contains(address));
    lacking.map(|address| {
        format!("process {pid} has connections at {address}: give the new one --ip {address}")
    })
}

/// Sends the descriptors. Returns this end of the channels of a device.
fn send_offer(
    takeover: &Takeover,
    hello: &Hello,
    talk: &mut Conversation,
) -> std::io::Result<Vec<OwnedFd>> {
    let holdings = takeover.holdings();
    let queues = &holdings.queues;
    let channels = queues.iter().map(|_| handover::channel());
    let (theirs, ours): (Vec<_>, Vec<_>) =
        channels.collect::<std::io::Result<Vec<_>>>()?.into_iter().unzip();
    let listens = holdings.listens.iter().filter(|(at, _)| hello.listens.contains(at));
    let listens: Vec<_> = listens.collect();
    let admin = holdings.admin.as_ref().filter(|_| takeover.hello.admin == hello.admin);
    let door = takeover.door.lock().unwrap_or_else(PoisonError::into_inner);
    let offer = Offer {
        pid: takeover.hello.pid,
        secret: holdings.secret,
        hardware: holdings.hardware,
        origin_ns: monotonic_ns()
            .saturating_sub(lightwait_core::time::as_nanos(takeover.origin.elapsed())),
        queues: queues.len() as u64,
        listens: listens.iter().map(|(at, _)| at.clone()).collect(),
        has_admin: admin.is_some(),
    };
    let descriptors: Vec<BorrowedFd<'_>> = queues
        .iter()
        .chain(&theirs)
        .chain(listens.iter().map(|(_, socket)| socket))
        .chain(admin)
        .map(AsFd::as_fd)
        .chain(door.as_ref().map(AsFd::as_fd))
        .collect();
    talk.send_with(&Message::Offer(offer), &descriptors)?;
    Ok(ours)
}

/// Hands over what the shards have, who receive nothing meanwhile, and waits until the new process
/// serves.
fn hand_over(
    takeover: &Takeover,
    shards: &Shards,
    talk: &mut Conversation,
    has_device: bool,
) -> Result<Vec<State>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut states = Vec::new();
    if has_device {
        set_ways(takeover, shards, || Way::Held)?;
        // What a shard had for another has come to that one after a turn of both.
        for shard in 0..shards.count() {
            shards.ask_and_wait(shard, |_| ()).ok_or_else(|| stuck(shard))?;
        }
        for shard in 0..shards.count() {
            let state = shards.ask_and_wait(shard, state_of);
            states.push(state.ok_or_else(|| stuck(shard))?);
        }
    }
    for (shard, state) in (0..).zip(&states) {
        talk.send(&Message::Ends(shard, state.cookies, Vec::new())).map_err(text)?;
        for piece in state.ends.chunks(PIECE) {
            let message = Message::Ends(shard, state.cookies, piece.to_vec());
            talk.send(&message).map_err(text)?;
        }
        for piece in state.remains.chunks(PIECE) {
            talk.send(&Message::Remains(shard, encode_all(piece, state.now))).map_err(text)?;
        }
    }
    talk.send(&Message::Complete).map_err(text)?;
    if talk.receive().map_err(text)? != Message::Serving {
        return Err("it did not serve".to_owned());
    }
    // It receives only once it has this.
    talk.send(&Message::Given).map_err(text)?;
    Ok(states)
}

/// Sets the way of each shard. Fails if one gives no answer: that one may still receive.
fn set_ways(takeover: &Takeover, shards: &Shards, way: impl Fn() -> Way) -> Result<(), String> {
    let mut outcome = Ok(());
    for (shard, switch) in takeover.switches.iter().enumerate() {
        let (switch, way) = (switch.clone(), way());
        if shards.ask_and_wait(shard, move |_| switch.set(way)).is_none() {
            outcome = Err(stuck(shard));
        }
    }
    outcome
}

fn stuck(shard: usize) -> String {
    format!("shard {shard} is stuck")
}

fn encode_all(remains: &[Remains], now: Instant) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(remains.len() * Remains::BYTES[0]);
    remains.iter().for_each(|remains| remains.encode(now, &mut bytes));
    bytes
}

/// What the server's stack of a shard has. Listeners are opened anew.
fn state_of(stacks: &Stacks) -> State {
    stacks.with_server(|host, now| {
        let ends = |socket: Socket<'_>| match socket {
            Socket::HalfOpen(_) | Socket::Connection(_) => Some((socket.local(), socket.remote()?)),
            Socket::Listener(_) | Socket::Record(_) => None,
        };
        State {
            cookies: host.awaits_cookies(now),
            ends: host.sockets().filter_map(ends).collect(),
            remains: host.remains(now),
            now,
        }
    })
}

/// What a shard has to say after the handover.
enum Late {
    Remains(u16, Vec<u8>),
    Gone(Vec<Ends>),
}

/// The new process serves: every shard ends its connections, and gets their frames through a
/// channel. Returns what the shards have to say until then.
fn commit(
    takeover: &Takeover,
    shards: &Shards,
    states: Vec<State>,
    channels: Vec<OwnedFd>,
) -> Receiver<Late> {
    let (late, heard) = channel();
    let parts = states.into_iter().zip(channels).zip(&takeover.switches).enumerate();
    for (shard, ((state, channel), switch)) in parts {
        let (switch, late) = (switch.clone(), late.clone());
        shards.ask_and_wait(shard, move |stacks| give(stacks, state, channel, &switch, late));
    }
    // The next process asks the new one.
    *takeover.door.lock().unwrap_or_else(PoisonError::into_inner) = None;
    takeover.is_given.store(true, Ordering::Release);
    heard
}

fn give(stacks: &Stacks, state: State, channel: OwnedFd, switch: &Switch, late: Sender<Late>) {
    let (_, stack) = &stacks.all[0];
    stack.step_down();
    // All but what has become a record since is handed over already. An orphan that was awake then
    // has a record that is older than that.
    let lived: HashSet<Ends> = state.ends.iter().copied().collect();
    let is_new = |Remains { record, .. }: &Remains| {
        let ends = (record.tuple.local(), record.tuple.remote());
        record.entered >= state.now || lived.contains(&ends)
    };
    let since: Vec<Remains> = stack.take_remains().into_iter().filter(is_new).collect();
    for piece in since.chunks(PIECE) {
        let _ = late.send(Late::Remains(stacks.member.index, encode_all(piece, stack.now())));
    }
    switch.set(Way::Given(channel));
    stack.spawn_local(report(stack.clone(), stacks.member.index, state.ends, late));
}

/// Tells which connections are over, and what is left of them, until the shard ends.
async fn report(stack: Handle, shard: u16, mut ends: Vec<Ends>, late: Sender<Late>) {
    let mut next = 0;
    loop {
        let remains = stack.take_remains();
        for piece in remains.chunks(PIECE) {
            let _ = late.send(Late::Remains(shard, encode_all(piece, stack.now())));
        }
        let mut gone = Vec::new();
        stack.with_host(|host| {
            for _ in 0..LOOKS.min(ends.len()) {
                next = if next < ends.len() { next } else { 0 };
                let Some((ours, theirs)) = ends.get(next).copied() else { break };
                let tuple = Tuple::new((ours.ip(), ours.port()), (theirs.ip(), theirs.port()));
                if host.is_known(&tuple) {
                    next += 1;
                } else {
                    gone.push(ends.swap_remove(next));
                }
            }
        });
        if !gone.is_empty() {
            let _ = late.send(Late::Gone(gone));
        }
        rt::sleep(REPORT).await;
    }
}

/// Tells the new process what the shards say, until they are gone.
fn tell(takeover: &Takeover, mut talk: Conversation, late: &Receiver<Late>) {
    let _ = talk.wait(Some(HEARING_PATIENCE));
    for late in late {
        let message = match late {
            Late::Remains(shard, remains) => Message::Remains(shard, remains),
            Late::Gone(ends) => Message::Gone(ends),
        };
        if let Err(error) = talk.send(&message) {
            let text = format!(
                "The process that took over is gone ({error}). This one ends its connections alone."
            );
            return takeover.write(Record::Trouble { text });
        }
    }
}
