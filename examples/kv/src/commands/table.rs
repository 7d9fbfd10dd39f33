//! The table of commands.

use super::refusal::{Outcome, Refusal};
use super::session::Session;
use super::{info, session, values};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::store::Store;

/// A command on keys and values.
pub type OnStore = fn(&mut Store, Arguments<'_>, &mut Reply) -> Outcome;

/// A command on the connection or the server.
pub type OnSession = fn(&mut Session<'_>, Arguments<'_>, &mut Reply) -> Outcome;

/// How to run a command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// With the store alone.
    Data(OnStore),
    /// The same, but refused while the store is full.
    Growth(OnStore),
    /// With the server and the connection.
    Session(OnSession),
    /// The same on the thread's stack, which is large: for the one that formats a long text.
    Long(OnSession),
}

/// A command.
pub struct Command {
    /// Its name in lower case.
    pub name: &'static str,
    /// The number of arguments, including the name; negative for "at least".
    pub arity: i64,
    /// Its function.
    pub handler: Handler,
}

use Handler::{Data, Growth, Long, Session as Talk};

const fn new(name: &'static str, arity: i64, handler: Handler) -> Command {
    Command {
        name,
        arity,
        handler,
    }
}

/// All commands, the most frequent first; last, how a web browser's requests begin.
pub static TABLE: [Command; 13] = [
    new("get", 2, Data(values::get)),
    new("set", -3, Growth(values::set)),
    new("incr", 2, Growth(values::incr)),
    new("del", -2, Data(values::del)),
    new("ping", -1, Talk(session::ping)),
    new("echo", 2, Talk(session::echo)),
    new("dbsize", 1, Data(values::dbsize)),
    new("flushall", 1, Data(values::flushall)),
    new("config", -3, Talk(session::config)),
    new("info", -1, Long(info::info)),
    new("quit", 1, Talk(session::quit)),
    new("post", -1, Talk(session::cut_off)),
    new("host:", -1, Talk(session::cut_off)),
];

/// Finds a request's command and checks its arity.
///
/// # Errors
/// Worded as in redis.
pub fn choose(arguments: Arguments<'_>) -> Result<&'static Command, Refusal> {
    let name = arguments.at(0);
    let mut all = TABLE.iter();
    let command = all.find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()));
    let command = command.ok_or_else(|| Refusal::unknown(arguments))?;
    let count = arguments.len() as i64;
    match count == command.arity || (command.arity < 0 && count >= -command.arity) {
        true => Ok(command),
        false => Err(Refusal::Arity(command.name)),
    }
}
