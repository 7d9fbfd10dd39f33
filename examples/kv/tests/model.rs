//! Random commands on the store and on a naive model of it, with a clock that the test moves.

use neap_kv::commands::{Handler, choose, run_data};
use neap_kv::reply::Reply;
use neap_kv::request::{Parser, Progress};
use neap_kv::store::{Store, Sweep};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What a command answers, as RESP.
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

fn bulk(text: Option<&str>) -> String {
    match text {
        Some(text) => format!("${}\r\n{text}\r\n", text.len()),
        None => "$-1\r\n".into(),
    }
}

/// The obvious implementation.
#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<String, (String, Option<u64>)>,
    now: u64,
}

impl Model {
    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let now = self.now;
        self.entries
            .retain(|_, (_, deadline)| deadline.is_none_or(|time| time > now));
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|(value, _)| value.as_str())
    }

    fn put(&mut self, key: &str, value: &str, deadline: Option<u64>) {
        self.entries.insert(key.into(), (value.into(), deadline));
    }

    fn deadline(&self, key: &str) -> Option<u64> {
        self.entries.get(key).and_then(|entry| entry.1)
    }

    fn set(&mut self, key: &str, value: &str, options: &SetOptions) -> String {
        let old = self.get(key).map(String::from);
        let wanted = match options.condition {
            Some("NX") => old.is_none(),
            Some("XX") => old.is_some(),
            _ => true,
        };
        if wanted {
            let deadline = match options.expiry {
                Some(("KEEPTTL", _)) => self.deadline(key),
                Some(("EX", amount)) => Some(self.now + amount * 1_000),
                Some((_, amount)) => Some(self.now + amount),
                None => None,
            };
            self.put(key, value, deadline);
        }
        match (options.get, wanted) {
            (true, _) => bulk(old.as_deref()),
            (false, true) => "+OK\r\n".into(),
            (false, false) => bulk(None),
        }
    }

    fn add(&mut self, key: &str, amount: i64) -> String {
        // As redis has it: a number as it would write it, so not "00" or "+1".
        let text = self.get(key).unwrap_or("0");
        let old = text
            .parse::<i64>()
            .ok()
            .filter(|old| old.to_string() == text);
        let Some(old) = old else {
            return "-ERR value is not an integer or out of range\r\n".into();
        };
        let Some(sum) = old.checked_add(amount) else {
            return "-ERR increment or decrement would overflow\r\n".into();
        };
        let deadline = self.deadline(key);
        self.put(key, &sum.to_string(), deadline);
        format!(":{sum}\r\n")
    }

    fn expire(&mut self, key: &str, amount: i64) -> String {
        let Some(entry) = self.entries.get_mut(key) else {
            return ":0\r\n".into();
        };
        entry.1 = Some(self.now.saturating_add_signed(amount));
        self.pass(0);
        ":1\r\n".into()
    }

    fn pttl(&self, key: &str) -> String {
        match self.entries.get(key) {
            None => ":-2\r\n".into(),
            Some((_, None)) => ":-1\r\n".into(),
            Some((_, Some(time))) => format!(":{}\r\n", time - self.now),
        }
    }

    fn persist(&mut self, key: &str) -> String {
        let entry = self.entries.get_mut(key);
        let had = entry.and_then(|entry| entry.1.take()).is_some();
        format!(":{}\r\n", u8::from(had))
    }
}

#[derive(Clone, Debug)]
struct SetOptions {
    condition: Option<&'static str>,
    expiry: Option<(&'static str, u64)>,
    get: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Set(String, String, SetOptions),
    Get(String),
    GetSet(String, String),
    GetDel(String),
    SetNx(String, String),
    Append(String, String),
    StrLen(String),
    Add(String, i64),
    Delete(String, String),
    Exists(String, String),
    PExpire(String, i64),
    Pttl(String),
    Persist(String),
    MGet(String, String),
    MSet(String, String, String),
    Pass(u64),
    Sweep,
    Count,
    Keys,
    Flush,
}

fn run(store: &mut Store, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let mut ask = |words: &[&str]| answer(store, words);
    let (found, expected) = match step {
        Step::Set(key, value, options) => {
            let amount = options
                .expiry
                .map_or(String::new(), |(_, amount)| amount.to_string());
            let mut words = vec!["SET", key, value];
            words.extend(options.condition);
            words.extend(options.get.then_some("get"));
            match options.expiry {
                Some(("KEEPTTL", _)) => words.push("KEEPTTL"),
                Some((unit, _)) => words.extend([unit, &amount]),
                None => {}
            }
            (ask(&words), model.set(key, value, options))
        }
        Step::Get(key) => (ask(&["GET", key]), bulk(model.get(key))),
        Step::GetSet(key, value) => {
            let old = bulk(model.get(key));
            model.put(key, value, None);
            (ask(&["GETSET", key, value]), old)
        }
        Step::GetDel(key) => {
            let old = model.entries.remove(key);
            (
                ask(&["GETDEL", key]),
                bulk(old.as_ref().map(|old| old.0.as_str())),
            )
        }
        Step::SetNx(key, value) => {
            let absent = model.get(key).is_none();
            if absent {
                model.put(key, value, None);
            }
            (
                ask(&["SETNX", key, value]),
                format!(":{}\r\n", u8::from(absent)),
            )
        }
        Step::Append(key, tail) => {
            let (value, deadline) = (
                model.get(key).unwrap_or("").to_string(),
                model.deadline(key),
            );
            model.put(key, &(value + tail), deadline);
            let length = model.get(key).map_or(0, str::len);
            (ask(&["APPEND", key, tail]), format!(":{length}\r\n"))
        }
        Step::StrLen(key) => {
            let length = model.get(key).map_or(0, str::len);
            (ask(&["STRLEN", key]), format!(":{length}\r\n"))
        }
        Step::Add(key, amount) => (
            ask(&["INCRBY", key, &amount.to_string()]),
            model.add(key, *amount),
        ),
        Step::Delete(one, other) => {
            let mut gone = 0;
            for key in [one, other] {
                gone += usize::from(model.entries.remove(key).is_some());
            }
            (ask(&["DEL", one, other]), format!(":{gone}\r\n"))
        }
        Step::Exists(one, other) => {
            let there = [one, other]
                .iter()
                .filter(|key| model.get(key).is_some())
                .count();
            (ask(&["EXISTS", one, other]), format!(":{there}\r\n"))
        }
        Step::PExpire(key, amount) => (
            ask(&["PEXPIRE", key, &amount.to_string()]),
            model.expire(key, *amount),
        ),
        Step::Pttl(key) => (ask(&["PTTL", key]), model.pttl(key)),
        Step::Persist(key) => (ask(&["PERSIST", key]), model.persist(key)),
        Step::MGet(one, other) => {
            let values = bulk(model.get(one)) + &bulk(model.get(other));
            (ask(&["MGET", one, other]), format!("*2\r\n{values}"))
        }
        Step::MSet(one, other, value) => {
            [one, other]
                .iter()
                .for_each(|key| model.put(key, value, None));
            (ask(&["MSET", one, value, other, value]), "+OK\r\n".into())
        }
        Step::Pass(milliseconds) => {
            model.pass(*milliseconds);
            store.set_now(1_000 + model.now);
            return Ok(());
        }
        Step::Sweep => {
            // Below one step's keys, so one step sees all.
            let timed = store.timed();
            prop_assert_eq!(store.sweep() == Sweep::Nothing, timed == 0);
            prop_assert_eq!(store.len(), model.entries.len());
            return Ok(());
        }
        Step::Count => {
            store.sweep();
            let timed = model
                .entries
                .values()
                .filter(|entry| entry.1.is_some())
                .count();
            prop_assert_eq!(store.timed(), timed);
            (
                answer(store, &["DBSIZE"]),
                format!(":{}\r\n", model.entries.len()),
            )
        }
        Step::Keys => {
            let text = ask(&["KEYS", "*"]);
            let mut found: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
            found.sort_unstable();
            let keys: Vec<&str> = model.entries.keys().map(String::as_str).collect();
            prop_assert_eq!(found, keys);
            return Ok(());
        }
        Step::Flush => {
            model.entries.clear();
            let found = ask(&["FLUSHALL"]);
            prop_assert_eq!(store.bytes(), 0);
            (found, "+OK\r\n".into())
        }
    };
    prop_assert_eq!(found, expected);
    Ok(())
}

fn key() -> impl Strategy<Value = String> {
    (0..12_u8).prop_map(|number| format!("k{number}"))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,40}",
        any::<i64>().prop_map(|number| number.to_string()),
        (-5..5_i64).prop_map(|number| number.to_string()),
    ]
}

fn set_options() -> impl Strategy<Value = SetOptions> {
    let expiry = prop_oneof![
        Just(None),
        Just(Some(("KEEPTTL", 0))),
        (1..5_u64).prop_map(|amount| Some(("EX", amount))),
        (1..3_000_u64).prop_map(|amount| Some(("PX", amount))),
    ];
    let condition = prop::sample::select(vec![None, Some("NX"), Some("XX")]);
    (condition, expiry, any::<bool>()).prop_map(|(condition, expiry, get)| SetOptions {
        condition,
        expiry,
        get,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), value(), set_options()).prop_map(|(k, v, o)| Step::Set(k, v, o)),
        4 => key().prop_map(Step::Get),
        1 => (key(), value()).prop_map(|(k, v)| Step::GetSet(k, v)),
        1 => key().prop_map(Step::GetDel),
        1 => (key(), value()).prop_map(|(k, v)| Step::SetNx(k, v)),
        2 => (key(), value()).prop_map(|(k, v)| Step::Append(k, v)),
        1 => key().prop_map(Step::StrLen),
        3 => (key(), prop_oneof![-9..9_i64, any::<i64>()]).prop_map(|(k, n)| Step::Add(k, n)),
        2 => (key(), key()).prop_map(|(k, l)| Step::Delete(k, l)),
        1 => (key(), key()).prop_map(|(k, l)| Step::Exists(k, l)),
        2 => (key(), -5..4_000_i64).prop_map(|(k, n)| Step::PExpire(k, n)),
        2 => key().prop_map(Step::Pttl),
        1 => key().prop_map(Step::Persist),
        1 => (key(), key()).prop_map(|(k, l)| Step::MGet(k, l)),
        1 => (key(), key(), value()).prop_map(|(k, l, v)| Step::MSet(k, l, v)),
        3 => (0..2_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
        1 => Just(Step::Count),
        1 => Just(Step::Keys),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    // Failing cases are printed; files beside the sources are not wanted.
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

    /// Whatever is added and removed between the calls of a scan, no key that stays is missed.
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
    assert!(steps >= 4, "all in one go would stop everybody: {steps}");
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
