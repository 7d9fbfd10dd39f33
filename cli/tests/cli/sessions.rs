//! Profiles of a session: of a process that sampled before, only what the session allocated.

use crate::profile::Planted;
use crate::serve::Server;
use crate::stage::{neap, printed};
use serde_json::Value;
use std::fs;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn allocated(profile: &Value) -> u64 {
    profile["total"]["alloc_space"].as_u64().unwrap()
}

#[test]
fn the_second_session_has_nothing_of_the_first() {
    let planted = Planted::start(&["late"], None);
    let session = || {
        json(&printed(&mut planted.profile(&[
            "--seconds=1",
            "--rate=4K",
            "--json",
            "--quiet",
        ])))
    };
    let (first, second) = (session(), session());
    let whole = json(&printed(&mut planted.profile(&["--seconds=0", "--json"])));
    assert!(first["session"].is_null() && whole["session"].is_null());
    assert_eq!(second["session"]["live"], "growth");
    assert!(allocated(&first) > 0 && allocated(&second) > 0);
    // What is allocated between the last look and the end of sampling is in the whole, and in no session.
    assert!(
        allocated(&first) + allocated(&second) <= allocated(&whole),
        "{first:#} {second:#} {whole:#}"
    );
    let (began, ended) = (&second["began_ms"], &first["ended_ms"]);
    assert!(began.as_u64() >= ended.as_u64(), "{began} {ended}");
}

#[test]
fn a_session_of_a_process_that_samples_leaves_out_what_was_there() {
    let planted = Planted::start(&[], Some("4096"));
    let tree = printed(&mut planted.profile(&["--seconds=1", "--quiet", "--value=alloc_space"]));
    assert!(
        tree.contains(" allocated in ") && tree.contains("from live (planted.c:"),
        "{tree}"
    );
    assert!(!tree.contains("download"), "{tree}");
    let whole = printed(&mut planted.profile(&["--seconds=0"]));
    assert!(whole.contains("from download (planted.c:"), "{whole}");
}

#[test]
fn the_server_serves_sessions_too() {
    let planted = Planted::start(&[], Some("4096"));
    let server = Server::start(&["--pid", &planted.pid()]);
    let profile = |query: &str| {
        let file = planted.file("served.pb.gz");
        fs::write(
            &file,
            server.get_bytes(&format!("/debug/pprof/allocs{query}")),
        )
        .unwrap();
        json(&printed(neap().arg("profile").arg(&file).arg("--json")))
    };
    let (whole, session, later) = (profile(""), profile("?seconds=1"), profile(""));
    assert!(allocated(&whole) > 120 << 20 && allocated(&session) < 20 << 20);
    assert_eq!(session["session"]["live"], "growth");
    // Sampling that was on before the request is on after it.
    assert_eq!(
        (&later["rate"], &later["session"]),
        (&whole["rate"], &Value::Null)
    );
}
