//! Runs real programs on real devices, in network namespaces that vanish with the experiment.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Why something could not be run.
pub type Failure = Box<dyn std::error::Error>;

/// The time limit for a started program to be ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program `lightwait`, from the same build as this one.
pub fn lightwait() -> Result<PathBuf, Failure> {
    let directory = std::env::current_exe()?;
    let directory = directory.parent().ok_or("a program without a directory")?;
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", "lightwait-cli", "--profile", profile]);
    run(build.current_dir(env!("CARGO_MANIFEST_DIR")))?;
    Ok(directory.join("lightwait"))
}

/// Runs a command to its end. Returns its output; fails if the command fails.
pub fn run(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}: {complaint}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A child process; dropping this ends it.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    /// Starts a command.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Process, Failure> {
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Process(child))
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// Asks the process to end, and waits until it has.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM)?;
        self.0.wait()?;
        Ok(())
    }

    /// Waits until the process ends by itself; fails if it ends with an error.
    pub fn end(mut self) -> Result<(), Failure> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(status.to_string().into()) }
    }

    /// True if the process runs.
    pub fn runs(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait()?.is_none())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace with loopback up.
#[derive(Debug)]
pub struct Namespace(Process);

impl Namespace {
    /// Makes a namespace. It needs root, or a user with the right to make namespaces.
    pub fn new() -> Result<Namespace, Failure> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "echo ready; exec sleep 100000"]);
        let mut process = Process::start(unshare.stdout(Stdio::piped()))?;
        let mut line = String::new();
        let output = process.0.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if line != "ready\n" {
            return Err("no network namespace can be made: this takes root".into());
        }
        let namespace = Namespace(process);
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// A command in the namespace, on that processor.
    pub fn command_on(&self, processor: usize, program: impl AsRef<Path>) -> Command {
        let mut command = self.command("taskset");
        command.args(["--cpu-list", &processor.to_string()]).arg(program.as_ref());
        command
    }

    /// A command in the namespace that runs on the first so many processors.
    pub fn command_among(&self, processors: u16, program: impl AsRef<Path>) -> Command {
        let mut command = self.command("taskset");
        let list = format!("0-{}", processors.saturating_sub(1));
        command.args(["--cpu-list", &list]).arg(program.as_ref());
        command
    }

    /// A command in the namespace.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.0.id().to_string(), "--net", "--"]);
        command.arg(program.as_ref());
        command
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &str) -> Result<(), Failure> {
        run(self.command("ip").args(arguments.split(' '))).map(drop)
    }

    /// A descriptor of the namespace, for a thread that enters it.
    ///
    /// # Errors
    /// If /proc does not have it.
    pub fn file(&self) -> Result<fs::File, Failure> {
        Ok(fs::File::open(format!("/proc/{}/ns/net", self.0.0.id()))?)
    }

    /// Moves an interface to another namespace.
    pub fn give(&self, interface: &str, other: &Namespace) -> Result<(), Failure> {
        self.ip(&format!("link set {interface} netns {}", other.0.0.id()))
    }
}

/// `lightwait serve`, with its log.
#[derive(Debug)]
pub struct Server {
    process: Process,
    log: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server by a command, to which it adds the flags for a readable log. Waits until it
    /// serves.
    pub fn start(command: &mut Command) -> Result<Server, Failure> {
        command.args(["--json", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(command)?;
        let log = BufReader::new(process.0.stdout.take().ok_or("no output")?);
        let mut server = Server { process, log };
        server.event("serving")?;
        Ok(server)
    }

    /// The server's process: `nsenter` and `taskset` turn into the programs that they start.
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// The server's levels and counters now.
    pub fn counts(&mut self) -> Result<Counts, Failure> {
        self.process.signal(Signal::USR1)?;
        Ok(Counts(self.event("counts")?))
    }

    /// The number of things that the server holds of a limited kind, such as `time_wait` or
    /// `pages`.
    pub fn held(&mut self, level: &str) -> Result<u64, Failure> {
        self.counts()?.held(level)
    }

    /// Ends the server.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.process.signal(Signal::TERM)?;
        let mut rest = String::new();
        self.log.read_to_string(&mut rest)?;
        self.process.end()
    }

    fn event(&mut self, name: &str) -> Result<Value, Failure> {
        loop {
            let mut line = String::new();
            if self.log.read_line(&mut line)? == 0 {
                return Err(format!("the server ended before the event {name}").into());
            }
            let event: Value = serde_json::from_str(&line)?;
            if event["event"] == name {
                return Ok(event);
            }
        }
    }
}

/// A server's levels and counters at one moment.
#[derive(Debug)]
pub struct Counts(Value);

impl Counts {
    /// The number of things of a limited kind.
    pub fn held(&self, level: &str) -> Result<u64, Failure> {
        let held = self.0["levels"][level]["held"].as_u64();
        held.ok_or_else(|| format!("no level {level}").into())
    }

    /// Events since the server began.
    pub fn counter(&self, name: &str) -> Result<u64, Failure> {
        let count = self.0["counters"][name].as_u64();
        count.ok_or_else(|| format!("no counter {name}").into())
    }
}

/// Processor time of a process, without that of its ended children.
pub fn processor_time(id: u32) -> Result<Duration, Failure> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name may have spaces; it ends with the last parenthesis.
    let (_, fields) = text.rsplit_once(')').ok_or("a strange /proc")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { return Err("no times".into()) };
    let hz = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64((user + system) as f64 / hz as f64))
}

/// A line of `/proc/ID/status` that is in kB, such as `VmRSS`, in bytes.
pub fn memory(id: u32, line: &str) -> Result<u64, Failure> {
    kilobytes(&format!("/proc/{id}/status"), line)
}

/// A line of a file of /proc that is in kB, in bytes.
pub fn kilobytes(path: &str, name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let value = lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
    let number = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    number.map(|kilobytes| kilobytes << 10).ok_or_else(|| format!("no {name} in {path}").into())
}

/// Waits until `is_so` is true, 20 s at most.
pub fn wait_until(
    what: &str,
    mut is_so: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > PATIENCE {
            return Err(format!("not so in {PATIENCE:?}: {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
