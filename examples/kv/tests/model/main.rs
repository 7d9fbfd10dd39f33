//! Random commands on the store and on a naive model of it, with a clock that the test moves.

mod naive;
mod steps;

use crate::naive::Model;
use crate::steps::{run, step};
use neap_kv::commands::{Handler, choose, run_data};
use neap_kv::reply::Reply;
use neap_kv::request::{Parser, Progress};
use neap_kv::store::{Store, Sweep};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A command's reply, as RESP.
fn answer(store: &mut Store, words: &[&str]) -> String {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    let mut parser = Parser::new(1 << 20);
    let progress = parser.advance(bytes.as_bytes());
    assert_eq!(progress, Ok(Progress::Request(bytes.len())));
    let arguments = parser.arguments(bytes.as_bytes());
    let mut reply = Reply::new(0);
    reply.begin();
    match choose(arguments) {
        Ok(command) => match command.handler {
            Handler::Data(handler) => run_data(handler, store, arguments, &mut reply),
            Handler::Session(_) => panic!("{words:?} is no command on data"),
        },
        Err(refusal) => reply.fail(&refusal),
    }
    String::from_utf8(reply.bytes().to_vec()).unwrap()
}

proptest! {
    // Failing cases are printed instead of written to files beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_answer_as_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let (mut store, mut model) = (Store::new(), Model::default());
        store.set_now(1_000);
        for step in &steps {
            run(&mut store, &mut model, step)?;
        }
        while store.random_key().is_some() {
            let key = store.random_key().unwrap().to_vec();
            prop_assert!(model.get(std::str::from_utf8(&key).unwrap()).is_some());
            store.remove(&key);
            model.entries.remove(std::str::from_utf8(&key).unwrap());
        }
        prop_assert!(model.entries.is_empty());
        prop_assert_eq!((store.bytes(), store.timed()), (0, 0));
    }

    /// Despite additions and removals between the calls of a scan, it misses no key that stays.
    #[test]
    fn a_scan_shows_every_key_that_stays(
        first in 1..200_usize,
        count in 1..20_usize,
        changes in prop::collection::vec((any::<bool>(), 0..400_usize), 0..200),
    ) {
        let mut store = Store::new();
        let name = |number: usize| format!("k{number}");
        for number in 0..first {
            answer(&mut store, &["SET", &name(number), "v"]);
        }
        let mut staying: BTreeSet<String> = (0..first).map(name).collect();
        let (mut seen, mut cursor) = (BTreeSet::new(), "0".to_string());
        let mut changes = changes.into_iter();
        loop {
            let text = answer(&mut store, &["SCAN", &cursor, "COUNT", &count.to_string()]);
            let mut lines = text.split("\r\n");
            cursor = lines.nth(2).unwrap().to_string();
            seen.extend(lines.skip(2).step_by(2).map(String::from));
            if cursor == "0" {
                break;
            }
            for (adds, number) in changes.by_ref().take(5) {
                if adds {
                    answer(&mut store, &["SET", &name(number), "w"]);
                } else {
                    answer(&mut store, &["DEL", &name(number)]);
                    staying.remove(&name(number));
                }
            }
        }
        prop_assert!(staying.is_subset(&seen), "missed {:?}", staying.difference(&seen));
    }
}

#[test]
fn a_cursor_beyond_the_end_shows_the_rest() {
    let mut store = Store::new();
    for number in 0..100 {
        answer(&mut store, &["SET", &format!("k{number}"), "v"]);
    }
    let first = answer(&mut store, &["SCAN", "0", "COUNT", "10"]);
    assert!(first.starts_with("*2\r\n$2\r\n90\r\n*10\r\n"), "{first}");
    for number in 0..100 {
        if !first.contains(&format!("k{number}\r\n")) && number % 2 == 0 {
            answer(&mut store, &["DEL", &format!("k{number}")]);
        }
    }
    let rest = answer(&mut store, &["SCAN", "90", "COUNT", "1000"]);
    assert!(rest.starts_with("*2\r\n$1\r\n0\r\n"), "{rest}");
    for number in (1..90).step_by(2) {
        assert!(rest.contains(&format!("\r\nk{number}\r\n")), "k{number}");
    }
}

#[test]
fn many_keys_are_swept_in_steps_that_ask_for_more() {
    let mut store = Store::new();
    store.set_now(1);
    for number in 0..10_000 {
        answer(&mut store, &["SET", &format!("k{number}"), "v", "PX", "10"]);
    }
    assert_eq!(store.sweep(), Sweep::Calm);
    store.set_now(100);
    let mut steps = 0;
    while store.sweep() == Sweep::Busy {
        steps += 1;
    }
    assert!(
        steps >= 4,
        "a single step would block every client: {steps}"
    );
    assert!(store.is_empty());
    assert_eq!(store.counts().expired, 10_000);
}

#[test]
fn refusals_are_worded_as_redis_words_them() {
    let mut store = Store::new();
    for (words, expected) in [
        (
            &["GET"][..],
            "-ERR wrong number of arguments for 'get' command",
        ),
        (
            &["NOPE", "a", "b"],
            "-ERR unknown command 'NOPE', with args beginning with: 'a' 'b' ",
        ),
        (&["SET", "k", "v", "NX", "XX"], "-ERR syntax error"),
        (&["SET", "k", "v", "EX"], "-ERR syntax error"),
        (
            &["SET", "k", "v", "EX", "1", "KEEPTTL"],
            "-ERR syntax error",
        ),
        (
            &["SET", "k", "v", "EX", "x"],
            "-ERR value is not an integer or out of range",
        ),
        (
            &["SET", "k", "v", "EX", "0"],
            "-ERR invalid expire time in 'set' command",
        ),
        (
            &["SET", "k", "v", "EX", "9223372036854775807"],
            "-ERR invalid expire time in 'set' command",
        ),
        (
            &["EXPIRE", "k", "9223372036854775807"],
            "-ERR invalid expire time in 'expire' command",
        ),
        (
            &["DECRBY", "k", "-9223372036854775808"],
            "-ERR decrement would overflow",
        ),
        (
            &["MSET", "k", "v", "l"],
            "-ERR wrong number of arguments for 'mset' command",
        ),
        (&["SCAN", "x"], "-ERR invalid cursor"),
        (&["SCAN", "0", "COUNT", "0"], "-ERR syntax error"),
        (&["FLUSHALL", "NOW"], "-ERR syntax error"),
    ] {
        assert_eq!(
            answer(&mut store, words),
            format!("{expected}\r\n"),
            "{words:?}"
        );
    }
}
