//! Errors, worded as in redis, because clients compare the text.

use crate::request::Arguments;
use std::collections::TryReserveError;
use std::fmt::{self, Write as _};

/// Why a command was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such command: its name and the first arguments.
    Unknown(String),
    /// No such subcommand: its name, and its command's.
    UnknownSubcommand(String, &'static str),
    /// The wrong number of arguments for this command.
    Arity(&'static str),
    /// Options that are unknown or contradict each other.
    Syntax,
    /// An argument or a value is no integer.
    NotInteger,
    /// The sum is no 64-bit integer.
    Overflow,
    /// The amount cannot be subtracted.
    DecrementOverflow,
    /// An impossible deadline in this command.
    ExpireTime(&'static str),
    /// A cursor that is no number.
    Cursor,
    /// Only database 0 exists.
    Database,
    /// Only version 2 of the protocol is supported.
    Protocol,
    /// A name that contains blanks or line ends.
    ClientName,
    /// A value longer than a request may be.
    ValueTooLong,
    /// A reply longer than the server sends.
    ReplyTooLong,
    /// No memory is left, or none within `--maxmemory`.
    OutOfMemory,
}

impl Refusal {
    /// An unknown command, with the beginning of its arguments.
    pub fn unknown(arguments: Arguments<'_>) -> Refusal {
        let mut text = format!("'{}', with args beginning with: ", name(arguments.at(0)));
        for argument in arguments.from(1) {
            if text.len() > 128 {
                break;
            }
            // Writing into a string cannot fail.
            let _ = write!(text, "'{}' ", name(argument));
        }
        Refusal::Unknown(text)
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
        match self {
            Refusal::Unknown(text) => write!(out, "ERR unknown command {text}"),
            Refusal::UnknownSubcommand(name, command) => {
                let command = command.to_uppercase();
                write!(out, "ERR unknown subcommand '{name}'. Try {command} HELP.")
            }
            Refusal::Arity(command) => {
                write!(out, "ERR wrong number of arguments for '{command}' command")
            }
            Refusal::ExpireTime(command) => {
                write!(out, "ERR invalid expire time in '{command}' command")
            }
            other => out.write_str(other.fixed()),
        }
    }
}

impl Refusal {
    fn fixed(&self) -> &'static str {
        match self {
            Refusal::NotInteger => "ERR value is not an integer or out of range",
            Refusal::Overflow => "ERR increment or decrement would overflow",
            Refusal::DecrementOverflow => "ERR decrement would overflow",
            Refusal::Cursor => "ERR invalid cursor",
            Refusal::Database => "ERR DB index is out of range",
            Refusal::Protocol => "NOPROTO unsupported protocol version",
            Refusal::ClientName => {
                "ERR Client names cannot contain spaces, newlines or special characters."
            }
            Refusal::ValueTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Refusal::ReplyTooLong => "ERR the reply exceeds --max-reply",
            Refusal::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            _ => "ERR syntax error",
        }
    }
}
