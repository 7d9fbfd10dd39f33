//! Random commands on the store and on a naive model of it.

use neap_kv::commands::{Handler, choose, settle};
use neap_kv::reply::Reply;
use neap_kv::request::{Parser, Progress};
use neap_kv::store::Store;
use proptest::prelude::*;
use std::collections::BTreeMap;

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
    match choose(arguments).map(|command| command.handler) {
        Ok(Handler::Data(handler) | Handler::Growth(handler)) => {
            settle(handler(store, arguments, &mut reply), &mut reply);
        }
        Ok(Handler::Session(_) | Handler::Long(_)) => panic!("{words:?} is no command on data"),
        Err(refusal) => reply.fail(&refusal),
    }
    String::from_utf8(reply.bytes().to_vec()).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Set(String, String),
    Get(String),
    Add(String),
    Delete(String, String),
    Count,
    Flush,
}

/// The obvious implementation.
type Model = BTreeMap<String, String>;

/// The reply that a step must have.
fn expected(model: &mut Model, step: &Step) -> String {
    match step {
        Step::Set(key, value) => {
            model.insert(key.clone(), value.clone());
            "+OK\r\n".into()
        }
        Step::Get(key) => match model.get(key) {
            Some(value) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".into(),
        },
        Step::Add(key) => {
            // Like redis: only a number in canonical form, so not "00" or "+1".
            let text = model.get(key).map_or("0", String::as_str);
            let old = text.parse::<i64>().ok();
            match old.filter(|old| old.to_string() == text) {
                None => "-ERR value is not an integer or out of range\r\n".into(),
                Some(i64::MAX) => "-ERR increment or decrement would overflow\r\n".into(),
                Some(old) => {
                    model.insert(key.clone(), (old + 1).to_string());
                    format!(":{}\r\n", old + 1)
                }
            }
        }
        Step::Delete(one, other) => {
            let gone = [one, other].map(|key| usize::from(model.remove(key).is_some()));
            format!(":{}\r\n", gone[0] + gone[1])
        }
        Step::Count => format!(":{}\r\n", model.len()),
        Step::Flush => {
            model.clear();
            "+OK\r\n".into()
        }
    }
}

fn words(step: &Step) -> Vec<&str> {
    match step {
        Step::Set(key, value) => vec!["SET", key, value],
        Step::Get(key) => vec!["get", key],
        Step::Add(key) => vec!["INCR", key],
        Step::Delete(one, other) => vec!["DEL", one, other],
        Step::Count => vec!["DBSIZE"],
        Step::Flush => vec!["FLUSHALL"],
    }
}

fn key() -> impl Strategy<Value = String> {
    (0..12_u8).prop_map(|number| format!("k{number}"))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,40}",
        any::<i64>().prop_map(|number| number.to_string()),
        Just(i64::MAX.to_string()),
        Just("+1".to_string()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Step::Set(key, value)),
        4 => key().prop_map(Step::Get),
        3 => key().prop_map(Step::Add),
        2 => (key(), key()).prop_map(|(one, other)| Step::Delete(one, other)),
        1 => Just(Step::Count),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    // Failing cases are printed instead of written to files beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_answer_as_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let (mut store, mut model) = (Store::default(), Model::default());
        for step in &steps {
            let found = answer(&mut store, &words(step));
            prop_assert_eq!(found, expected(&mut model, step));
        }
        for key in model.keys() {
            prop_assert!(store.remove(key.as_bytes()));
        }
        prop_assert_eq!((store.len(), store.bytes()), (0, 0));
    }
}

#[test]
fn refusals_are_worded_as_redis_words_them() {
    let mut store = Store::default();
    for (words, expected) in [
        (
            &["GET"][..],
            "-ERR wrong number of arguments for 'get' command",
        ),
        (
            &["NOPE", "a"],
            "-ERR unknown command 'NOPE', with args beginning with: ",
        ),
        (&["SET", "k", "v", "NX"], "-ERR syntax error"),
    ] {
        let found = answer(&mut store, words);
        assert_eq!(found, format!("{expected}\r\n"), "{words:?}");
    }
}
