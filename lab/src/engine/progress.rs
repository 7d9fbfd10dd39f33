//! The progress of a campaign on standard error: one line that is rewritten on a terminal,
//! otherwise one line per phase.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// How the progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// One line that is rewritten.
    Line,
    /// A line a phase.
    Phases,
    /// Not at all.
    Nothing,
}

/// The steps done so far.
pub struct Progress {
    shown: Shown,
    start: Instant,
    phase: RefCell<String>,
    done: Cell<u64>,
    steps: Cell<u64>,
}

impl Progress {
    /// Progress on standard error.
    pub fn new() -> Progress {
        Progress::of(match std::io::stderr().is_terminal() {
            true => Shown::Line,
            false => Shown::Phases,
        })
    }

    /// Progress that is not shown.
    pub fn silent() -> Progress {
        Progress::of(Shown::Nothing)
    }

    fn of(shown: Shown) -> Progress {
        Progress {
            shown,
            start: Instant::now(),
            phase: RefCell::default(),
            done: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    /// Announces this many more steps.
    pub fn expect(&self, steps: u64) {
        self.steps.set(self.steps.get() + steps);
    }

    /// Begins a phase.
    pub fn phase(&self, what: &str) {
        self.phase.replace(what.to_string());
        match self.shown {
            Shown::Line => self.say(""),
            Shown::Phases => eprintln!("{what}"),
            Shown::Nothing => {}
        }
    }

    /// Shows the work within the phase, on a terminal.
    pub fn say(&self, what: &str) {
        if self.shown != Shown::Line {
            return;
        }
        let (done, steps) = (self.done.get(), self.steps.get().max(self.done.get()));
        let elapsed = self.start.elapsed().as_secs_f64();
        let left = elapsed / done.max(1) as f64 * (steps - done) as f64;
        let phase = self.phase.borrow();
        let counted = format!("{done}/{steps}, {elapsed:.0} s, about {left:.0} s left");
        eprint!("\r\x1b[2K{counted}: {phase} {what}");
        // A progress that cannot be shown is not worth ending the campaign.
        let _ = std::io::stderr().flush();
    }

    /// Counts a step.
    pub fn step(&self) {
        self.done.set(self.done.get() + 1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown == Shown::Line {
            eprint!("\r\x1b[2K");
        }
    }
}
