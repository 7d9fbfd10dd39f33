//! The commands: a table, and one function each.

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

/// What a handler leaves: a reply written, or a refusal to be written.
pub type Outcome = Result<(), Refusal>;

/// Finds a request's command and checks its arity.
///
/// # Errors
/// As redis words them.
pub fn choose(arguments: Arguments<'_>) -> Result<&'static Command, Refusal> {
    let command = find(arguments.at(0)).ok_or_else(|| Refusal::unknown(arguments))?;
    if command.takes(arguments.len()) {
        Ok(command)
    } else {
        Err(Refusal::Arity(command.name))
    }
}

/// Runs a command that needs nothing but the store.
pub fn run_data(
    handler: fn(&mut Store, Arguments<'_>, &mut Reply) -> Outcome,
    store: &mut Store,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    let outcome = handler(store, arguments, reply);
    settle(outcome, reply);
}

/// The number that an argument or a value is.
fn integer(text: &[u8]) -> Result<i64, Refusal> {
    number(text).ok_or(Refusal::NotInteger)
}

/// Writes a refusal in the place of what the handler began to write.
pub fn settle(outcome: Outcome, reply: &mut Reply) {
    match outcome {
        Err(refusal) => reply.fail(&refusal),
        Ok(()) if reply.overflown() => reply.fail(&Refusal::ReplyTooLong),
        Ok(()) => {}
    }
}
