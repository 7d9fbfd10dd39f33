//! The steps on store and model.

use crate::answer;
use crate::naive::{Model, SetOptions, bulk};
use neap_kv::store::{Store, Sweep};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub enum Step {
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

/// Performs a step on both, and compares the replies.
pub fn run(store: &mut Store, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
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
            // Fewer than a step's keys, so one step visits all.
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

pub fn step() -> impl Strategy<Value = Step> {
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
