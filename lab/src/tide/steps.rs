//! The steps of a run and their order.

use crate::work::tide::protocol::Action;

/// A step, named as in the write-up after what was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The process before any step.
    Start,
    /// The heap's bytes were allocated and dropped.
    Allocated,
    /// The coroutines are parked.
    Created,
    /// They ended.
    Closed,
    /// The heap's bytes again.
    AllocatedAgain,
    /// The coroutines again.
    CreatedAgain,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Step; 6] = [
        Step::Start,
        Step::Allocated,
        Step::Created,
        Step::Closed,
        Step::AllocatedAgain,
        Step::CreatedAgain,
    ];

    /// Its word in the record.
    pub fn name(self) -> &'static str {
        match self {
            Step::Start => "start",
            Step::Allocated => "allocated",
            Step::Created => "created",
            Step::Closed => "closed",
            Step::AllocatedAgain => "allocated-again",
            Step::CreatedAgain => "created-again",
        }
    }

    /// The step for that word.
    pub fn find(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }

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

/// An order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// All five, with a wait after each.
    Waited,
    /// All five without waits, with a wait at the end.
    AtOnce,
    /// Coroutines first, then at once the heap, which has no freed memory of its own.
    StacksFirst,
}

impl Run {
    /// All.
    pub const ALL: [Run; 3] = [Run::Waited, Run::AtOnce, Run::StacksFirst];

    /// Its word on the command line and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Run::Waited => "waited",
            Run::AtOnce => "at-once",
            Run::StacksFirst => "stacks-first",
        }
    }

    /// The run for that word.
    pub fn find(name: &str) -> Option<Run> {
        Run::ALL.into_iter().find(|run| run.name() == name)
    }

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
