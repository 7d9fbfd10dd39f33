//! Commands on values.

use super::{Outcome, Refusal, integer};
use crate::reply::{Reply, decimal};
use crate::request::Arguments;
use crate::store::{Deadline, Store};

/// The longest value that `APPEND` makes, in bytes; the same as redis's.
const MAX_VALUE: usize = 512 << 20;

pub(super) fn get(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.optional(store.get(arguments.at(1)));
    Ok(())
}

/// The condition of a `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    Absent,
    Present,
}

/// The reply of a `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    OldValue,
}

struct SetOptions {
    condition: Condition,
    answer: Answer,
    deadline: Option<Deadline>,
}

impl SetOptions {
    fn read(store: &Store, arguments: Arguments<'_>) -> Result<SetOptions, Refusal> {
        let mut options = SetOptions {
            condition: Condition::Always,
            answer: Answer::Done,
            deadline: None,
        };
        let mut words = arguments.from(3);
        while let Some(word) = words.next() {
            let word = word.to_ascii_lowercase();
            match word.as_slice() {
                b"nx" => options.limit(Condition::Absent)?,
                b"xx" => options.limit(Condition::Present)?,
                b"get" => options.answer = Answer::OldValue,
                b"keepttl" => options.until(Deadline::Keep)?,
                b"ex" => options.until(after(store, words.next(), 1_000, "set")?)?,
                b"px" => options.until(after(store, words.next(), 1, "set")?)?,
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }

    fn limit(&mut self, condition: Condition) -> Outcome {
        if self.condition != Condition::Always && self.condition != condition {
            return Err(Refusal::Syntax);
        }
        self.condition = condition;
        Ok(())
    }

    fn until(&mut self, deadline: Deadline) -> Outcome {
        match self.deadline.replace(deadline) {
            Some(_) => Err(Refusal::Syntax),
            None => Ok(()),
        }
    }
}

/// A deadline `amount` units of `unit` milliseconds from now.
fn after(
    store: &Store,
    amount: Option<&[u8]>,
    unit: i64,
    command: &'static str,
) -> Result<Deadline, Refusal> {
    let amount = integer(amount.ok_or(Refusal::Syntax)?)?;
    let refused = Refusal::ExpireTime(command);
    if amount <= 0 {
        return Err(refused);
    }
    super::expiry::time_after(store.now(), amount, unit)
        .map(Deadline::At)
        .ok_or(refused)
}

pub(super) fn set(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let (key, value) = (arguments.at(1), arguments.at(2));
    if arguments.len() == 3 {
        store.set(key, value, Deadline::Never)?;
        reply.ok();
        return Ok(());
    }
    let options = SetOptions::read(store, arguments)?;
    let present = store.contains(key);
    let wanted = match options.condition {
        Condition::Always => true,
        Condition::Absent => !present,
        Condition::Present => present,
    };
    match options.answer {
        Answer::OldValue => reply.optional(store.get(key)),
        Answer::Done if wanted => reply.ok(),
        Answer::Done => reply.null(),
    }
    if wanted {
        let deadline = options.deadline.unwrap_or(Deadline::Never);
        store.set(key, value, deadline)?;
    }
    Ok(())
}

pub(super) fn setnx(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let absent = !store.contains(arguments.at(1));
    if absent {
        store.set(arguments.at(1), arguments.at(2), Deadline::Never)?;
    }
    reply.integer(i64::from(absent));
    Ok(())
}

pub(super) fn setex(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    set_until(store, arguments, reply, 1_000, "setex")
}

pub(super) fn psetex(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    set_until(store, arguments, reply, 1, "psetex")
}

fn set_until(
    store: &mut Store,
    arguments: Arguments<'_>,
    reply: &mut Reply,
    unit: i64,
    command: &'static str,
) -> Outcome {
    let deadline = after(store, Some(arguments.at(2)), unit, command)?;
    store.set(arguments.at(1), arguments.at(3), deadline)?;
    reply.ok();
    Ok(())
}

pub(super) fn getset(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.optional(store.get(arguments.at(1)));
    store.set(arguments.at(1), arguments.at(2), Deadline::Never)?;
    Ok(())
}

pub(super) fn getdel(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.optional(store.get(arguments.at(1)));
    store.remove(arguments.at(1));
    Ok(())
}

pub(super) fn mget(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.array(arguments.len() - 1);
    for key in arguments.from(1) {
        reply.optional(store.get(key));
        if reply.overflown() {
            break;
        }
    }
    Ok(())
}

pub(super) fn mset(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    if arguments.len().is_multiple_of(2) {
        return Err(Refusal::Arity("mset"));
    }
    for pair in (1..arguments.len()).step_by(2) {
        store.set(arguments.at(pair), arguments.at(pair + 1), Deadline::Never)?;
    }
    reply.ok();
    Ok(())
}

pub(super) fn incr(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    add(store, arguments.at(1), 1, reply)
}

pub(super) fn decr(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    add(store, arguments.at(1), -1, reply)
}

pub(super) fn incrby(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let amount = integer(arguments.at(2))?;
    add(store, arguments.at(1), amount, reply)
}

pub(super) fn decrby(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let amount = integer(arguments.at(2))?;
    let amount = amount.checked_neg().ok_or(Refusal::DecrementOverflow)?;
    add(store, arguments.at(1), amount, reply)
}

fn add(store: &mut Store, key: &[u8], amount: i64, reply: &mut Reply) -> Outcome {
    let before = match store.get(key) {
        Some(value) => integer(value)?,
        None => 0,
    };
    let sum = before.checked_add(amount).ok_or(Refusal::Overflow)?;
    let mut digits = [0; 20];
    let length = decimal(sum, &mut digits);
    store.set(key, &digits[..length], Deadline::Keep)?;
    reply.integer(sum);
    Ok(())
}

pub(super) fn append(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let (key, tail) = (arguments.at(1), arguments.at(2));
    let length = store.get(key).map_or(0, <[u8]>::len);
    if length + tail.len() > MAX_VALUE {
        return Err(Refusal::ValueTooLong);
    }
    reply.count(store.append(key, tail)?);
    Ok(())
}

pub(super) fn strlen(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.count(store.get(arguments.at(1)).map_or(0, <[u8]>::len));
    Ok(())
}
