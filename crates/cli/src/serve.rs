//! Carries a plan out: opens what it names, serves until told to stop, and lets responses finish.

mod device;
mod shutdown;

use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use lightwait::driver::{self, Stop as DriverStop};
use lightwait::net::{TcpListener, TcpStream};
use lightwait::rt::Timer;
use lightwait::shard::Handle;
use lightwait_http::{Clock, Files, Server, ServerConfig, ThreadPoolFiles};

use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{LogPlan, Plan, Stack};
use shutdown::Shutdown;

/// Threads that read files which the kernel's caches do not hold.
const FILE_THREADS: usize = 4;
/// How long responses may take to finish after the first signal.
const GRACE: Duration = Duration::from_secs(30);
/// Wait after a failure to accept: it is a lack of memory or descriptors, which takes time to pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A file service over one shard's connections.
type FileServer = Server<Files<ThreadPoolFiles>>;

/// Serves until a signal comes or the device fails.
pub(crate) fn serve(plan: &Plan) -> Result<(), Failure> {
    let directory = &plan.directory;
    let files = ThreadPoolFiles::new(directory, FILE_THREADS)
        .map_err(|error| Failure::Directory(directory.clone(), error))?;
    let (log, writer) = Log::start(plan.log.json, io::stdout()).map_err(Failure::Stack)?;
    let outcome = run(plan, files, &log);
    drop(log);
    writer.finish();
    outcome
}

fn run(plan: &Plan, files: ThreadPoolFiles, log: &Log) -> Result<(), Failure> {
    let shutdown = Shutdown::install().map_err(Failure::Stack)?;
    let server = Rc::new(file_server(plan, files, log));
    let ready = match &plan.stack {
        Stack::Device { device, addresses, gateways, port } => {
            device::open(device, addresses, gateways, *port, &plan.watch)?
        }
        Stack::Bridge { .. } => return Err(Failure::Stack(io::ErrorKind::Unsupported.into())),
    };
    let mut shards = ready.shards;
    let handle = ready.handle;
    let stop = DriverStop::new();
    log.write(Record::Serving { directory: shown(plan), urls: ready.urls, stack: ready.name });
    let acceptor =
        handle.spawn_local(accept_all(ready.listener, server.clone(), log.clone(), plan.log));
    let (signal, ended) = (shutdown.requested(), stop.clone());
    let (log, at) = (log.clone(), handle.clone());
    handle.spawn_local(async move {
        signal.await;
        // Dropping the listener resets what was not accepted.
        acceptor.abort();
        stop_server(&server, &at, &log).await;
        ended.set();
    });
    driver::run(&mut shards, &stop, driver::SPIN).map_err(Failure::Stack)
}

fn shown(plan: &Plan) -> String {
    let full = plan.directory.canonicalize();
    full.as_ref().unwrap_or(&plan.directory).display().to_string()
}

fn file_server(plan: &Plan, files: ThreadPoolFiles, log: &Log) -> FileServer {
    let clock = Clock { timer: Rc::new(Timer), wall: Rc::new(SystemTime::now) };
    let files = Files::new(files, plan.files.clone(), clock.clone());
    let server = Server::new(files, ServerConfig::default(), clock);
    if !plan.log.requests {
        return server;
    }
    let log = log.clone();
    server.on_access(move |access| log.write(Record::Access(access.clone())))
}

/// Accepts connections until it is aborted, each served by a task of its own.
async fn accept_all(listener: TcpListener, server: Rc<FileServer>, log: Log, plan: LogPlan) {
    let handle = Handle::current();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                handle.spawn_local(serve_one(stream, peer, server.clone(), log.clone(), plan));
            }
            Err(_) => lightwait::rt::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_one(
    stream: TcpStream,
    peer: std::net::SocketAddr,
    server: Rc<FileServer>,
    log: Log,
    plan: LogPlan,
) {
    // Nagle would hold a response's last segment back until the one before is acknowledged. It
    // fails only on a connection that is over already.
    let _ = stream.set_nodelay(true);
    if let Err(error) = server.serve(stream, peer).await
        && plan.failures
    {
        log.write(Record::Failed { peer, error: describe(&error) });
    }
}

/// An error with what caused it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Lets responses finish, and then what was written arrive.
async fn stop_server(server: &FileServer, handle: &Handle, log: &Log) {
    let stop = server.stop();
    log.write(Record::Stopping { connections: stop.tracked() });
    stop.request();
    let finished = async {
        stop.finished().await;
        // Closed connections still have data and a FIN on their way.
        while handle.with_host(|host| host.connections()) > 0 {
            lightwait::rt::sleep(Duration::from_millis(5)).await;
        }
    };
    let unfinished = match lightwait::rt::timeout(GRACE, finished).await {
        Ok(()) => 0,
        Err(_) => stop.tracked().max(handle.with_host(|host| host.connections())),
    };
    log.write(Record::Stopped { unfinished });
}
