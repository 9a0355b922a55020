//! What is shown, and what keys do to it.

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::feed::Sample;
use crate::doors::peer;
use crate::filter::{Filter, States};

/// What connections are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Bytes a second, both ways
    Rate,
    /// Round-trip time
    Rtt,
    /// Segments sent again
    Retransmits,
    /// Bytes not acknowledged
    Queue,
    /// Congestion window
    Window,
    /// Time since the peer was heard
    Idle,
}

impl Sort {
    const ALL: [Sort; 6] =
        [Sort::Rate, Sort::Rtt, Sort::Retransmits, Sort::Queue, Sort::Window, Sort::Idle];

    fn beside(self, by: usize) -> Sort {
        Sort::ALL[(self as usize + by) % Sort::ALL.len()]
    }

    fn value(self, row: &Value) -> f64 {
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
        match self {
            Sort::Rate => number("sent_per_second") + number("received_per_second"),
            Sort::Rtt => number("srtt_us"),
            Sort::Retransmits => number("retransmits"),
            Sort::Queue => number("send_buffered_bytes"),
            Sort::Window => number("cwnd_bytes"),
            Sort::Idle => number("last_heard_us_ago"),
        }
    }
}

/// What is shown.
#[derive(Debug)]
pub(super) struct View {
    sort: Sort,
    is_reversed: bool,
    filter: String,
    /// A filter that is being typed, and what is wrong with it.
    typed: Option<String>,
    wrong: Option<String>,
    is_paused: bool,
    has_shards: bool,
    /// The first connection that is shown.
    first: usize,
    sample: Option<Sample>,
    /// The connections of all doors, sorted.
    rows: Vec<Value>,
}

/// The last line of the screen.
pub(super) enum Prompt<'a> {
    /// What the keys do.
    Keys,
    /// A filter that is being typed, and what is wrong with it.
    Filter(&'a str, Option<&'a str>),
}

impl View {
    /// Shows nothing yet.
    pub(super) fn new(sort: Sort, has_shards: bool, filter: String) -> View {
        View {
            sort,
            is_reversed: false,
            filter,
            typed: None,
            wrong: None,
            is_paused: false,
            has_shards,
            first: 0,
            sample: None,
            rows: Vec::new(),
        }
    }

    /// The filter in force.
    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// What is sorted by, and if the least come first.
    pub(super) fn sort(&self) -> (Sort, bool) {
        (self.sort, self.is_reversed)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) fn has_shards(&self) -> bool {
        self.has_shards
    }

    pub(super) fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// The connections from the first that is shown on.
    pub(super) fn rows(&self) -> &[Value] {
        &self.rows[self.first.min(self.rows.len())..]
    }

    /// How many are known.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn prompt(&self) -> Prompt<'_> {
        match &self.typed {
            Some(typed) => Prompt::Filter(typed, self.wrong.as_deref()),
            None => Prompt::Keys,
        }
    }

    /// Shows a sample, unless it is paused.
    pub(super) fn take(&mut self, sample: Sample) {
        if self.is_paused {
            return;
        }
        let told = sample.doors.iter().filter_map(|door| door.told.as_ref().ok());
        self.rows = told.flat_map(|told| told.connections.iter().cloned()).collect();
        self.sample = Some(sample);
        self.order();
    }

    fn order(&mut self) {
        let View { sort, is_reversed, .. } = *self;
        self.rows.sort_by(|a, b| {
            let order = sort.value(b).total_cmp(&sort.value(a));
            let order = if is_reversed { order.reverse() } else { order };
            order.then_with(|| peer(a).cmp(&peer(b)))
        });
        self.first = self.first.min(self.rows.len().saturating_sub(1));
    }

    /// Does what a key asks for. Returns true if that is to quit.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.typed.is_some() {
            self.type_filter(key.code);
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.has_shards = !self.has_shards,
            KeyCode::Char('f' | '/') => self.typed = Some(self.filter.clone()),
            KeyCode::Char('>') => self.sort = self.sort.beside(1),
            KeyCode::Char('<') => self.sort = self.sort.beside(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Down => self.first += 1,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 10,
            KeyCode::PageUp => self.first = self.first.saturating_sub(10),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        self.order();
        false
    }

    fn type_filter(&mut self, code: KeyCode) {
        let Some(typed) = &mut self.typed else { return };
        match code {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Esc => (self.typed, self.wrong) = (None, None),
            KeyCode::Enter => match Filter::parse(typed, States::USUAL) {
                Ok(_) => {
                    self.filter = self.typed.take().unwrap_or_default();
                    self.wrong = None;
                }
                Err(error) => self.wrong = Some(error),
            },
            _ => {}
        }
    }
}
