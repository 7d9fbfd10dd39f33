//! The command line.

use clap::Parser;
use std::net::IpAddr;

/// An in-memory key-value store that speaks the Redis protocol; one coroutine per connection.
#[derive(Clone, Debug, Parser)]
#[command(name = "neap-kv", version)]
pub struct Options {
    /// The TCP port; 0 for any free one, which is printed
    #[arg(long, default_value_t = 6379)]
    pub port: u16,
    /// The address to listen on. There are no passwords: keep it on a network you trust
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Connections at a time; more are refused
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub maxclients: u32,
    /// Requests of one connection that may be in progress: run, with a reply not sent yet
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: u32,
    /// Bytes of replies after which a connection's next request waits until they are sent
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    pub max_unsent: usize,
    /// Longest request in bytes, at most 1 GiB; a longer one ends its connection
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub max_request: usize,
    /// Longest reply in bytes; a longer one becomes an error
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    pub max_reply: usize,
    /// Total bytes of unfinished requests and unsent replies of all connections; those that would
    /// need more are closed
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    pub client_memory: usize,
    /// Bytes of keys and values after which writes are refused; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub maxmemory: usize,
    /// Address space of a connection's stack in bytes, including its guard page
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub stack_size: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
