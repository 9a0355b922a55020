//! `lightwait top`: what running servers do, on a terminal, once or as JSON.

mod feed;
mod screen;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use lightwait_core::config::parse_time;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::doors::{self, Door, DoorArgs};
use crate::failure::{self, Failure};
use crate::filter::{Filter, States};
use feed::{Feed, Sample};
use view::{Sort, View};

/// Show what running servers do: rates, levels, and their connections.
///
/// It asks the admin doors of servers (`lightwait serve --admin`). Keys: q quits, space pauses, s
/// shows the shards, f asks for a filter, < and > choose what is sorted by, r reverses it, arrows
/// and pages scroll.
#[derive(Clone, Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    doors: DoorArgs,

    /// The time between two samples, 100ms to 1m
    #[arg(short = 'd', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print one screen and end
    #[arg(long)]
    once: bool,

    /// Print JSON instead, a line for each sample
    #[arg(long)]
    json: bool,

    /// What connections are sorted by
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Sort::Rate)]
    sort: Sort,

    /// Show each shard by itself
    #[arg(long)]
    shards: bool,

    /// Connections of each door that are looked at
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,

    /// Which connections, as `lightwait ss` has it: states, then tests of both ends
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// What a door can be asked for: see `/rates`.
fn interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).map_err(|error| error.to_string())?;
    let fits = (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&time);
    fits.then_some(time).ok_or_else(|| "give 100ms to 1m".to_owned())
}

/// How often the keys are looked at.
const KEYS: Duration = Duration::from_millis(50);
/// The width of a screen that is printed where no terminal has one.
const WIDTH: u16 = 100;
/// Connections that are printed once.
const ROWS_ONCE: u16 = 40;

/// Shows samples until the user quits.
pub(crate) fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let filter = args.filter.join(" ");
    Filter::parse(&filter, States::USUAL)
        .map_err(|error| Failure::Usage(format!("the filter {filter:?}: {error}")))?;
    let is_shown = !args.once && !args.json;
    if is_shown && !io::stdout().is_terminal() {
        let text = "standard output is no terminal: --once prints one screen, --json lines";
        return Err(Failure::Usage(text.to_owned()));
    }
    let doors = Door::all(&args.doors);
    let runtime = doors::runtime()?;
    let mut feed = Feed::new(doors, args.interval, usize::from(args.limit));
    // A mistake in the addresses is told before anything is shown.
    runtime.block_on(feed.begin(&filter))?;
    let mut view = View::new(args.sort, args.shards, filter);
    if is_shown {
        return show(feed, view);
    }
    loop {
        let sample = runtime.block_on(feed.next(view.filter()));
        let is_whole = sample.is_whole();
        if args.json {
            failure::print(&format!("{}\n", sample.object()))?;
        } else {
            view.take(sample);
            let is_terminal = io::stdout().is_terminal();
            let size = is_terminal.then(ratatui::crossterm::terminal::size);
            let width = size.and_then(Result::ok).map_or(WIDTH, |(columns, _)| columns.max(80));
            failure::print(&screen::print(&view, width, ROWS_ONCE))?;
        }
        if args.once {
            return Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
}

/// Shows samples on the terminal, which are taken on a thread of its own.
fn show(mut feed: Feed, mut view: View) -> Result<ExitCode, Failure> {
    let filter = Arc::new(Mutex::new(view.filter().to_owned()));
    let (samples, taken) = sync_channel(1);
    let asked = filter.clone();
    let runtime = doors::runtime()?;
    thread::Builder::new().name("doors".to_owned()).spawn(move || {
        loop {
            let filter = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let sample = runtime.block_on(feed.next(&filter));
            // The screen has gone.
            if samples.send(sample).is_err() {
                return;
            }
        }
    })?;
    let mut terminal = ratatui::try_init()?;
    let ended = run(&mut terminal, &mut view, &taken, &filter);
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    taken: &Receiver<Sample>,
    filter: &Mutex<String>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| screen::draw(view, frame))?;
        if event::poll(KEYS)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && view.on_key(key)
        {
            return Ok(());
        }
        filter.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&view.filter().to_owned());
        match taken.try_recv() {
            Ok(sample) => view.take(sample),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}
