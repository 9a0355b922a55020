//! A script played against a stack: the loop of packetdrill's `run.c`.
//!
//! Packets that are expected are asked for at once, for they may leave too early; everything else
//! waits for its time first. The stack's clock is the only one.

mod clock;
mod datagrams;
mod inbound;
mod outbound;
mod sockets;
mod worker;

use std::sync::Arc;

use crate::ast::{Action, Direction, Event, Script, When};
use crate::calls;
use crate::config::Config;
use crate::door::Door;
use crate::python::Code;
use crate::shell::Shell;

pub(crate) use sockets::{Descriptor, Phase, Socket};
pub(crate) use worker::{Output, Prepared, Returned};

use sockets::Descriptors;
use worker::Worker;

/// How long before an event we stop sleeping and watch the clock instead.
const SPIN_USECS: i64 = 20;
/// The script's zero lies this far behind the stack's clock at the start: some way into a tick.
const START_OFFSET_USECS: i64 = 250;
/// How often the original looks at the clock to find the edge of a tick.
const TICKS_BEFORE_START: usize = 10;

/// Play `script`, which lies at `path`.
///
/// # Errors
///
/// A message with the expectation, the event, and the line.
pub(crate) fn play(
    script: &Script,
    path: &str,
    config: Config,
    door: Door,
    shell: &Shell,
) -> Result<(), String> {
    let mut player = Player::new(path, config, Arc::new(door));
    if let Some(command) = &script.init {
        shell
            .run(command)
            .map_err(|error| format!("{path}: error executing init command: {error}"))?;
    }
    player.start();
    let result = player.run(script, shell);
    let cleaned = script.cleanup.as_ref().map_or(Ok(()), |command| shell.run(command));
    result?;
    cleaned.map_err(|error| format!("{path}: error executing cleanup command: {error}"))?;
    player.code.execute(&player.config.code_command).map_err(|error| format!("{path}: {error}"))?;
    player.finish()
}

/// The facts about an event that its successor needs.
#[derive(Clone, Copy)]
struct Past {
    /// Its time in the script.
    usecs: i64,
    is_absolute: bool,
    is_inbound: bool,
}

/// The event that is being played, its times made absolute.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) line: usize,
    pub(crate) when: When,
    /// Its time in the script, and the end of its range.
    pub(crate) usecs: i64,
    pub(crate) until_usecs: i64,
    /// The time that relative times were added to.
    pub(crate) offset_usecs: i64,
}

pub(crate) struct Player {
    path: String,
    pub(crate) config: Config,
    pub(crate) door: Arc<Door>,
    pub(crate) descriptors: Descriptors,
    pub(crate) code: Code,
    worker: Worker,
    /// The stack's time at the script's zero.
    start_usecs: i64,
    past: Option<Past>,
    events: usize,
    next_port: u16,
    /// The identification of the fragments injected last.
    next_fragments: u16,
}

impl Player {
    fn new(path: &str, config: Config, door: Arc<Door>) -> Self {
        let next_port = 32_768 + (std::process::id() % 16_384) as u16;
        Self {
            path: path.to_owned(),
            config,
            worker: Worker::new(Arc::clone(&door)),
            door,
            descriptors: Descriptors::default(),
            code: Code::default(),
            start_usecs: 0,
            past: None,
            events: 0,
            next_port,
            next_fragments: 0,
        }
    }

    fn start(&mut self) {
        for _ in 0..TICKS_BEFORE_START {
            self.start_usecs = self.door.now_usecs();
        }
        self.start_usecs += START_OFFSET_USECS;
    }

    /// A message that begins with its place, as an editor likes it.
    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    fn run(&mut self, script: &Script, shell: &Shell) -> Result<(), String> {
        for event in &script.events {
            let now = self.begin(event)?;
            let place = |player: &Self, what: String| player.at(event.line, &what);
            match &event.action {
                Action::Packet(packet) if packet.direction == Direction::Outbound => {
                    self.expect(packet, &now)
                        .map_err(|error| place(self, format!("error handling packet: {error}")))?;
                }
                Action::Packet(packet) => {
                    // The socket is found first: a packet without one fails at once.
                    let socket = self
                        .socket_for(packet)
                        .map_err(|error| place(self, format!("error handling packet: {error}")))?;
                    self.wait_for(&now, "inbound packet")?;
                    self.inject(packet, socket)
                        .map_err(|error| place(self, format!("error handling packet: {error}")))?;
                }
                Action::Call(call) => calls::run(self, call, &now).map_err(|error| {
                    place(self, format!("runtime error in {} call: {error}", call.name))
                })?,
                Action::Command(command) => {
                    self.wait_for(&now, "command")?;
                    shell.run(command).map_err(|error| {
                        place(self, format!("error executing `{command}` command: {error}"))
                    })?;
                }
                Action::Code(code) => {
                    self.wait_for(&now, "data collection for code")?;
                    let fd = self.descriptors.under_test().map(|socket| socket.live_fd);
                    self.code
                        .collect(fd, &self.path, event.line, code)
                        .map_err(|error| place(self, format!("runtime error in code: {error}")))?;
                }
            }
            self.past = Some(Past {
                usecs: now.usecs,
                is_absolute: matches!(now.when, When::Absolute(_) | When::AbsoluteRange(..)),
                is_inbound: is_inbound(event),
            });
            self.events += 1;
        }
        Ok(())
    }

    /// Make the times of `event` absolute.
    fn begin(&mut self, event: &Event) -> Result<Now, String> {
        let (usecs, until_usecs) = match event.when {
            When::Absolute(usecs) | When::Relative(usecs) => (usecs, usecs),
            When::Any => (0, 0),
            When::AbsoluteRange(from, to) | When::RelativeRange(from, to) => (from, to),
        };
        let is_absolute = matches!(event.when, When::Absolute(_) | When::AbsoluteRange(..));
        match self.past {
            None if usecs != 0 => {
                return Err(self.at(event.line, "first event should be at time 0"));
            }
            Some(past) if past.is_absolute && is_absolute && usecs < past.usecs => {
                let what = format!(
                    "time goes backward in script from {} usec to {usecs} usec",
                    past.usecs
                );
                return Err(self.at(event.line, &what));
            }
            _ => {}
        }
        // Inbound packets in a row are counted from each other, so that what the calls between them
        // cost does not add up.
        let offset_usecs = match self.past {
            _ if is_absolute => 0,
            Some(past) if past.is_inbound && is_inbound(event) => past.usecs,
            _ => self.door.now_usecs() - self.start_usecs,
        };
        Ok(Now {
            line: event.line,
            when: event.when,
            usecs: usecs + offset_usecs,
            until_usecs: until_usecs + offset_usecs,
            offset_usecs,
        })
    }

    /// The original's work at the end: wait for a call that still blocks, close every descriptor
    /// through libc, and reset every connection.
    fn finish(mut self) -> Result<(), String> {
        if !self.await_idle()? {
            let line = self.worker.line();
            return Err(self.at(line, "exiting while a blocking system call is in progress"));
        }
        self.worker.stop();
        self.expect_silence()?;
        for descriptor in self.descriptors.newest_first() {
            self.close_at_end(descriptor)?;
        }
        Ok(())
    }
}

fn is_inbound(event: &Event) -> bool {
    matches!(&event.action, Action::Packet(packet) if packet.direction == Direction::Inbound)
}
