//! A process under Neap at one moment: what its board says and what the kernel counts; and its written forms.
//!
//! | file | what is in it |
//! |---|---|
//! | `text` | tables for people |
//! | `json` | one object for programs |
//! | `metrics` | what Prometheus scrapes: each metric declared once |
//! | `exposition` | Prometheus' text format, 0.0.4 |
//!
//! The figures may be any bytes: sums saturate.

pub mod exposition;
pub mod json;
pub mod metrics;
pub mod text;

use crate::attach::kernel::{self, KernelView};
use crate::attach::{Answer, Board, now_ms};
use crate::failure::Failure;
use neap::board::{Coarse, Served};
use neap::stats::{ClassFigures, Snapshot};
use std::time::Duration;

/// A process at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// Whether it has answered.
    pub state: State,
    /// Its last figures.
    pub figures: Option<Snapshot>,
    /// What its page heap knows, without being asked.
    pub coarse: Option<Coarse>,
    /// What the kernel counts.
    pub kernel: KernelView,
    /// What was asked of it and done.
    pub served: Served,
    /// When this was taken, in ms of `CLOCK_MONOTONIC`.
    pub taken_ms: u64,
}

/// Whether the figures are of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They were written after we asked.
    Fresh,
    /// The process has not answered: its last figures, if it has any, are older.
    Pending,
}

impl State {
    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Pending => "pending",
        }
    }
}

impl View {
    /// Asks the process, and waits as long as `timeout` for its figures.
    ///
    /// # Errors
    ///
    /// It has ended, or its board makes no sense.
    pub fn ask(board: &Board, timeout: Duration) -> Result<View, Failure> {
        let (state, figures) = match board.ask(timeout)? {
            Answer::Fresh(figures) => (State::Fresh, Some(figures)),
            Answer::Pending => (State::Pending, board.figures()),
        };
        View::take(board, state, figures)
    }

    /// What stands on the board now, and what the kernel counts now.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn look(board: &Board, state: State) -> Result<View, Failure> {
        View::take(board, state, board.figures())
    }

    fn take(board: &Board, state: State, figures: Option<Snapshot>) -> Result<View, Failure> {
        let kernel = kernel::of_board(board)?;
        Ok(View::of(board, state, figures, kernel))
    }

    /// As [`View::look`] for those who look often: of the kernel's count only what costs little, the whole process.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn glance(board: &Board, state: State, figures: Option<Snapshot>) -> Result<View, Failure> {
        let kernel = kernel::whole_of_board(board)?;
        Ok(View::of(board, state, figures, kernel))
    }

    fn of(board: &Board, state: State, figures: Option<Snapshot>, kernel: KernelView) -> View {
        let process = board.process();
        View {
            pid: process.map_or(0, |process| process.pid()),
            program: process.map(|process| process.name()).unwrap_or_default(),
            state,
            figures,
            coarse: board.coarse(),
            kernel,
            served: board.served(),
            taken_ms: now_ms(),
        }
    }

    /// `redis-server (1234)`.
    pub fn title(&self) -> String {
        format!("{} ({})", crate::failure::shown(&self.program), self.pid)
    }

    /// How old the figures are, in ms.
    pub fn age_ms(&self) -> Option<u64> {
        let figures = self.figures.as_ref()?;
        Some(self.taken_ms.saturating_sub(figures.at_ms))
    }
}

/// Bytes of so many slices.
pub fn slices(slices: u64) -> u64 {
    slices.saturating_mul(1 << neap::base::units::SLICE_SHIFT)
}

/// Blocks in the program's hands.
pub fn live(class: &ClassFigures) -> u64 {
    let free = class.free.saturating_add(class.cached);
    class.blocks.saturating_sub(free)
}

/// A sum over the classes.
pub fn total(figures: &Snapshot, of: impl Fn(&ClassFigures) -> u64) -> u64 {
    let add = |sum: u64, class| sum.saturating_add(of(class));
    figures.classes.iter().fold(0, add)
}

/// Classes that were ever used, smallest first.
pub fn used(figures: &Snapshot) -> impl Iterator<Item = &ClassFigures> {
    let classes = figures.classes.iter();
    classes.filter(|class| class.blocks > 0 || class.refills > 0)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any words at all, and those that arithmetic trips over.
    fn words(count: usize) -> impl Strategy<Value = Vec<u64>> {
        let word = prop_oneof![
            any::<u64>(),
            Just(0),
            Just(u64::MAX),
            Just(1 << 63),
            0..100_u64
        ];
        proptest::collection::vec(word, count)
    }

    /// A process whose board has any words on it.
    pub fn any_view() -> impl Strategy<Value = View> {
        let state = prop_oneof![Just(State::Fresh), Just(State::Pending)];
        let figures = proptest::option::of(words(size_of::<Snapshot>() / 8));
        let coarse = proptest::option::of(words(size_of::<Coarse>() / 8));
        (state, figures, coarse, ".{0,40}").prop_map(|(state, figures, coarse, program)| View {
            pid: 7,
            program,
            state,
            figures: figures
                .map(|words| bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words))),
            coarse: coarse.map(|words| bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words))),
            kernel: KernelView::default(),
            served: Served::default(),
            taken_ms: 1,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_figures_can_be_written(view in any_view()) {
            let text = text::page(&view, "wait\n");
            prop_assert!(text.contains("(7)"));
            let json = json::object(&view).to_string();
            let back: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&back["program"], &view.program);
            let metrics = metrics::page(std::slice::from_ref(&view));
            for line in metrics.lines() {
                prop_assert!(line.starts_with("# ") || line.starts_with("neap_"), "{line:?}");
            }
        }
    }
}
