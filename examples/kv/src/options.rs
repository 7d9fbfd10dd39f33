//! The command line.

use clap::Parser;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

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
    /// Threads that serve connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Connections at a time; more are refused
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub maxclients: u32,
    /// Requests of one connection that may be in progress: run, with a reply not sent yet
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: u32,
    /// Bytes of replies after which a connection's next request waits until they are sent
    #[arg(long, default_value = "64kb")]
    pub max_unsent: Bytes,
    /// Longest request in bytes, at most 1gb; a longer one ends its connection
    #[arg(long, default_value = "64mb")]
    pub max_request: Bytes,
    /// Longest reply in bytes; a longer one becomes an error
    #[arg(long, default_value = "512mb")]
    pub max_reply: Bytes,
    /// Total bytes of unfinished requests and unsent replies of all connections; those that would
    /// need more are closed
    #[arg(long, default_value = "512mb")]
    pub client_memory: Bytes,
    /// Bytes of keys and values after which writes are refused; 0 for no limit
    #[arg(long, default_value = "0")]
    pub maxmemory: Bytes,
    /// Close a connection that is silent for this many seconds; 0 for never
    #[arg(long, default_value_t = 0)]
    pub timeout: u32,
    /// Address space of a connection's stack, including its guard page
    #[arg(long, default_value = "16kb")]
    pub stack_size: Bytes,
    /// Measure how deep stacks get, and report it in INFO; touches every page of every stack
    #[arg(long)]
    pub measure_depth: bool,
}

/// A number of bytes in redis's notation: 100, 64kb, 1gb. A kb is 1,024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let small = text.to_ascii_lowercase();
        let digits = small.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = match &small[digits.len()..] {
            "" | "b" => 1,
            "k" | "kb" => 1 << 10,
            "m" | "mb" => 1 << 20,
            "g" | "gb" => 1 << 30,
            other => return Err(format!("no unit of bytes: {other}")),
        };
        let number: usize = digits
            .parse()
            .map_err(|_| format!("no number of bytes: {text}"))?;
        number
            .checked_mul(unit)
            .map(Bytes)
            .ok_or_else(|| format!("too many bytes: {text}"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [("0", 0), ("100", 100), ("64kb", 65_536), ("1G", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "kb", "1tb", "-1", "99999999999gb"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
