//! The process that takes over.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use lightwait::shard::Handle;
use lightwait::wrap::handover::{Ends, Predecessor, Switch, Way};
use lightwait_core::config::Member;
use lightwait_core::host::Remains;
use rustix::process::geteuid;

use super::wire::{Conversation, Hello, Message, Offer};
use super::{Takeover, monotonic_ns};
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::serve::admin::Shards;
use crate::serve::signals::Signals;

/// How long the process that serves may take to offer what it has: it ends the connections of the
/// one before it first.
const OFFER_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to hand over what it has, and to say that it is given: longer than it waits
/// for this process to serve.
const STATE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a shard waits for another before it looks at the signals again.
const LOOK: Duration = Duration::from_millis(50);

/// What a process has taken.
pub(super) struct Taken {
    talk: Mutex<Option<Conversation>>,
    pid: u64,
    pub(super) origin: StdInstant,
    device: Option<Legacy>,
    listens: Vec<(String, OwnedFd)>,
    pub(super) admin: Option<OwnedFd>,
    before: Arc<Predecessor>,
    has_device: bool,
    /// Of each shard.
    states: Mutex<Vec<State>>,
    gate: Gate,
}

/// The device of the process before, and what belongs to its host.
pub(crate) struct Legacy {
    pub(crate) queues: Vec<OwnedFd>,
    pub(crate) secret: [u8; 32],
    pub(crate) hardware: [u8; 6],
}

/// What a shard of the process before has handed over.
#[derive(Clone, Default)]
struct State {
    cookies: bool,
    ends: Vec<Ends>,
    remains: Vec<u8>,
}

impl Taken {
    /// Asks the process that serves for what it has. Returns the socket at which the next one asks,
    /// too.
    pub(super) fn ask(stream: UnixStream, hello: &Hello) -> Result<(Taken, UnixListener), String> {
        let mut talk = Conversation::new(stream);
        let gone = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                format!("the process there gave no answer in {} s", OFFER_PATIENCE.as_secs())
            }
            _ => format!("the process there is gone, or does not speak as this one does ({error})"),
        };
        let user = talk.peer_user().map_err(gone)?;
        if user != geteuid().as_raw() && user != 0 {
            return Err(format!("the process there is of user {user}, and this one is not"));
        }
        talk.wait(Some(OFFER_PATIENCE)).map_err(gone)?;
        talk.send(&Message::Hello(hello.clone())).map_err(gone)?;
        let offer = match talk.receive().map_err(gone)? {
            Message::Offer(offer) => offer,
            Message::Refused(why) => return Err(why),
            _ => return Err("the process there made no offer".to_owned()),
        };
        let descriptors = talk.take_descriptors();
        Taken::of(talk, offer, descriptors)
            .ok_or_else(|| "the offer of the process there is not whole".to_owned())
    }

    fn of(
        talk: Conversation,
        offer: Offer,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Taken, UnixListener)> {
        let mut rest = descriptors.into_iter();
        let mut next = |count: usize| -> Option<Vec<OwnedFd>> {
            let taken: Vec<_> = rest.by_ref().take(count).collect();
            (taken.len() == count).then_some(taken)
        };
        let shards = usize::try_from(offer.queues).ok()?;
        let (queues, channels) = (next(shards)?, next(shards)?);
        let listens = offer.listens.into_iter();
        let listens = listens.map(|at| Some((at, next(1)?.pop()?))).collect::<Option<_>>()?;
        let admin = if offer.has_admin { next(1)?.pop() } else { None };
        let door = UnixListener::from(next(1)?.pop()?);
        let age = Duration::from_nanos(monotonic_ns().checked_sub(offer.origin_ns)?);
        let hardware = offer.hardware;
        let device = offer.secret.map(|secret| Legacy { queues, secret, hardware });
        let taken = Taken {
            talk: Mutex::new(Some(talk)),
            pid: offer.pid,
            origin: StdInstant::now().checked_sub(age)?,
            has_device: device.is_some(),
            device,
            listens,
            admin,
            before: Arc::new(Predecessor::new(channels)),
            states: Mutex::default(),
            gate: Gate::default(),
        };
        Some((taken, door))
    }

    pub(super) fn take_device(&mut self) -> Option<Legacy> {
        self.device.take()
    }

    pub(super) fn take_listeners(&mut self, address: &str) -> Vec<OwnedFd> {
        let taken = self.listens.extract_if(.., |(at, _)| at == address);
        taken.map(|(_, socket)| socket).collect()
    }

    /// Hears of the connections of the process before, to its end, and returns what is to be said
    /// of that. `None` if this process ends before it has taken over.
    pub(super) fn follow(
        &self,
        switches: &[Switch],
        shards: &Shards,
        signals: &Signals,
    ) -> Option<Record> {
        if !self.gate.wait_for(SERVES, 1, signals) {
            return None;
        }
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // It lasts until its connections are over.
        let _ = talk.wait(None);
        while let Ok(message) = talk.receive() {
            match message {
                Message::Remains(shard, remains) => self.keep(shard, remains, shards),
                Message::Gone(ends) => self.before.remove(ends),
                _ => break,
            }
        }
        let left = self.before.end();
        for (shard, switch) in switches.iter().enumerate() {
            let switch = switch.clone();
            shards.ask_and_wait(shard, move |_| switch.set(Way::Straight));
        }
        Some(Record::Drained { pid: self.pid, left })
    }

    /// A shard keeps records. Only then are frames between their ends its own.
    fn keep(&self, shard: u16, remains: Vec<u8>, shards: &Shards) {
        let before = self.before.clone();
        shards.ask_and_wait(shard.into(), move |stacks| {
            let (_, stack) = &stacks.all[0];
            let remains = decode_all(stack, &remains);
            stack.inherit(&remains, false);
            before.remove(remains.iter().map(ends_of));
        });
    }
}

impl Takeover {
    /// What the process before has is this one's from here on, if there is one: each shard calls
    /// this when it has opened all that it needs. Returns false if a signal asked for a stop before
    /// that.
    pub(in crate::serve) fn join(
        &self,
        member: Member,
        stack: &Handle,
        signals: &Signals,
        log: &Log,
    ) -> Result<bool, Failure> {
        let Some(taken) = &self.taken else { return Ok(true) };
        let (shards, index) = (usize::from(member.of), usize::from(member.index));
        if !taken.gate.pass(OPENED, shards, signals) {
            return Ok(false);
        }
        let refuse = |error: std::io::Error| {
            let why = format!("process {} did not hand over ({error})", taken.pid);
            Failure::Takeover(self.path.clone(), why)
        };
        if index == 0 {
            *taken.states() = taken.fetch(shards).map_err(refuse)?;
        }
        if !taken.gate.pass(FETCHED, shards, signals) {
            return Ok(false);
        }
        let State { cookies, ends, remains } = std::mem::take(&mut taken.states()[index]);
        let remains = decode_all(stack, &remains);
        let (records, connections) = (stack.inherit(&remains, cookies), ends.len());
        taken.before.add(ends, member.index);
        if taken.has_device {
            self.switches[index].set(Way::Shared(taken.before.clone()));
        }
        log.write(Record::TakenOver { pid: taken.pid, shard: member.index, connections, records });
        if !taken.gate.pass(KEPT, shards, signals) {
            return Ok(false);
        }
        if index == 0 {
            let mut talk = taken.talk.lock().unwrap_or_else(PoisonError::into_inner);
            let talk = talk.as_mut().expect("it is taken once this process serves");
            serve(talk).map_err(refuse)?;
            self.is_owner.store(true, Ordering::Release);
            taken.gate.arrive(SERVES);
        }
        Ok(taken.gate.wait_for(SERVES, 1, signals))
    }
}

impl Taken {
    fn states(&self) -> std::sync::MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each shard of the process before hands over.
    fn fetch(&self, shards: usize) -> std::io::Result<Vec<State>> {
        let mut states = vec![State::default(); shards];
        let nonsense = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let talk = talk.as_mut().ok_or_else(nonsense)?;
        talk.wait(Some(STATE_PATIENCE))?;
        talk.send(&Message::Begin)?;
        loop {
            match talk.receive()? {
                Message::Ends(shard, cookies, ends) => {
                    let state = states.get_mut(usize::from(shard)).ok_or_else(nonsense)?;
                    state.cookies |= cookies;
                    state.ends.extend(ends);
                }
                Message::Remains(shard, remains) => {
                    let state = states.get_mut(usize::from(shard)).ok_or_else(nonsense)?;
                    state.remains.extend(remains);
                }
                Message::Complete => return Ok(states),
                Message::Refused(why) => return Err(std::io::Error::other(why)),
                _ => return Err(nonsense()),
            }
        }
    }
}

/// Says that this process serves. Fails unless the one before says that it does not any more.
fn serve(talk: &mut Conversation) -> std::io::Result<()> {
    talk.send(&Message::Serving)?;
    match talk.receive()? {
        Message::Given => Ok(()),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

fn decode_all(stack: &Handle, mut bytes: &[u8]) -> Vec<Remains> {
    let (now, mut all) = (stack.now(), Vec::new());
    while let Some((remains, len)) = Remains::decode(now, bytes) {
        all.push(remains);
        bytes = &bytes[len..];
    }
    all
}

fn ends_of(remains: &Remains) -> Ends {
    (remains.record.tuple.local(), remains.record.tuple.remote())
}

/// The steps that all shards make together.
const OPENED: usize = 0;
const FETCHED: usize = 1;
const KEPT: usize = 2;
const SERVES: usize = 3;

/// Where shards wait for one another, as long as no signal asks for a stop: one that has failed
/// does not come.
#[derive(Default)]
struct Gate {
    arrived: Mutex<[usize; 4]>,
    changed: Condvar,
}

impl Gate {
    fn arrive(&self, step: usize) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)[step] += 1;
        self.changed.notify_all();
    }

    /// Waits until so many have made a step. False if a signal asks for a stop before.
    fn wait_for(&self, step: usize, count: usize, signals: &Signals) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        while arrived[step] < count {
            if signals.is_stop() {
                return false;
            }
            let waited = self.changed.wait_timeout(arrived, LOOK);
            (arrived, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    fn pass(&self, step: usize, count: usize, signals: &Signals) -> bool {
        self.arrive(step);
        self.wait_for(step, count, signals)
    }
}
