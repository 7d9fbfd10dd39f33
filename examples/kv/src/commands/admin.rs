//! Commands about the server.

use super::glob::matches;
use super::table::{Command, Memory, TABLE};
use super::{Course, Outcome, Refusal, Session, find};
use crate::reply::Reply;
use crate::request::Arguments;

pub(super) fn command(_: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    if arguments.len() == 1 {
        reply.array(TABLE.len());
        TABLE.iter().for_each(|command| describe(command, reply));
        return Ok(());
    }
    match arguments.at(1).to_ascii_lowercase().as_slice() {
        b"count" => reply.count(TABLE.len()),
        // Clients that request help texts work without them.
        b"docs" => reply.array(0),
        b"info" => {
            reply.array(arguments.len() - 2);
            for name in arguments.from(2) {
                match find(name) {
                    Some(command) => describe(command, reply),
                    None => reply.null_array(),
                }
            }
        }
        other => return Err(Refusal::unknown_subcommand(other, "command")),
    }
    Ok(())
}

/// Name, arity, flags, first key, last key, step.
fn describe(command: &Command, reply: &mut Reply) {
    reply.array(6);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity);
    match command.memory {
        Memory::Grows => {
            reply.array(2);
            reply.simple("write");
            reply.simple("denyoom");
        }
        Memory::Stays => reply.array(0),
    }
    let (first, last, step) = command.keys;
    for number in [first, last, step] {
        reply.integer(number);
    }
}

/// `CONFIG GET pattern…`: the settings that clients ask for.
pub(super) fn config(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    let word = arguments.at(1);
    if word.eq_ignore_ascii_case(b"resetstat") && arguments.len() == 2 {
        session.server.stats.reset();
        reply.ok();
        return Ok(());
    }
    if !word.eq_ignore_ascii_case(b"get") {
        return Err(Refusal::unknown_subcommand(word, "config"));
    }
    if arguments.len() < 3 {
        return Err(Refusal::Arity("config|get"));
    }
    let wanted = |name: &&(&str, String)| {
        let mut patterns = arguments.from(2);
        patterns.any(|pattern| matches(&pattern.to_ascii_lowercase(), name.0.as_bytes()))
    };
    let settings = settings(session);
    let found = || settings.iter().filter(wanted);
    reply.array(2 * found().count());
    for (name, value) in found() {
        reply.pair(name, value);
    }
    Ok(())
}

fn settings(session: &Session<'_>) -> [(&'static str, String); 8] {
    let options = &session.server.options;
    [
        ("appendonly", "no".to_string()),
        ("bind", options.bind.to_string()),
        ("databases", "1".to_string()),
        ("maxclients", options.maxclients.to_string()),
        ("maxmemory", options.maxmemory.0.to_string()),
        ("port", session.server.port.to_string()),
        ("save", String::new()),
        ("timeout", options.timeout.to_string()),
    ]
}

pub(super) fn memory(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    let word = arguments.at(1).to_ascii_lowercase();
    match (word.as_slice(), arguments.len()) {
        (b"usage", 3) => match session.server.store().cost(arguments.at(2)) {
            Some(bytes) => reply.count(bytes),
            None => reply.null(),
        },
        (b"purge", 2) => {
            neap::purge::all();
            reply.ok();
        }
        (b"usage" | b"purge", _) => return Err(Refusal::Syntax),
        (other, _) => return Err(Refusal::unknown_subcommand(other, "memory")),
    }
    Ok(())
}

/// Seconds and microseconds since 1970.
pub(super) fn time(_: &mut Session<'_>, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    reply.array(2);
    reply.pair(&now.as_secs().to_string(), &now.subsec_micros().to_string());
    Ok(())
}

/// Ends the server. There is nothing to save, regardless of the argument.
pub(super) fn shutdown(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    _: &mut Reply,
) -> Outcome {
    let known = |word: &[u8]| {
        [&b"nosave"[..], b"save", b"now", b"force"].contains(&&*word.to_ascii_lowercase())
    };
    if !arguments.from(1).all(known) {
        return Err(Refusal::Syntax);
    }
    session.client.course = Course::Ends;
    session.server.stop();
    Ok(())
}
