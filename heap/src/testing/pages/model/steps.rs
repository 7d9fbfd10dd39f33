//! The steps that heap and model take, and their preconditions.

use crate::base::policy::Scope;
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions};
use crate::pages::Use;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Alloc {
        slices: usize,
        align: u32,
        use_: Use,
        short: usize,
    },
    Write {
        which: usize,
        from: usize,
        pages: usize,
    },
    Free {
        which: usize,
        precisely: bool,
    },
    Grow {
        which: usize,
        by: usize,
    },
    Shrink {
        which: usize,
        by: usize,
        short: usize,
    },
    Resize {
        which: usize,
        short: usize,
    },
    Move {
        which: usize,
        slices: usize,
    },
    Advance(u64),
    PurgeDue,
    PurgeAll,
    PurgeTails(Scope),
    Zeroed {
        slices: usize,
        short: usize,
    },
    Fail {
        call: Call,
        after: u32,
        times: u32,
    },
}

fn use_() -> impl Strategy<Value = Use> {
    prop::sample::select(&[Use::Slab, Use::Large, Use::Stack, Use::Meta][..])
}

fn call() -> impl Strategy<Value = Call> {
    prop::sample::select(
        &[
            Call::Reserve,
            Call::Commit,
            Call::Uncommit,
            Call::Purge,
            Call::Ask,
            Call::Place,
        ][..],
    )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let which = || 0usize..64;
    let short = || prop_oneof![Just(0usize), 0..SLICE_BYTES];
    prop_oneof![
        8 => (prop_oneof![1usize..3, 1usize..80], 0u32..7, use_(), short()).prop_map(
            |(slices, align, use_, short)| {
                Step::Alloc { slices, align: if align < 4 { 0 } else { align }, use_, short }
            }
        ),
        4 => (1usize..80, 0usize..SLICE_BYTES)
            .prop_map(|(slices, short)| Step::Zeroed { slices, short }),
        8 => (which(), 0usize..64, 1usize..2048)
            .prop_map(|(which, from, pages)| Step::Write { which, from, pages }),
        6 => (which(), any::<bool>()).prop_map(|(which, precisely)| Step::Free { which, precisely }),
        3 => (which(), 1usize..20).prop_map(|(which, by)| Step::Grow { which, by }),
        2 => (which(), 0usize..20, short())
            .prop_map(|(which, by, short)| Step::Shrink { which, by, short }),
        2 => (which(), short()).prop_map(|(which, short)| Step::Resize { which, short }),
        1 => (which(), 1usize..48).prop_map(|(which, slices)| Step::Move { which, slices }),
        2 => (0u64..2000).prop_map(Step::Advance),
        1 => Just(Step::PurgeDue),
        1 => Just(Step::PurgeAll),
        3 => prop_oneof![Just(Scope::Idle), Just(Scope::All)].prop_map(Step::PurgeTails),
        2 => (call(), 0u32..3, 1u32..4)
            .prop_map(|(call, after, times)| Step::Fail { call, after, times }),
    ]
}

pub(super) fn conditions() -> impl Strategy<Value = Conditions> {
    let page_bytes = prop::sample::select(&[4096usize, 16384, 65536][..]);
    let most_reserved = prop::sample::select(&[4usize << 20, 8 << 20, 64 << 20][..]);
    let most_committed = prop::sample::select(&[12usize << 20, usize::MAX, usize::MAX][..]);
    let most_claimed = prop::sample::select(&[0usize, 256 << 20, 256 << 20][..]);
    (
        page_bytes,
        any::<[bool; 2]>(),
        most_reserved,
        most_committed,
        most_claimed,
        1usize..3,
    )
        .prop_map(
            |(
                page_bytes,
                [strict, huge_everywhere],
                most_reserved,
                most_committed,
                most_claimed,
                nodes,
            )| Conditions {
                page_bytes,
                strict,
                huge_everywhere,
                most_reserved,
                most_committed,
                most_claimed,
                swapped: 3,
                nodes,
                ..Conditions::default()
            },
        )
}
