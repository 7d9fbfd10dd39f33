//! Commands on keys.

use super::glob::matches;
use super::{Outcome, Refusal, integer};
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::store::Store;

/// Most keys that one `SCAN` visits, because it blocks all other clients.
const MAX_SCAN: usize = 100_000;

pub(super) fn del(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let removed = arguments.from(1).filter_map(|key| store.remove(key));
    reply.count(removed.count());
    Ok(())
}

pub(super) fn exists(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let found = arguments.from(1).filter(|key| store.contains(key));
    reply.count(found.count());
    Ok(())
}

pub(super) fn kind(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let found = store.contains(arguments.at(1));
    reply.simple(if found { "string" } else { "none" });
    Ok(())
}

pub(super) fn dbsize(store: &mut Store, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.count(store.len());
    Ok(())
}

pub(super) fn flushall(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let known = |word: &[u8]| [&b"sync"[..], b"async"].contains(&&*word.to_ascii_lowercase());
    if arguments.len() > 2 || !arguments.from(1).all(known) {
        return Err(Refusal::Syntax);
    }
    store.clear();
    reply.ok();
    Ok(())
}

pub(super) fn randomkey(store: &mut Store, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.optional(store.random_key());
    Ok(())
}

pub(super) fn keys(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let pattern = arguments.at(1);
    let mut found = 0;
    store.scan(0, usize::MAX, |key| {
        found += usize::from(matches(pattern, key))
    });
    reply.array(found);
    store.scan(0, usize::MAX, |key| {
        if matches(pattern, key) {
            reply.bulk(key);
        }
    });
    Ok(())
}

struct ScanOptions<'a> {
    pattern: &'a [u8],
    count: usize,
    kind: Kind,
}

/// The requested type of value; there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Strings,
    Others,
}

impl<'a> ScanOptions<'a> {
    fn read(arguments: Arguments<'a>) -> Result<ScanOptions<'a>, Refusal> {
        let mut options = ScanOptions {
            pattern: b"*",
            count: 10,
            kind: Kind::Strings,
        };
        let mut words = arguments.from(2);
        while let Some(word) = words.next() {
            let value = words.next().ok_or(Refusal::Syntax)?;
            match word.to_ascii_lowercase().as_slice() {
                b"match" => options.pattern = value,
                b"count" => options.count = scan_count(value)?,
                b"type" if value.eq_ignore_ascii_case(b"string") => options.kind = Kind::Strings,
                b"type" => options.kind = Kind::Others,
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }
}

fn scan_count(value: &[u8]) -> Result<usize, Refusal> {
    match integer(value)? {
        ..1 => Err(Refusal::Syntax),
        count => Ok(usize::try_from(count).unwrap_or(MAX_SCAN).min(MAX_SCAN)),
    }
}

pub(super) fn scan(store: &mut Store, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let cursor = number(arguments.at(1)).and_then(|cursor| usize::try_from(cursor).ok());
    let cursor = cursor.ok_or(Refusal::Cursor)?;
    let options = ScanOptions::read(arguments)?;
    let wanted = |key: &[u8]| options.kind == Kind::Strings && matches(options.pattern, key);
    let mut found = 0;
    let next = store.scan(cursor, options.count, |key| {
        found += usize::from(wanted(key))
    });
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found);
    store.scan(cursor, options.count, |key| {
        if wanted(key) {
            reply.bulk(key);
        }
    });
    Ok(())
}
