//! Commands about the connection and the server.

use super::refusal::{Outcome, Refusal};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::server::Server;

/// The settings that redis-benchmark asks for.
const SETTINGS: [(&str, &str); 2] = [("appendonly", "no"), ("save", "")];

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It continues with the next request.
    On,
    /// It ends after the reply.
    Ends,
}

/// The context of a command on the connection.
#[derive(Debug)]
pub struct Session<'a> {
    /// The whole server.
    pub server: &'a Server,
    /// Whether the connection ends after this reply.
    pub course: &'a mut Course,
}

pub(super) fn ping(_: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    match arguments.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(arguments.at(1)),
        _ => return Err(Refusal::Arity("ping")),
    }
    Ok(())
}

pub(super) fn echo(_: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    reply.bulk(arguments.at(1));
    Ok(())
}

pub(super) fn quit(session: &mut Session<'_>, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    *session.course = Course::Ends;
    reply.ok();
    Ok(())
}

/// Cuts off a web browser, as redis does, because the body of its request could contain another
/// site's commands.
pub(super) fn cut_off(session: &mut Session<'_>, _: Arguments<'_>, _: &mut Reply) -> Outcome {
    *session.course = Course::Ends;
    Ok(())
}

/// `CONFIG GET name…`.
pub(super) fn config(_: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    let word = arguments.at(1);
    if !word.eq_ignore_ascii_case(b"get") {
        return Err(Refusal::unknown_subcommand(word, "CONFIG"));
    }
    let wanted = |setting: &&(&str, &str)| {
        let mut names = arguments.from(2);
        names.any(|name| name.eq_ignore_ascii_case(setting.0.as_bytes()))
    };
    let found = || SETTINGS.iter().filter(wanted);
    reply.array(2 * found().count());
    found().for_each(|(name, value)| reply.pair(name, value));
    Ok(())
}
