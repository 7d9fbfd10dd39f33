//! Commands on keys and values.

use super::refusal::{Outcome, Refusal};
use crate::reply::{Reply, decimal};
use crate::request::{Arguments, number};
use crate::store::Store;

pub(super) fn get(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.optional(store.get(arguments.at(1)));
    Ok(())
}

/// `SET key value`, without options.
pub(super) fn set(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    if arguments.len() > 3 {
        return Err(Refusal::Syntax);
    }
    store.set(arguments.at(1), arguments.at(2))?;
    reply.ok();
    Ok(())
}

pub(super) fn incr(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let key = arguments.at(1);
    let before = match store.get(key) {
        Some(value) => number(value).ok_or(Refusal::NotInteger)?,
        None => 0,
    };
    let sum = before.checked_add(1).ok_or(Refusal::Overflow)?;
    let mut digits = [0; 20];
    let length = decimal(sum, &mut digits);
    store.set(key, &digits[..length])?;
    reply.integer(sum);
    Ok(())
}

pub(super) fn del(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let removed = arguments.from(1).filter(|key| store.remove(key));
    reply.count(removed.count());
    Ok(())
}

pub(super) fn dbsize(store: &mut Store, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.count(store.len());
    Ok(())
}

pub(super) fn flushall(store: &mut Store, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    store.clear();
    reply.ok();
    Ok(())
}
