//! The steps of a run and their order.

use crate::names::named;
use crate::work::tide::protocol::Action;

named! {
    /// A step, named as in the write-up after what was just done.
    #[derive(PartialOrd, Ord)]
    pub enum Step {
        /// The process before any step.
        Start = "start",
        /// The heap's bytes were allocated and dropped.
        Allocated = "allocated",
        /// The coroutines are parked.
        Created = "created",
        /// They ended.
        Closed = "closed",
        /// The heap's bytes again.
        AllocatedAgain = "allocated-again",
        /// The coroutines again.
        CreatedAgain = "created-again",
    }
}

impl Step {
    /// The worker's action; `None` at the start.
    pub fn action(self) -> Option<Action> {
        match self {
            Step::Start => None,
            Step::Allocated | Step::AllocatedAgain => Some(Action::Allocate),
            Step::Created | Step::CreatedAgain => Some(Action::Create),
            Step::Closed => Some(Action::Close),
        }
    }
}

named! {
    /// An order of the steps.
    pub enum Run {
        /// All five, with a wait after each.
        Waited = "waited",
        /// All five without waits, with a wait at the end.
        AtOnce = "at-once",
        /// Coroutines first, then at once the heap, which has no freed memory of its own.
        StacksFirst = "stacks-first",
    }
}

impl Run {
    /// Its steps, beginning with the start.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Run::Waited | Run::AtOnce => &Step::ALL,
            Run::StacksFirst => &[
                Step::Start,
                Step::Created,
                Step::Closed,
                Step::AllocatedAgain,
            ],
        }
    }

    /// Whether it waits after `step`.
    pub fn waits_after(self, step: Step) -> bool {
        self == Run::Waited || self.steps().last() == Some(&step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_steps_and_runs() {
        for step in Step::ALL {
            assert_eq!(Step::find(step.name()), Some(step));
        }
        for run in Run::ALL {
            assert_eq!(Run::find(run.name()), Some(run));
        }
        assert_eq!((Step::find("x"), Run::find("x")), (None, None));
    }

    #[test]
    fn runs_begin_at_the_start_and_wait_at_their_end() {
        for run in Run::ALL {
            let steps = run.steps();
            assert_eq!(steps[0].action(), None);
            assert!(steps[1..].iter().all(|step| step.action().is_some()));
            assert!(run.waits_after(steps[steps.len() - 1]));
        }
        assert!(Run::Waited.waits_after(Step::Closed));
        assert!(!Run::AtOnce.waits_after(Step::Closed));
        assert!(!Run::StacksFirst.waits_after(Step::Closed));
    }
}
