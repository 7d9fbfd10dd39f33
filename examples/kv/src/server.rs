//! What the event loop, the connections and the commands share.
//!
//! One thread runs all of them. The state is `Sync` because a coroutine passes it to a function on
//! the thread's stack, which takes only what other threads may use.

use crate::options::Options;
use crate::store::Store;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused.
    pub rejected: AtomicU64,
    /// Requests run.
    pub requests: AtomicU64,
    /// Connections closed because of a protocol error.
    pub protocol_errors: AtomicU64,
    /// Bytes trimmed from the stacks of parked connections.
    pub trimmed_bytes: AtomicU64,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    /// Its options.
    pub options: Options,
    /// The port that it listens on.
    pub port: u16,
    /// Counters.
    pub stats: Stats,
    /// Current connections.
    pub clients: AtomicUsize,
    /// Bytes of unfinished requests and unsent replies.
    pub buffered: AtomicUsize,
    store: Mutex<Store>,
    started: Instant,
    now: AtomicU64,
}

impl Server {
    /// A server that is not running yet.
    pub fn new(options: Options, port: u16) -> Server {
        Server {
            options,
            port,
            stats: Stats::default(),
            store: Mutex::default(),
            clients: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
            started: Instant::now(),
            now: AtomicU64::new(0),
        }
    }

    /// Keys and values.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A panic in a handler ends the process, so the data behind a poisoned lock is never used.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store has reached its limit.
    pub fn is_full(&self) -> bool {
        let most = self.options.maxmemory;
        most != 0 && self.store().bytes() >= most
    }

    /// Milliseconds since the start, at the last reading of the clock.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Reads the clock.
    pub fn look_at_clock(&self) -> u64 {
        let now = self.started.elapsed().as_millis() as u64;
        self.now.store(now, Relaxed);
        now
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}
