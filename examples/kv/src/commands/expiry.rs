//! Commands on deadlines.

use super::{Outcome, Refusal, integer};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::store::Store;

/// The time `amount` units of `unit` milliseconds after `now`, if redis would accept it. A time in
/// the past becomes 1, which has passed.
pub(super) fn time_after(now: u64, amount: i64, unit: i64) -> Option<u64> {
    let now = i64::try_from(now).ok()?;
    let time = amount.checked_mul(unit)?.checked_add(now)?;
    Some(u64::try_from(time).unwrap_or(0).max(1))
}

pub(super) fn expire(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    expire_after(store, arguments, reply, 1_000, "expire")
}

pub(super) fn pexpire(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    expire_after(store, arguments, reply, 1, "pexpire")
}

fn expire_after(
    store: &mut Store,
    arguments: Arguments<'_>,
    reply: &mut Reply,
    unit: i64,
    command: &'static str,
) -> Outcome {
    let amount = integer(arguments.at(2))?;
    let time = time_after(store.now(), amount, unit).ok_or(Refusal::ExpireTime(command))?;
    let found = store.set_deadline(arguments.at(1), Some(time)).is_some();
    reply.integer(i64::from(found));
    Ok(())
}

pub(super) fn ttl(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    // Rounded to the next second, as redis does.
    reply.integer(remaining(store, arguments.at(1), |left| {
        (left + 500) / 1_000
    }));
    Ok(())
}

pub(super) fn pttl(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.integer(remaining(store, arguments.at(1), |left| left));
    Ok(())
}

fn remaining(store: &mut Store, key: &[u8], unit: fn(u64) -> u64) -> i64 {
    match store.deadline(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(time)) => unit(time - store.now()) as i64,
    }
}

pub(super) fn persist(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let had = store.set_deadline(arguments.at(1), None).flatten();
    reply.integer(i64::from(had.is_some()));
    Ok(())
}
