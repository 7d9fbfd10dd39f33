//! An in-memory key-value store that speaks the Redis protocol.
//!
//! Its store is in the heap, and each of its connections is a coroutine on a stack of its own. Both
//! draw from one page heap: the store can reuse the memory of a burst of connections, and unused
//! memory goes back to the kernel.
//!
//! | module | contents |
//! |---|---|
//! | [`worker`] | the event loop, its connections and its timer |
//! | [`connection`] | one coroutine: reads a request, runs it, replies |
//! | [`commands`] | a table of commands, and a function for each |
//! | [`server`] | what the event loop, the connections and the commands share |
//! | [`stack`] | the stacks that coroutines run on |
//! | [`store`] | keys and values, without sockets |
//! | [`request`], [`reply`] | the protocol's two directions |
//! | [`options`], [`limits`] | the command line, and the descriptors that it needs |

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
