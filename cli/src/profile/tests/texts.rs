//! The texts for people.

use super::planted;
use crate::choice::Choice;
use crate::profile::{
    Extent, Frame, Profile, Value, check_pattern, collapsed, flamegraph, json, leaks, listing, tree,
};
use std::fs;
use std::sync::Arc;

const PARAGRAPH: &str = "\
planted, process 77: 127.9 MiB live in 1,049,577 objects, of 134.9 MiB in 1,049,584 objects \
allocated while it was \
sampled (every 512.0 KiB on average; sampling began 2.5 s earlier).
The largest part of the live bytes, 100.0 MiB (78.2 %), comes from download (planted.c:10), called \
by main \
(planted.c:1): 1 object of 100.0 MiB.
Size classes add 8.0 MiB, 8.0 MiB of it in fresh_node (planted.c:20), called by add_node \
(planted.c:25): on average \
24 bytes asked for, 32 usable, in 1,048,576 objects.
";

const TREE: &str = "
Calls by live bytes
  127.9 MiB  100.0 %  all
  127.9 MiB  100.0 %  main (planted.c)
  + 100.0 MiB  78.2 %  download (planted.c:10)
  + 24.0 MiB  18.8 %  add_node (planted.c:25)
  +   24.0 MiB  18.8 %  fresh_node (planted.c:20)
  + 3.9 MiB  3.1 %  walk (planted.c:30)
  +   3.9 MiB  3.1 %  walk (planted.c:30)
  +   ! 3.9 MiB  3.1 %  walk (planted.c:30)
  +   !   3.9 MiB  3.1 %  keep (planted.c:40)

By what a function allocates itself
        flat           cumulative           function
   100.0 MiB   78.2 %   100.0 MiB   78.2 %  download (in planted)
    24.0 MiB   18.8 %    24.0 MiB   18.8 %  fresh_node (in planted)
     3.9 MiB    3.1 %     3.9 MiB    3.1 %  keep (in planted)

By what a function and those it calls allocate
        flat           cumulative           function
         0 B    0.0 %   127.9 MiB  100.0 %  main (in planted)
   100.0 MiB   78.2 %   100.0 MiB   78.2 %  download (in planted)
    24.0 MiB   18.8 %    24.0 MiB   18.8 %  fresh_node (in planted)
         0 B    0.0 %    24.0 MiB   18.8 %  add_node (in planted)
     3.9 MiB    3.1 %     3.9 MiB    3.1 %  keep (in planted)
         0 B    0.0 %     3.9 MiB    3.1 %  walk (in planted)
";

#[test]
fn the_tree_names_the_buffer_and_the_waste_first() {
    assert_eq!(
        tree(&planted(), Value::LiveSpace),
        format!("{PARAGRAPH}{TREE}")
    );
}

#[test]
fn the_tree_of_waste_names_the_nodes_first() {
    let text = tree(&planted(), Value::Waste);
    let said = "The largest part of the bytes that size classes add to live objects, 8.0 MiB \
                (100.0 %), comes from \
                fresh_node (planted.c:20)";
    assert!(text.contains(said), "{text}");
    assert!(!text.contains("download"), "{text}");
}

#[test]
fn small_calls_are_left_out_and_counted() {
    let mut profile = planted();
    profile.stacks[2].figures.live_bytes = 1;
    let text = tree(&profile, Value::LiveSpace);
    assert!(
        text.contains("(1 call with less than 0.5 % left out)"),
        "{text}"
    );
}

#[test]
fn a_profile_of_nothing_says_so() {
    for &value in Value::ALL {
        let nothing = format!("The profile has no {}.", value.phrase(Extent::Whole));
        assert!(tree(&Profile::default(), value).contains(&nothing));
        assert!(leaks(&Profile::default(), value).contains(&nothing));
    }
    let session = Profile {
        pid: 7,
        ..Profile::default()
    };
    let text = tree(&session, Value::LiveSpace);
    assert!(
        text.contains("only allocations after sampling was switched on"),
        "{text}"
    );
    assert!(
        text.contains("`neap run --sample 512K -- PROGRAM`"),
        "{text}"
    );
    let failure = flamegraph(&Profile::default(), Value::Waste).unwrap_err();
    assert!(failure.to_string().contains("no waste"), "{failure}");
}

#[test]
fn few_live_samples_say_what_they_can_miss() {
    let mut profile = planted();
    let few = "growth of less than about 1.5 MiB can be missing";
    for value in [Value::LiveSpace, Value::AllocSpace] {
        assert!(!tree(&profile, value).contains(few));
    }
    for stack in &mut profile.stacks {
        stack.figures.live_objects = 0;
        stack.figures.live_bytes = 0;
        stack.figures.live_usable = 0;
    }
    for text in [tree, leaks] {
        let text = text(&profile, Value::LiveSpace);
        let advice = format!("{few}: sample for longer, or use --sample 16K.\n");
        assert!(text.contains(&advice), "{text}");
    }
    assert!(!tree(&profile, Value::AllocSpace).contains(few));
    profile.rate = 4096;
    let text = tree(&profile, Value::LiveSpace);
    assert!(
        text.contains("about 12.0 KiB can be missing: sample for longer.\n"),
        "{text}"
    );
}

#[test]
fn the_first_sentence_names_the_programs_own_caller() {
    let mut profile = planted();
    let wrapper = |function: &str| {
        Arc::new(Frame {
            function: function.to_owned(),
            ..(*profile.stacks[0].frames[0]).clone()
        })
    };
    let wrappers = ["_PyObject_Malloc", "PyObject_Malloc"].map(wrapper);
    let start = wrapper("__libc_start_call_main");
    let alone = [profile.stacks[0].frames[0].clone(), start];
    profile.stacks[0].frames.splice(0..0, wrappers);
    let text = tree(&profile, Value::LiveSpace);
    let way = "comes from download (planted.c:10), called by main (planted.c:1): ";
    assert!(text.contains(way), "{text}");
    profile.stacks[0].frames = alone.to_vec();
    let text = tree(&profile, Value::LiveSpace);
    assert!(
        text.contains("comes from download (planted.c:10): "),
        "{text}"
    );
}

#[test]
fn leaks_are_places_the_largest_first() {
    let text = leaks(&planted(), Value::LiveObjects);
    let (_, list) = text.split_once("\n\n").unwrap();
    let expected = "\
Still live, sorted by live objects: 3 places, 3 shown

  1,048,576, 99.9 %: 24.0 MiB in 1,048,576 objects
      fresh_node (planted.c:20)
      add_node (planted.c:25)
      main (planted.c:2)

  1,000, 0.1 %: 3.9 MiB in 1,000 objects
      keep (planted.c:40)
      walk (planted.c:30)
      walk (planted.c:30)
      walk (planted.c:30)
      main (planted.c:3)

  1, 0.0 %: 100.0 MiB in 1 object
      download (planted.c:10)
      main (planted.c:1)
";
    assert_eq!(list, expected);
}

#[test]
fn equal_places_are_summed_up() {
    let mut profile = planted();
    profile.stacks.extend(planted().stacks);
    let text = leaks(&profile, Value::Waste);
    assert!(text.contains(
        "1 place, 1 shown\n\n  16.0 MiB, 100.0 %: on average 24 bytes asked for, 32 usable, \
         in 2,097,152"
    ));
}

#[test]
fn collapsed_stacks_are_sorted_lines() {
    let mut profile = planted();
    let mut odd = (*profile.stacks[0].frames[0]).clone();
    odd.function = "down;load".to_owned();
    profile.stacks[0].frames[0] = Arc::new(odd);
    let expected = "\
main;add_node;fresh_node 25165824
main;down:load 104857600
main;walk;walk;walk;keep 4096000
";
    assert_eq!(collapsed(&profile, Value::LiveSpace), expected);
    assert_eq!(
        collapsed(&profile, Value::Waste),
        "main;add_node;fresh_node 8388608\n"
    );
}

#[test]
fn the_flame_graph_is_a_picture_of_all_of_it() {
    let svg = flamegraph(&planted(), Value::LiveSpace).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    for text in [
        "download (104,857,600 bytes, 78.",
        "planted live_space: 127.9 MiB",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

/// A profile with source: 60 lines, each with its number.
fn with_source(room: &tempfile::TempDir) -> Profile {
    let file = room.path().join("planted.c");
    let lines: String = (1..=60)
        .map(|line| format!("\tline {line};\u{7}\n"))
        .collect();
    fs::write(&file, lines).unwrap();
    let mut profile = planted();
    for stack in &mut profile.stacks {
        for frame in &mut stack.frames {
            let mut here = (**frame).clone();
            here.file = file.to_str().unwrap().to_owned();
            *frame = Arc::new(here);
        }
    }
    profile
}

#[test]
fn functions_are_listed_beside_their_source() {
    let room = tempfile::tempdir().unwrap();
    let text = listing(&with_source(&room), Value::LiveSpace, "^(walk|keep)$").unwrap();
    let text = text.replace(room.path().to_str().unwrap(), "");
    let expected = "\
Total: 127.9 MiB
ROUTINE ======== keep in /planted.c
   3.9 MiB    3.9 MiB  (flat, cumulative) 3.1 % of the total
         .          .     35:     line 35;\u{fffd}
         .          .     36:     line 36;\u{fffd}
         .          .     37:     line 37;\u{fffd}
         .          .     38:     line 38;\u{fffd}
         .          .     39:     line 39;\u{fffd}
   3.9 MiB    3.9 MiB     40:     line 40;\u{fffd}
";
    assert!(text.starts_with(expected), "{text}");
    let walk = "ROUTINE ======== walk in /planted.c\n       0 B    3.9 MiB  (flat, cumulative)";
    assert!(text.contains(walk), "{text}");
    assert!(
        text.contains("\n         .    3.9 MiB     30:     line 30;"),
        "{text}"
    );
}

#[test]
fn lines_far_apart_leave_a_gap() {
    let room = tempfile::tempdir().unwrap();
    let mut profile = with_source(&room);
    let mut far = (*profile.stacks[1].frames[2]).clone();
    far.line = 55;
    profile.stacks[1].frames[2] = Arc::new(far);
    let text = listing(&profile, Value::LiveSpace, "main").unwrap();
    assert!(
        text.contains("      8:     line 8;\u{fffd}\n                         ...\n"),
        "{text}"
    );
    assert!(
        text.contains("         .   24.0 MiB     55:     line 55;"),
        "{text}"
    );
}

#[test]
fn without_a_source_the_lines_have_numbers() {
    let text = listing(&planted(), Value::LiveSpace, "download").unwrap();
    assert!(
        text.ends_with("\n 100.0 MiB  100.0 MiB     10:\n"),
        "{text}"
    );
}

#[test]
fn patterns_that_match_nothing_or_are_none() {
    let failure = listing(&planted(), Value::LiveSpace, "^nobody$").unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("the largest are download, fresh_node, keep"),
        "{failure}"
    );
    let nothing_live = |profile: &Profile| {
        let failure = listing(profile, Value::LiveSpace, "main").unwrap_err();
        failure.to_string()
    };
    assert_eq!(
        nothing_live(&Profile::default()),
        "the profile has no live bytes: nothing was sampled yet"
    );
    let mut freed = planted();
    freed.stacks.drain(..3);
    assert_eq!(
        nothing_live(&freed),
        "the profile has no live bytes: --value alloc_space shows what was allocated"
    );
    let failure = check_pattern("(((").unwrap_err();
    let text = failure.to_string();
    assert!(
        text.ends_with("is not one: found open group without closing ')'"),
        "{text}"
    );
    assert!(check_pattern("^a|b$").is_ok());
}

#[test]
fn json_has_it_all() {
    let json = json(&planted());
    assert_eq!(
        json["total"]["live_space"],
        100 * 1024 * 1024 + 24 * 1024 * 1024 + 4_096_000
    );
    assert_eq!(json["stacks"][1]["waste"], 8 << 20);
    assert_eq!(json["stacks"][1]["frames"][0]["inlined"], true);
    assert_eq!(json["stacks"][3]["frames"][0]["function"], "scratch");
    assert_eq!(json["mappings"][0]["build_id"], "c0ffee");
}
