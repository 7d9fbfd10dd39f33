//! The commands: a table, and a function for each.

mod admin;
mod expiry;
pub mod glob;
mod info;
mod keys;
mod refusal;
mod session;
mod strings;
mod table;

pub use refusal::Refusal;
pub use session::{Client, Course, Session};
pub use table::{Command, Handler, Memory, Place, TABLE, find};

use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::store::Store;

/// A handler's result: the reply is written, or a refusal is to be written.
pub type Outcome = Result<(), Refusal>;

/// Finds a request's command and checks its arity.
///
/// # Errors
/// Worded as in redis.
pub fn choose(arguments: Arguments<'_>) -> Result<&'static Command, Refusal> {
    let command = find(arguments.at(0)).ok_or_else(|| Refusal::unknown(arguments))?;
    if command.takes(arguments.len()) {
        Ok(command)
    } else {
        Err(Refusal::Arity(command.name))
    }
}

/// Runs a command that needs only the store.
pub fn run_data(
    handler: fn(&mut Store, Arguments<'_>, &mut Reply) -> Outcome,
    store: &mut Store,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    let outcome = handler(store, arguments, reply);
    settle(outcome, reply);
}

/// The number that an argument or a value represents.
fn integer(text: &[u8]) -> Result<i64, Refusal> {
    number(text).ok_or(Refusal::NotInteger)
}

/// Replaces the handler's partial reply by a refusal.
pub fn settle(outcome: Outcome, reply: &mut Reply) {
    match outcome {
        Err(refusal) => reply.fail(&refusal),
        Ok(()) if reply.overflown() => reply.fail(&Refusal::ReplyTooLong),
        Ok(()) => {}
    }
}
