//! The event loop, its connections and its timer.
//!
//! Sockets are registered once, for both directions, edge-triggered, so a wait needs no system call
//! of its own. An idle server sleeps without a timeout.

mod accept;
mod lanes;

use crate::connection::Arrival;
use crate::options::Options;
use crate::server::Server;
use accept::Door;
use anyhow::Context as _;
use lanes::Lanes;
use mio::net::TcpListener;
use mio::{Events, Poll, Token};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// The listener's token; connections have tokens from 0 on.
const DOOR: Token = Token(usize::MAX - 1);

/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// Connections that may wait to be accepted; the kernel's own limit is `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Milliseconds until connections are accepted again after descriptors or memory were short.
const RETRY: u64 = 100;

/// Milliseconds after which a parked connection's stack is trimmed; also the interval of that
/// check.
const LONG_PARKED: u64 = 1_000;

/// Listens, and serves until the process ends.
///
/// # Errors
/// If it cannot listen, or the kernel refuses to wait.
pub fn run(options: Options, ready: impl FnOnce(SocketAddr)) -> anyhow::Result<Infallible> {
    let listener = listen(options.bind, options.port)?;
    let address = listener.local_addr()?;
    let server = Rc::new(Server::new(options, address.port()));
    let poll = Poll::new().context("cannot make an epoll instance")?;
    let worker = Worker {
        lanes: Lanes::new(Rc::clone(&server)),
        door: Door::new(listener, poll.registry(), DOOR)?,
        server,
        poll,
        next_look: None,
    };
    ready(address);
    worker.run()
}

struct Worker {
    server: Rc<Server>,
    poll: Poll,
    door: Door,
    lanes: Lanes,
    /// When parked connections are checked next; `None` while no check is needed.
    next_look: Option<u64>,
}

impl Worker {
    fn run(mut self) -> anyhow::Result<Infallible> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other.context("cannot wait for events")?,
            }
            self.turn(&events);
        }
    }

    fn turn(&mut self, events: &Events) {
        let now = self.server.look_at_clock();
        self.lanes.resume_waiting_turns();
        for event in events {
            match event.token() {
                DOOR => self.door.knock(),
                token => self.lanes.on_event(
                    token.0,
                    Arrival {
                        input: event.is_readable(),
                        hangup: event.is_read_closed() || event.is_error(),
                    },
                    event.is_writable(),
                ),
            }
        }
        self.lanes.resume_batch();
        let (lanes, registry) = (&mut self.lanes, self.poll.registry());
        (self.door).open(&self.server, |stream| lanes.begin(stream, registry));
        self.look(now);
    }

    fn look(&mut self, now: u64) {
        match self.next_look {
            None if self.lanes.take_stirred() => self.next_look = Some(now + LONG_PARKED),
            Some(due) if due <= now => {
                let again = self.lanes.look(now, LONG_PARKED);
                self.next_look = again.then_some(now + LONG_PARKED);
            }
            _ => {}
        }
    }

    /// The longest wait for events.
    fn timeout(&self) -> Option<Duration> {
        if self.lanes.has_turns() || self.door.has_more() {
            return Some(Duration::ZERO);
        }
        let now = self.server.now();
        let retry = self.door.is_stuck().then_some(now + RETRY);
        let first = [self.next_look, retry].into_iter().flatten().min()?;
        Some(Duration::from_millis(first.saturating_sub(now)))
    }
}

fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    let listener = TcpListener::bind(address).with_context(|| match port {
        0 => format!("cannot listen at {address}"),
        port => format!(
            "cannot listen at {address}. Is another server there (`ss -ltnp 'sport = {port}'`)? \
             --port chooses another"
        ),
    })?;
    // mio requests 128, which is too few for a burst.
    rustix::net::listen(&listener, BACKLOG).context("cannot lengthen the queue of connections")?;
    Ok(listener)
}
