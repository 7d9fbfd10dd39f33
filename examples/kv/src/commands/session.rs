//! Commands about the connection.

use super::{Outcome, Refusal, integer};
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::server::Server;

/// A connection's name, and whether it is to end.
#[derive(Debug)]
pub struct Client {
    /// Its unique number.
    pub id: u64,
    /// Set by `CLIENT SETNAME`.
    pub name: Box<[u8]>,
    /// Whether it ends after this reply.
    pub course: Course,
}

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
    /// The client that asks.
    pub client: &'a mut Client,
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

pub(super) fn select(_: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) -> Outcome {
    if integer(arguments.at(1))? != 0 {
        return Err(Refusal::Database);
    }
    reply.ok();
    Ok(())
}

pub(super) fn quit(session: &mut Session<'_>, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    session.client.course = Course::Ends;
    reply.ok();
    Ok(())
}

pub(super) fn reset(session: &mut Session<'_>, _: Arguments<'_>, reply: &mut Reply) -> Outcome {
    session.client.name = Box::default();
    reply.simple("RESET");
    Ok(())
}

/// `HELLO [2 [SETNAME name]]`; version 3 is refused.
pub(super) fn hello(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    if arguments.len() > 1 && number(arguments.at(1)) != Some(2) {
        return Err(Refusal::Protocol);
    }
    match arguments.len() {
        1 | 2 => {}
        4 if arguments.at(2).eq_ignore_ascii_case(b"setname") => {
            session.client.name = client_name(arguments.at(3))?;
        }
        _ => return Err(Refusal::Syntax),
    }
    reply.array(14);
    let texts = [
        ("server", "redis"),
        ("version", super::info::REDIS_VERSION),
        ("mode", "standalone"),
        ("role", "master"),
    ];
    for (key, value) in texts {
        reply.pair(key, value);
    }
    reply.bulk(b"proto");
    reply.integer(2);
    reply.bulk(b"id");
    reply.integer(session.client.id as i64);
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

pub(super) fn client(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    let word = arguments.at(1).to_ascii_lowercase();
    match (word.as_slice(), arguments.len()) {
        (b"id", 2) => reply.integer(session.client.id as i64),
        (b"getname", 2) => {
            let name = &*session.client.name;
            reply.optional((!name.is_empty()).then_some(name));
        }
        (b"setname", 3) => {
            session.client.name = client_name(arguments.at(2))?;
            reply.ok();
        }
        // A client library tells its name and version, which the server ignores.
        (b"setinfo", 4) => reply.ok(),
        (b"id" | b"getname" | b"setname" | b"setinfo", _) => return Err(Refusal::Arity("client")),
        (other, _) => return Err(Refusal::unknown_subcommand(other, "client")),
    }
    Ok(())
}

fn client_name(name: &[u8]) -> Result<Box<[u8]>, Refusal> {
    if name.len() > 256 || !name.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::ClientName);
    }
    Ok(name.into())
}
