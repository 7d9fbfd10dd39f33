//! New connections: counted, and refused above the limit.

use crate::server::Server;
use anyhow::Context as _;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::Ordering::Relaxed;

/// Connections accepted before existing ones have their turn again.
const BATCH: usize = 128;

/// The state of the queue of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// An event will announce the next one.
    Empty,
    /// There may be more.
    Waiting,
    /// There are more, but descriptors or memory for them are short: try again later.
    Stuck,
}

/// The listener.
pub(super) struct Door {
    listener: TcpListener,
    queue: Queue,
}

impl Door {
    pub(super) fn new(
        mut listener: TcpListener,
        registry: &Registry,
        token: Token,
    ) -> anyhow::Result<Door> {
        registry
            .register(&mut listener, token, Interest::READABLE)
            .context("cannot watch the listener")?;
        Ok(Door {
            listener,
            queue: Queue::Waiting,
        })
    }

    /// Notes an event.
    pub(super) fn knock(&mut self) {
        self.queue = Queue::Waiting;
    }

    pub(super) fn has_more(&self) -> bool {
        self.queue == Queue::Waiting
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.queue == Queue::Stuck
    }

    /// Accepts a batch, and passes those within the limit to `begin`.
    pub(super) fn open(&mut self, server: &Server, mut begin: impl FnMut(TcpStream)) {
        for _ in 0..BATCH {
            if self.queue == Queue::Empty {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.queue = Queue::Waiting;
                    welcome(stream, server).into_iter().for_each(&mut begin);
                }
                Err(error) => self.queue = after(error.kind()),
            }
        }
    }
}

fn welcome(mut stream: TcpStream, server: &Server) -> Option<TcpStream> {
    if server.clients.load(Relaxed) >= server.options.maxclients as usize {
        server.stats.rejected.fetch_add(1, Relaxed);
        // A new socket has room for a line; if not, the close has to suffice.
        let _ = stream.write(b"-ERR max number of clients reached\r\n");
        return None;
    }
    server.stats.connections.fetch_add(1, Relaxed);
    server.clients.fetch_add(1, Relaxed);
    // Replies are written whole. A broken socket shows at the first read.
    let _ = stream.set_nodelay(true);
    Some(stream)
}

fn after(error: ErrorKind) -> Queue {
    match error {
        ErrorKind::WouldBlock => Queue::Empty,
        // The client has given up meanwhile.
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted => Queue::Waiting,
        _ => Queue::Stuck,
    }
}
