//! Carries out a plan: opens the files and devices that it names, and serves until a signal or a
//! failure. Then it lets responses finish.

pub(crate) mod admin;
mod bridge;
pub(crate) mod claim;
mod closed;
mod crew;
pub(crate) mod device;
mod entrance;
mod hardware;
mod manager;
mod memory;
mod parting;
mod reload;
mod sandbox;
mod secure;
pub(crate) mod signals;
mod slow;
mod stopping;
mod suspect;
pub(crate) mod takeover;
mod tallies;
mod watched;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lightwait::bridge::{Bridge, Clients};
use lightwait::driver::{self, Stop as DriverStop};
use lightwait::rt::Timer;
use lightwait::shard::{Handle, Shard};
use lightwait::shards::{self, Seat};
use lightwait_core::config::Member;
use lightwait_core::{Host, Instant};
use lightwait_http::stack;
use lightwait_http::{Clock, Files, Memory, Server, Sites, ThreadPoolFiles};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use crate::config_file::{ConfigFile, Source};
use crate::counts::Counts;
use crate::failure::Failure;
use crate::log::{self, Log, Outputs, Record};
use crate::plan::{Capture, Plan, Stack, Vhost};
use admin::{Door, Shards, Times};
use crew::Crew;
use entrance::{Entrance, Service};
use parting::Parting;
use reload::Reload;
use sandbox::Sandbox;
pub(crate) use sandbox::drop_privileges;
use secure::Secure;
use signals::Signals;
use slow::Slow;
use stopping::Stopping;
use takeover::Takeover;
use watched::Watched;

/// Threads that read files which the kernel's caches do not hold.
const FILE_THREADS: usize = 4;

/// A file service over one shard's connections.
type FileServer = Server<Parting>;

/// Serves until a signal comes or the device fails. `file`: the configuration file, if there is
/// one, and what it says. Returns the status to end with.
pub(crate) fn serve(plan: &Plan, file: Option<(Source, ConfigFile)>) -> Result<ExitCode, Failure> {
    raise_descriptor_limit();
    // Each shard opens it again; this tells what is wrong before anything else is opened.
    files_of(plan, 1)?;
    plan.check_pages()?;
    // Before there is another thread.
    let config = file.as_ref().map(|(source, _)| source.path());
    let sandbox = plan.sandbox.then(|| Sandbox::of_files(plan, config));
    let is_taken = plan.watch.capture.as_ref().is_some_and(Capture::takes_stdout);
    let out: Box<dyn Write + Send> =
        if is_taken { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    let outputs = Outputs::new(out, io::stderr())
        .with_files(plan.log.file.as_deref(), plan.log.access.as_ref())?;
    let (log, writer) = Log::start(plan.log.form.clone(), outputs).map_err(Failure::Stack)?;
    let collecting = log::collect(plan.log.level, &log);
    let outcome = run(plan, file.map(|file| Reload::new(file, plan)), sandbox, &log);
    drop((collecting, log));
    writer.finish();
    outcome
}

/// The sources of files, that for all names first. So many threads read for all of them.
fn files_of(plan: &Plan, threads: usize) -> Result<Vec<ThreadPoolFiles>, Failure> {
    let fault = |directory: &PathBuf, error| Failure::Directory(directory.clone(), error);
    let first = ThreadPoolFiles::new(&plan.directory, threads)
        .map_err(|error| fault(&plan.directory, error))?
        .by(plan.disk)
        .map_err(Failure::Uring)?;
    let mut all = vec![first];
    for Vhost { directory, .. } in &plan.vhosts {
        let next = all[0].beside(directory).map_err(|error| fault(directory, error))?;
        all.push(next);
    }
    Ok(all)
}

/// The sites of a plan, each with its source, that for all names first.
fn sites_of(
    plan: &Plan,
    sources: Vec<ThreadPoolFiles>,
    clock: &Clock,
    memory: &Memory,
) -> Sites<Slow> {
    let mut all = sources.into_iter().map(|files| {
        let files = Slow { files, delay: plan.file_delay };
        Files::new(files, plan.files.clone(), clock.clone()).with_memory(memory.clone())
    });
    let sites = Sites::new(all.next().expect("there is one for all names"));
    plan.vhosts.iter().zip(all).fold(sites, |sites, (vhost, files)| sites.with(&vhost.host, files))
}

/// What a shard's stack is opened on.
enum Part {
    /// The kernel's listening sockets.
    Bridge(bridge::Sockets),
    /// A queue of the device.
    Device(Box<device::Queue>),
}

/// A listening stack, and the shards to run.
struct Ready {
    shards: Vec<Shard>,
    /// Controls the shard that serves.
    handle: Handle,
    /// For HTTP first, then for HTTPS if there is such.
    entrances: Vec<Entrance>,
    /// Where clients reach it.
    urls: Vec<String>,
    /// The device beneath the stack, as a text for people.
    name: String,
    /// The bridge in front of the stack, if it is not on a device.
    front: Option<Front>,
}

/// The kernel's side of a bridge.
struct Front {
    runtime: Runtime,
    /// Controls the client stack.
    client: Handle,
    /// One for each entrance.
    bridges: Vec<Bridge>,
}

fn run(
    plan: &Plan,
    reload: Option<Reload>,
    sandbox: Option<Sandbox>,
    log: &Log,
) -> Result<ExitCode, Failure> {
    let signals = Signals::install().map_err(Failure::Stack)?;
    let mut takeover = Takeover::open(plan)?;
    let mut parts = match &plan.stack {
        Stack::Bridge { listen } => bridge::listen(*listen, plan, takeover.as_mut())?,
        Stack::Device { .. } => device::open(plan, takeover.as_mut(), log)?,
    };
    let secure = Secure::open(plan)?;
    let watched = Watched::open(plan, log)?;
    let (asked, questions) = Shards::new(plan.shards);
    let had = takeover.as_mut().and_then(Takeover::take_admin);
    let door = plan.admin.as_ref().map(|address| Door::open(address, &asked, had)).transpose()?;
    if let (Some(takeover), Some(door)) = (&takeover, &door) {
        takeover.hold_admin(door.socket().map_err(Failure::Stack)?);
    }
    let admin = door.as_ref().map(|door| door.address.clone());
    let mut socket = admin.clone().map(admin::SocketFile::new);
    let restricted = Mutex::new(sandbox.map(Sandbox::of_calls).unwrap_or_default());
    let takeover = takeover.map(Arc::new);
    let _end = takeover::End(takeover.clone());
    let crew = Crew::new(plan.shards, log.clone(), questions, admin);
    let crew = Arc::new(crew.with_file(reload).with_takeover(takeover.clone()));
    if let Some(takeover) = &takeover {
        let given = crew.health.given.clone();
        takeover.stay(asked, given, &signals, log).map_err(Failure::Stack)?;
    }
    if let (Some(door), Some(captures)) = (door, watched.captures()) {
        door.answer(crew.health.clone(), captures.clone()).map_err(Failure::Stack)?;
    }
    let common = Common {
        plan,
        crew: &crew,
        secure: &secure,
        signals: &signals,
        watched: &watched,
        restricted: &restricted,
        log,
    };
    if plan.shards == 1 {
        let part = parts.pop().expect("one shard has one part");
        common.serve_on(part, None)?;
    } else {
        let work = |seat: Seat, part| common.serve_on(part, Some(seat));
        shards::threads(parts, plan.cores, work, || signals.cut())?;
    }
    if crew.is_given()
        && let Some(socket) = &mut socket
    {
        socket.leave();
    }
    Ok(signals.exit_code())
}

/// What all shards have.
struct Common<'a> {
    plan: &'a Plan,
    crew: &'a Arc<Crew>,
    secure: &'a Option<Secure>,
    signals: &'a Signals,
    watched: &'a Watched<'a>,
    /// What is said of the sandbox once the server serves.
    restricted: &'a Mutex<Vec<Record>>,
    log: &'a Log,
}

impl Common<'_> {
    /// Serves on one shard until a signal comes, or the device fails.
    fn serve_on(&self, part: Part, seat: Option<Seat>) -> Result<(), Failure> {
        let Common { crew, signals, log, .. } = *self;
        let member = seat.as_ref().map_or(Member::ALONE, Seat::member);
        let peers = seat.as_ref().map(Seat::peers);
        let mut plan = self.plan.member(member);
        let files = files_of(&plan, member.part(FILE_THREADS).max(1))?;
        let ready = match part {
            Part::Bridge(socket) => socket.open(&plan, member, self.watched)?,
            Part::Device(queue) => queue.open(&plan, seat, self.watched)?,
        };
        let Ready { mut shards, handle, entrances, urls, name, front } = ready;
        if !claim::wait(&mut shards, &handle, signals, log)? {
            return Ok(());
        }
        if let Some(takeover) = &crew.takeover
            && !takeover.join(member, &handle, signals, log)?
        {
            return Ok(());
        }
        // The kernel may have chosen it.
        let https_port = entrances.get(1).map(|secure| secure.port);
        plan.redirect_to(https_port);
        if !member.is_replica() {
            self.begin(&handle, urls, name.clone());
        }
        let times = plan.admin.is_some().then(Times::new);
        let server = Rc::new(file_server(&plan, files, log, &handle, crew, times.clone()));
        let (log, logs_failures) = (log.clone(), plan.log.failures);
        let service = Service { server: server.clone(), log, logs_failures, times: times.clone() };
        let credentials = self.secure.as_ref().map(|secure| secure.credentials.clone());
        // The first is without TLS.
        let credentials = [None, credentials];
        let clients = entrances.iter().filter_map(|entrance| entrance.clients.clone()).collect();
        let accepting = entrances.into_iter().zip(credentials).map(|(entrance, credentials)| {
            handle.spawn_local(entrance.accept_all(service.clone(), credentials))
        });
        let mut stopping = Stopping {
            fronts: Vec::new(),
            tasks: accepting.collect(),
            stacks: Stacks {
                member,
                all: Vec::new(),
                server,
                https_port,
                crew: crew.clone(),
                times,
                clients,
            },
            service,
        };
        if let Some(peers) = peers {
            stopping.tasks.push(handle.spawn_local(crew::watch(member, peers, crew.clone())));
        }
        drive((shards, handle), front, (stopping, &name), signals)
    }

    /// Says that the server serves, and does what SIGHUP asks for.
    fn begin(&self, handle: &Handle, urls: Vec<String>, stack: String) {
        let (log, admin) = (self.log, self.crew.admin.clone());
        let has_taken = self.crew.takeover.as_ref().is_some_and(|it| it.has_taken());
        self.crew.manager.ready(&format!("Serving at {}", urls.join(" and ")), has_taken);
        log.write(Record::Serving { directory: shown(self.plan), urls, stack, admin });
        let mut restricted = self.restricted.lock().unwrap_or_else(PoisonError::into_inner);
        restricted.drain(..).for_each(|record| log.write(record));
        drop(restricted);
        if let Some(secure) = self.secure {
            secure.tell(log, &self.crew.health.expiries);
            handle.spawn_local(secure::remind(log.clone(), self.crew.clone()));
        }
        let (log, secure, crew) = (log.clone(), self.secure.clone(), self.crew.clone());
        handle.spawn_local(self.signals.whenever_hung_up(move || {
            crew.manager.reloading(|| {
                log.reopen();
                let plan = crew.reload.as_ref().and_then(|reload| reload.again(&log));
                if let Some(secure) = &secure {
                    secure.reload(plan.as_ref(), &log, &crew.health.expiries);
                }
            });
        }));
    }
}

/// Drives the shards until they have stopped.
fn drive(
    (mut shards, handle): (Vec<Shard>, Handle),
    front: Option<Front>,
    (mut stopping, name): (Stopping, &str),
    signals: &Signals,
) -> Result<(), Failure> {
    let asked = signals.clone();
    let Some(Front { runtime, client, bridges }) = front else {
        stopping.watch(&handle, name);
        stopping.stacks.answer(&handle, signals);
        let stop = DriverStop::new();
        let ended = stop.clone();
        handle.spawn_local(async move {
            asked.stop().await;
            stopping.run(&asked).await;
            ended.set();
        });
        return driver::run(&mut shards, &stop, driver::SPIN).map_err(Failure::Stack);
    };
    let relays = bridges.into_iter();
    let relays =
        relays.map(|bridge| client.spawn_local(async move { match bridge.run().await {} }));
    stopping.fronts.extend(relays);
    stopping.watch(&handle, "the server's stack");
    stopping.watch(&client, "the bridge's client stack");
    stopping.stacks.answer(&handle, signals);
    let stopped = handle.spawn_local(async move {
        asked.stop().await;
        stopping.run(&asked).await;
    });
    runtime.block_on(async {
        tokio::select! {
            end = driver::drive(shards) => end.map(|never| match never {}).map_err(Failure::Stack),
            _ = stopped => Ok(()),
        }
    })
}

fn shown(plan: &Plan) -> String {
    let full = plan.directory.canonicalize();
    full.as_ref().unwrap_or(&plan.directory).display().to_string()
}

/// A file service that charges its files in flight to the memory of `stack`.
fn file_server(
    plan: &Plan,
    sources: Vec<ThreadPoolFiles>,
    log: &Log,
    stack: &Handle,
    crew: &Crew,
    times: Option<Times>,
) -> FileServer {
    let clock = Clock {
        timer: Rc::new(Timer),
        measure: Rc::new(lightwait::rt::measure),
        wall: Rc::new(SystemTime::now),
    };
    let memory = stack::memory_of(stack);
    let sites = Parting::new(sites_of(plan, sources, &clock, &memory));
    let server = Server::new(sites, plan.server.clone(), clock).with_memory(memory);
    let mut server = server.with_clients(crew.clients.clone());
    if let Some(percent) = plan.ask_at {
        let stack = stack.clone();
        server = server.ask_clients_while(move || stack.with_host(|host| presses(host, percent)));
    }
    let log = plan.log.requests.then(|| log.clone());
    if log.is_none() && times.is_none() {
        return server;
    }
    server.on_access(move |access| {
        if let Some(times) = &times {
            times.note(&access);
        }
        if let Some(log) = &log {
            log.write(Record::Access(Box::new(access)));
        }
    })
}

/// True while TIME-WAIT is at least this full, in percent of its limit.
fn presses(host: &Host, percent: u8) -> bool {
    host.time_wait_len() * 100 >= host.limits().time_wait * usize::from(percent)
}

/// All stacks with their names, and the server on the first.
#[derive(Clone)]
struct Stacks {
    /// The shard that they are of.
    member: Member,
    all: Vec<(String, Handle)>,
    server: Rc<FileServer>,
    /// Where it answers over TLS, if it does.
    https_port: Option<u16>,
    crew: Arc<Crew>,
    /// What responses took, if somebody may ask.
    times: Option<Times>,
    /// The clients behind bridged connections.
    clients: Vec<Clients>,
}

impl Stacks {
    /// The client whose connection the server sees coming from there, if a bridge is between.
    fn client_behind(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.clients.iter().find_map(|clients| Some(clients.behind(peer)?.address()))
    }

    fn sum(&self, count: impl Fn(&Host) -> usize) -> usize {
        self.all.iter().map(|(_, stack)| stack.with_host(&count)).sum()
    }

    /// The server's stack.
    fn server_stack(&self) -> &Handle {
        &self.all[0].1
    }

    /// Gives `look` the server's host, and its time.
    fn with_server<R>(&self, look: impl FnOnce(&Host, Instant) -> R) -> R {
        let stack = self.server_stack();
        let now = stack.now();
        stack.with_host(|host| look(host, now))
    }

    /// The counters of all stacks, the server's first.
    fn counts(&self) -> Vec<Counts> {
        let mut told = Vec::new();
        let mut served = Some(self.server.tally());
        for (name, stack) in &self.all {
            let mut counts = stack.with_host(|host| Counts::of(name, host));
            // The first is the server's.
            if let Some(tally) = served.take() {
                counts.add_served(self.server.connections());
                counts.add(&tallies::of_responses(&tally));
                counts.add(&tallies::of_connections(&tally));
                counts.add(&tallies::of_closes(&tally));
                counts.add(&tallies::of_tls(&self.server.tls()));
                counts.add(&tallies::of_http2(&self.server.http2()));
                counts.add(&tallies::of_cache(&self.server.handler().cache_tally()));
            }
            told.push(counts);
        }
        told
    }

    /// Tells the counters, to be logged with those of the other shards in this round.
    fn tell(&self, round: u32) {
        self.crew.tell(self.member, round, self.counts());
    }

    /// Tells the counters each time that a signal asks for them, and answers the admin door and the
    /// shards that have no place for a client.
    fn answer(&self, shard: &Handle, signals: &Signals) {
        shard.spawn_local(self.server.give_places());
        shard.spawn_local(self.crew.manager.clone().watch(self.member));
        if let Some(reload) = &self.crew.reload {
            shard.spawn_local(reload.follow(self));
        }
        let stacks = self.clone();
        shard.spawn_local(signals.whenever_asked(move |round| stacks.tell(round)));
        if let Some(questions) = self.crew.questions(self.member) {
            shard.spawn_local(admin::answer(questions, self.clone()));
        }
    }
}

/// Raises the limit of descriptors as far as allowed: a file in flight takes one, and so does a
/// bridged connection. If the kernel refuses, the old limit holds.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
