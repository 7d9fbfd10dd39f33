//! An in-memory key-value store that speaks the Redis protocol.
//!
//! Its store is in the heap, and each of its connections is a coroutine on a stack of its own. Both
//! draw from one page heap: the store can reuse the memory of a burst of connections, and unused
//! memory goes back to the kernel.
//!
//! | module | contents |
//! |---|---|
//! | [`options`], [`limits`] | the command line, and the descriptors that it needs |
//! | [`server`] | what all threads share; start and end |
//! | [`worker`] | one thread: the event loop, its connections, its timers |
//! | [`connection`] | one coroutine: reads a request, runs it, replies |
//! | [`request`], [`reply`] | the protocol's two directions |
//! | [`commands`] | a table of commands, and a function for each |
//! | [`store`] | keys, values, deadlines; without sockets or a clock of its own |
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
