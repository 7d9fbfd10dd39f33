//! The table of commands.

use super::{Outcome, Session, admin, expiry, info, keys, session, strings};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::store::Store;

/// How to run a command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// With the store alone.
    Data(fn(&mut Store, Arguments<'_>, &mut Reply) -> Outcome),
    /// With the server and the client.
    Session(fn(&mut Session<'_>, Arguments<'_>, &mut Reply) -> Outcome),
}

/// Whether a command may make the store grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It is refused while the store is full.
    Grows,
    /// It is always run.
    Stays,
}

/// The stack that a command runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The coroutine's.
    Own,
    /// The thread's, which is large: for the few commands that format long texts.
    Thread,
}

/// A command.
pub struct Command {
    /// Its name in lower case.
    pub name: &'static str,
    /// The number of arguments, including the name; negative for "at least".
    pub arity: i64,
    /// Whether it may make the store grow.
    pub memory: Memory,
    /// Where it runs.
    pub place: Place,
    /// Its first, last and step of keys, as `COMMAND` reports them.
    pub keys: (i64, i64, i64),
    /// Its function.
    pub handler: Handler,
}

impl Command {
    /// Whether it accepts `count` arguments, including the name.
    pub fn takes(&self, count: usize) -> bool {
        let count = count as i64;
        count == self.arity || (self.arity < 0 && count >= -self.arity)
    }
}

const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const NONE: (i64, i64, i64) = (0, 0, 0);

const fn data(
    name: &'static str,
    arity: i64,
    memory: Memory,
    keys: (i64, i64, i64),
    handler: fn(&mut Store, Arguments<'_>, &mut Reply) -> Outcome,
) -> Command {
    Command {
        name,
        arity,
        memory,
        place: Place::Own,
        keys,
        handler: Handler::Data(handler),
    }
}

const fn session(
    name: &'static str,
    arity: i64,
    place: Place,
    handler: fn(&mut Session<'_>, Arguments<'_>, &mut Reply) -> Outcome,
) -> Command {
    Command {
        name,
        arity,
        memory: Memory::Stays,
        place,
        keys: NONE,
        handler: Handler::Session(handler),
    }
}

use Memory::{Grows, Stays};
use Place::{Own, Thread};

/// The number of commands.
const COUNT: usize = 44;

/// All commands, sorted by name.
pub static TABLE: [Command; COUNT] = [
    data("append", 3, Grows, ONE, strings::append),
    session("client", -2, Own, session::client),
    session("command", -1, Thread, admin::command),
    session("config", -2, Own, admin::config),
    data("dbsize", 1, Stays, NONE, keys::dbsize),
    data("decr", 2, Grows, ONE, strings::decr),
    data("decrby", 3, Grows, ONE, strings::decrby),
    data("del", -2, Stays, ALL, keys::del),
    session("echo", 2, Own, session::echo),
    data("exists", -2, Stays, ALL, keys::exists),
    data("expire", 3, Stays, ONE, expiry::expire),
    data("flushall", -1, Stays, NONE, keys::flushall),
    data("flushdb", -1, Stays, NONE, keys::flushall),
    data("get", 2, Stays, ONE, strings::get),
    data("getdel", 2, Stays, ONE, strings::getdel),
    data("getset", 3, Grows, ONE, strings::getset),
    session("hello", -1, Own, session::hello),
    data("incr", 2, Grows, ONE, strings::incr),
    data("incrby", 3, Grows, ONE, strings::incrby),
    session("info", -1, Thread, info::info),
    data("keys", 2, Stays, NONE, keys::keys),
    session("memory", -2, Thread, admin::memory),
    data("mget", -2, Stays, ALL, strings::mget),
    data("mset", -3, Grows, (1, -1, 2), strings::mset),
    data("persist", 2, Stays, ONE, expiry::persist),
    data("pexpire", 3, Stays, ONE, expiry::pexpire),
    session("ping", -1, Own, session::ping),
    data("psetex", 4, Grows, ONE, strings::psetex),
    data("pttl", 2, Stays, ONE, expiry::pttl),
    session("quit", -1, Own, session::quit),
    data("randomkey", 1, Stays, NONE, keys::randomkey),
    session("reset", 1, Own, session::reset),
    data("scan", -2, Stays, NONE, keys::scan),
    session("select", 2, Own, session::select),
    data("set", -3, Grows, ONE, strings::set),
    data("setex", 4, Grows, ONE, strings::setex),
    data("setnx", 3, Grows, ONE, strings::setnx),
    session("shutdown", -1, Own, admin::shutdown),
    data("strlen", 2, Stays, ONE, strings::strlen),
    session("time", 1, Own, admin::time),
    data("touch", -2, Stays, ALL, keys::exists),
    data("ttl", 2, Stays, ONE, expiry::ttl),
    data("type", 2, Stays, ONE, keys::kind),
    data("unlink", -2, Stays, ALL, keys::del),
];

/// The names as numbers in the same order, because every request looks up its command.
static NUMBERS: [u128; COUNT] = {
    let mut numbers = [0; COUNT];
    let mut place = 0;
    while place < COUNT {
        numbers[place] = in_small_letters(TABLE[place].name.as_bytes());
        assert!(
            place == 0 || numbers[place - 1] < numbers[place],
            "not in the order of names"
        );
        place += 1;
    }
    numbers
};

/// At most 16 bytes as a number with the same ordering.
const fn in_small_letters(name: &[u8]) -> u128 {
    let mut letters = [0; 16];
    let mut place = 0;
    while place < name.len() {
        letters[place] = name[place].to_ascii_lowercase();
        place += 1;
    }
    u128::from_be_bytes(letters)
}

/// The command with this name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    if name.len() > 16 {
        return None;
    }
    let place = NUMBERS.binary_search(&in_small_letters(name)).ok()?;
    // A name with trailing zero bytes is a different one.
    Some(&TABLE[place]).filter(|command| command.name.len() == name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in &TABLE {
            let loud = command.name.to_uppercase();
            assert_eq!(
                find(loud.as_bytes()).map(|found| found.name),
                Some(command.name)
            );
        }
        for name in ["", "g", "gett", "a-name-of-many-letters"] {
            assert!(find(name.as_bytes()).is_none(), "{name}");
        }
        assert!(find(b"get\0").is_none());
    }
}
