//! Errors, worded as in redis, because clients compare the text.

use crate::reply::Reply;
use crate::request::Arguments;
use std::collections::TryReserveError;
use std::fmt;

/// Why a command was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such command.
    Unknown(String),
    /// No such subcommand: its name, and its command's.
    UnknownSubcommand(String, &'static str),
    /// The wrong number of arguments for this command.
    Arity(&'static str),
    /// Options that are unknown.
    Syntax,
    /// A value is no integer.
    NotInteger,
    /// The sum is no 64-bit integer.
    Overflow,
    /// A reply longer than the server sends.
    ReplyTooLong,
    /// No memory is left, or none within `--maxmemory`.
    OutOfMemory,
}

/// A handler's result: the reply is written, or a refusal is to be written.
pub type Outcome = Result<(), Refusal>;

/// Replaces the handler's partial reply by a refusal.
pub fn settle(outcome: Outcome, reply: &mut Reply) {
    match outcome {
        Err(refusal) => reply.fail(&refusal),
        Ok(()) if reply.overflown() => reply.fail(&Refusal::ReplyTooLong),
        Ok(()) => {}
    }
}

impl Refusal {
    /// An unknown command.
    pub fn unknown(arguments: Arguments<'_>) -> Refusal {
        Refusal::Unknown(name(arguments.at(0)))
    }

    /// An unknown subcommand of `command`.
    pub fn unknown_subcommand(subcommand: &[u8], command: &'static str) -> Refusal {
        Refusal::UnknownSubcommand(name(subcommand), command)
    }
}

/// A name that a client gave, cut to 128 bytes.
fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

impl From<TryReserveError> for Refusal {
    fn from(_: TryReserveError) -> Refusal {
        Refusal::OutOfMemory
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Refusal::Unknown(name) => {
                return write!(
                    out,
                    "ERR unknown command '{name}', with args beginning with: "
                );
            }
            Refusal::UnknownSubcommand(name, command) => {
                return write!(out, "ERR unknown subcommand '{name}'. Try {command} HELP.");
            }
            Refusal::Arity(command) => {
                return write!(out, "ERR wrong number of arguments for '{command}' command");
            }
            Refusal::Syntax => "ERR syntax error",
            Refusal::NotInteger => "ERR value is not an integer or out of range",
            Refusal::Overflow => "ERR increment or decrement would overflow",
            Refusal::ReplyTooLong => "ERR the reply exceeds --max-reply",
            Refusal::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
        };
        out.write_str(text)
    }
}
