//! The state that all threads share.

use crate::options::Options;
use crate::store::Store;
use crate::worker::{Inbox, Seat, Worker};
use anyhow::Context as _;
use mio::net::TcpListener;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Connections that may wait to be accepted; the kernel's own limit is `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Counters since the start, or since `CONFIG RESETSTAT`.
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

impl Stats {
    /// Resets all to 0.
    pub fn reset(&self) {
        let all = [
            &self.connections,
            &self.rejected,
            &self.requests,
            &self.protocol_errors,
            &self.trimmed_bytes,
        ];
        for counter in all {
            counter.store(0, Relaxed);
        }
    }
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
    /// The deepest stack so far in bytes, if measured.
    pub depth: AtomicUsize,
    store: Mutex<Store>,
    started: Instant,
    /// Milliseconds since one second before the start, updated by each turn of an event loop.
    now: AtomicU64,
    stopping: AtomicBool,
    next_client: AtomicU64,
    inboxes: OnceLock<Vec<Inbox>>,
}

impl Server {
    /// Listens, and serves until it is told to stop.
    ///
    /// # Errors
    /// If it cannot listen, or lacks what its threads need.
    pub fn run(options: Options, ready: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
        let listener = listen(options.bind, options.port)?;
        let address = listener.local_addr()?;
        let threads = usize::from(options.threads);
        let server = Arc::new(Server::new(options, address.port()));
        let mut seats = (0..threads)
            .map(|_| Seat::new())
            .collect::<anyhow::Result<Vec<Seat>>>()?;
        let inboxes = seats.iter().map(Seat::inbox).collect();
        server.inboxes.get_or_init(|| inboxes);
        let mut first = Worker::new(Arc::clone(&server), seats.remove(0));
        first.accept_from(listener)?;
        ready(address);
        std::thread::scope(|scope| {
            let others: Vec<_> = seats
                .into_iter()
                .map(|seat| scope.spawn(|| Worker::new(Arc::clone(&server), seat).run()))
                .collect();
            let mut ends = vec![first.run()];
            for thread in others {
                let end = thread.join();
                ends.push(end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            ends.into_iter().collect()
        })
    }

    /// A server that is not running yet.
    pub fn new(options: Options, port: u16) -> Server {
        Server {
            options,
            port,
            stats: Stats::default(),
            clients: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            store: Mutex::new(Store::new()),
            started: Instant::now(),
            now: AtomicU64::new(1_000),
            stopping: AtomicBool::new(false),
            next_client: AtomicU64::new(1),
            inboxes: OnceLock::new(),
        }
    }

    /// Locks the store and sets its time.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A panic in a handler ends the process, so the data behind a poisoned lock is never used.
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.set_now(self.now());
        store
    }

    /// Whether the store has reached its limit.
    pub fn is_full(&self, store: &Store) -> bool {
        let most = self.options.maxmemory.0;
        most != 0 && store.bytes() >= most
    }

    /// Milliseconds since one second before the start, at the last reading of the clock.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Reads the clock.
    pub fn look_at_clock(&self) -> u64 {
        let now = 1_000 + self.started.elapsed().as_millis() as u64;
        self.now.fetch_max(now, Relaxed);
        now
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// A number for a new connection.
    pub fn next_client(&self) -> u64 {
        self.next_client.fetch_add(1, Relaxed)
    }

    /// The threads' inboxes.
    pub fn inboxes(&self) -> &[Inbox] {
        self.inboxes.get().map_or(&[], Vec::as_slice)
    }

    /// Ends all threads after their current turn.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.inboxes().iter().for_each(Inbox::wake);
    }

    /// Whether it was told to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    let listener = TcpListener::bind(address).with_context(|| match port {
        0 => format!("cannot listen at {address}"),
        port => format!(
            "cannot listen at {address}. Is another server there (`ss -ltnp 'sport = {port}'`)? --port chooses another"
        ),
    })?;
    // mio requests 128, which is too few for a burst.
    rustix::net::listen(&listener, BACKLOG).context("cannot lengthen the queue of connections")?;
    Ok(listener)
}
