//! pprof's format: what is written can be read back.

use super::planted;
use crate::profile::model::{Extent, Figures, Frame, Profile, Stack, Switched};
use crate::profile::pprof::{decode, encode};
use proptest::prelude::*;
use std::sync::Arc;

/// What the format keeps: everything except the usable bytes allocated so far.
fn kept(mut profile: Profile) -> Profile {
    for stack in &mut profile.stacks {
        stack.figures.alloc_usable = 0;
    }
    profile
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let written = planted();
    assert_eq!(decode(&encode(&written)).unwrap(), kept(written));
}

#[test]
fn an_empty_profile_is_one_too() {
    let empty = decode(&encode(&Profile::default())).unwrap();
    assert_eq!(empty.stacks, []);
    assert_eq!(empty.total(), Figures::default());
}

fn figures() -> impl Strategy<Value = Figures> {
    let number = || 0_u64..1 << 50;
    (number(), number(), number(), number(), number()).prop_map(|(a, b, c, d, waste)| Figures {
        alloc_objects: a,
        alloc_bytes: b,
        alloc_usable: 0,
        live_objects: c,
        live_bytes: d,
        live_usable: d + waste,
    })
}

/// Stacks over few addresses; an odd address has a second function inlined.
fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let call = |address: u64| {
        let frame = |inlined| Frame {
            function: format!("f{address}{inlined}"),
            file: if address.is_multiple_of(3) {
                String::new()
            } else {
                format!("/src/{address}.c")
            },
            line: address as u32,
            module: String::new(),
            address,
            inlined,
        };
        let inlined = (address % 2 == 1).then(|| frame(true));
        inlined
            .into_iter()
            .chain([frame(false)])
            .map(Arc::new)
            .collect::<Vec<_>>()
    };
    let frames = prop::collection::vec(2_u64..20, 0..12)
        .prop_map(move |calls| calls.into_iter().flat_map(call).collect());
    let stack = (frames, figures()).prop_map(|(frames, figures)| Stack { frames, figures });
    prop::collection::vec(stack, 0..20)
}

proptest! {
    #[test]
    fn any_profile_is_read_as_it_was_written(
        stacks in stacks(),
        pid in 0_u32..1 << 22,
        rate in 1_u64..1 << 40,
        began_ms in 1_u64..1 << 42,
        time in 0_u64..1 << 30,
        switched in prop::option::of((any::<u64>(), any::<u64>())),
    ) {
        let program = "a, process 5".to_owned();
        let ended_ms = began_ms + time;
        let switched = switched.map(|(rate, after_ms)| Switched { rate, after_ms });
        let written = Profile { pid, program, rate, began_ms, ended_ms, extent: Extent::Whole, switched, stacks, mappings: vec![] };
        prop_assert_eq!(decode(&encode(&written)).unwrap(), written);
    }
}
