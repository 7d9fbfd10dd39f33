//! An in-memory key-value store that speaks the Redis protocol.
//!
//! Its store lives in the heap, each of its connections is a coroutine on a stack of its own, and
//! both draw from one page heap: what a burst of connections took, the store may use afterwards,
//! and what nobody uses goes back to the kernel.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`], [`limits`] | the command line, and the descriptors it needs |
//! | [`server`] | what all threads share; start and end |
//! | [`worker`] | one thread: the event loop, its connections, its timers |
//! | [`connection`] | one coroutine: read a request, run it, answer |
//! | [`request`], [`reply`] | the protocol's two directions |
//! | [`commands`] | a table of commands, one function each |
//! | [`store`] | keys, values, deadlines; knows no sockets and no clock of its own |
//! | [`stack`] | the stacks that coroutines run on |

pub mod commands;
pub mod connection;
pub mod limits;
pub mod options;
pub mod reply;
pub mod request;
pub mod server;
pub mod stack;
pub mod store;
pub mod worker;
