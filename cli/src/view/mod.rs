//! A process under Neap at one moment, from its status page and the kernel's counts, and its output
//! formats.
//!
//! | file | contents |
//! |---|---|
//! | `guarded` | guarded samples, and memory that a runtime keeps out of the figures |
//! | `text` | tables for people |
//! | `json` | one object for tools |
//! | `metrics` | the metrics for Prometheus, and its text format |
//!
//! The figures are untrusted, so sums saturate.

pub mod guarded;
pub mod json;
pub mod metrics;
pub mod text;

use crate::attach::kernel::{self, KernelView};
use crate::attach::{Process, Silence, StatusPage, Whereabouts, now_ms};
use crate::failure::Failure;
use guarded::Guarded;
use neap_shared::stats::{ClassFigures, Snapshot};
use neap_shared::status_page::{Coarse, Served};
use std::time::Duration;

/// A process at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Its PID.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// Where it runs; empty in a view for frequent use.
    pub place: Whereabouts,
    /// Whether it has answered.
    pub state: State,
    /// Its last figures.
    pub figures: Option<Snapshot>,
    /// The page heap's figures, which need no request.
    pub coarse: Option<Coarse>,
    /// The kernel's counts.
    pub kernel: KernelView,
    /// The requests that it served.
    pub served: Served,
    /// Why it does not answer, while it does not.
    pub silence: Silence,
    /// What it keeps out of these figures, if that is known.
    pub hint: Option<&'static str>,
    /// When the view was taken, in ms of `CLOCK_MONOTONIC`.
    pub taken_ms: u64,
}

choice! {
    /// Whether the figures are current.
    pub enum State {
        /// The process wrote them after the request.
        Fresh = "fresh",
        /// The process has not answered; its last figures, if any, are older.
        Pending = "pending",
    }
}

impl View {
    /// Asks the process, and waits up to `timeout` for its figures.
    ///
    /// # Errors
    ///
    /// The process has ended, or its status page is malformed.
    pub fn ask(status_page: &StatusPage, timeout: Duration) -> Result<View, Failure> {
        let (state, figures) = match status_page.ask(timeout)? {
            Some(figures) => (State::Fresh, Some(figures)),
            None => (State::Pending, status_page.figures()),
        };
        View::take(status_page, state, figures)
    }

    /// The status page's current contents and the kernel's current counts.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn look(status_page: &StatusPage, state: State) -> Result<View, Failure> {
        View::take(status_page, state, status_page.figures())
    }

    fn take(
        status_page: &StatusPage,
        state: State,
        figures: Option<Snapshot>,
    ) -> Result<View, Failure> {
        let kernel = kernel::of_status_page(status_page)?;
        let process = status_page.process();
        Ok(View {
            place: process.map(Process::place).unwrap_or_default(),
            hint: guarded::hint(status_page, kernel),
            ..View::of(status_page, state, figures, kernel)
        })
    }

    /// Like [`View::look`] for frequent use: of the kernel's counts only the cheap one, of the
    /// whole process.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn glance(
        status_page: &StatusPage,
        state: State,
        figures: Option<Snapshot>,
    ) -> Result<View, Failure> {
        let kernel = kernel::whole_of_status_page(status_page)?;
        let hint = figures.and_then(|figures| {
            let arenas_rss = figures.ledger.resident;
            let kernel = KernelView {
                arenas_rss,
                ..kernel
            };
            guarded::hint(status_page, kernel)
        });
        Ok(View {
            hint,
            ..View::of(status_page, state, figures, kernel)
        })
    }

    fn of(
        status_page: &StatusPage,
        state: State,
        figures: Option<Snapshot>,
        kernel: KernelView,
    ) -> View {
        let process = status_page.process();
        View {
            pid: process.map_or(0, |process| process.pid()),
            program: process.map(|process| process.name()).unwrap_or_default(),
            place: Whereabouts::default(),
            state,
            figures,
            coarse: status_page.coarse(),
            kernel,
            served: status_page.served(),
            silence: status_page.silence(),
            hint: None,
            taken_ms: now_ms(),
        }
    }

    /// `redis-server (1234)`.
    pub fn title(&self) -> String {
        format!("{} ({})", crate::failure::shown(&self.program), self.pid)
    }

    /// Its guarded samples.
    pub fn guarded(&self) -> Guarded {
        Guarded::from(&self.served)
    }

    /// The age of the figures, in ms.
    pub fn age_ms(&self) -> Option<u64> {
        let figures = self.figures.as_ref()?;
        Some(self.taken_ms.saturating_sub(figures.at_ms))
    }
}

/// Converts slices to bytes.
pub fn slices(slices: u64) -> u64 {
    slices.saturating_mul(1 << neap_shared::units::SLICE_SHIFT)
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

    /// Arbitrary words, and those that provoke overflow.
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

    /// A process whose status page holds arbitrary words.
    pub fn any_view() -> impl Strategy<Value = View> {
        let state = prop_oneof![Just(State::Fresh), Just(State::Pending)];
        let figures = proptest::option::of(words(size_of::<Snapshot>() / 8));
        let coarse = proptest::option::of(words(size_of::<Coarse>() / 8));
        let served = words(size_of::<Served>() / 8);
        let parts = (state, figures, coarse, served, ".{0,40}");
        parts.prop_map(|(state, figures, coarse, served, program)| View {
            program,
            served: bytemuck::pod_read_unaligned(bytemuck::cast_slice(&served)),
            state,
            figures: figures
                .map(|words| bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words))),
            coarse: coarse.map(|words| bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words))),
            ..view_at_rest()
        })
    }

    /// A process that has answered, with all figures 0.
    pub fn view_at_rest() -> View {
        View {
            pid: 7,
            program: "rest".into(),
            place: Whereabouts::default(),
            state: State::Fresh,
            figures: Some(Snapshot::default()),
            coarse: None,
            kernel: KernelView::default(),
            served: Served::default(),
            silence: Silence::default(),
            hint: None,
            taken_ms: 1,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_figures_can_be_written(view in any_view()) {
            for detail in [text::Detail::Verdict, text::Detail::All] {
                prop_assert!(text::page(&view, "wait\n", detail).contains("(7)"));
            }
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
