//! One thread: its event loop, its connections, its timers.
//!
//! Sockets are registered once, for both directions, edge-triggered, so a wait needs no system call
//! of its own. An idle thread sleeps without a timeout.

mod accept;
mod lanes;

use crate::connection::Arrival;
use crate::server::Server;
use crate::store::Sweep;
use accept::Door;
use anyhow::Context as _;
use lanes::Lanes;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The listener's token; connections have tokens from 0 on.
const DOOR: Token = Token(usize::MAX - 1);

/// The waker's token.
const BELL: Token = Token(usize::MAX - 2);

/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// Milliseconds between two steps of the sweep while keys have deadlines.
const SWEEP_PAUSE: u64 = 100;

/// Milliseconds after which a parked connection's stack is trimmed; also the interval of that
/// check.
const LONG_PARKED: u64 = 1_000;

/// Where one thread leaves connections for another.
#[derive(Clone, Debug)]
pub struct Inbox(Arc<Mail>);

#[derive(Debug)]
struct Mail {
    streams: Mutex<VecDeque<TcpStream>>,
    waker: Waker,
}

impl Inbox {
    /// Gives the thread a connection.
    pub fn post(&self, stream: TcpStream) {
        let mut streams = self
            .0
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        streams.push_back(stream);
        drop(streams);
        self.wake();
    }

    /// Wakes the thread to check its inbox.
    pub fn wake(&self) {
        // Fails only if the kernel has no memory; the thread then checks at its next event.
        let _ = self.0.waker.wake();
    }

    fn take(&self) -> Option<TcpStream> {
        let mut streams = self
            .0
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        streams.pop_front()
    }
}

/// The poll and inbox of a thread; made before the threads.
#[derive(Debug)]
pub struct Seat {
    poll: Poll,
    inbox: Inbox,
}

impl Seat {
    /// A seat with an empty inbox.
    ///
    /// # Errors
    /// If the kernel has no descriptors.
    pub fn new() -> anyhow::Result<Seat> {
        let poll = Poll::new().context("cannot make an epoll instance")?;
        let waker = Waker::new(poll.registry(), BELL).context("cannot make an eventfd")?;
        let inbox = Inbox(Arc::new(Mail {
            streams: Mutex::default(),
            waker,
        }));
        Ok(Seat { poll, inbox })
    }

    /// Where to leave connections for the thread.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }
}

/// A thread's state.
pub struct Worker {
    server: Arc<Server>,
    poll: Poll,
    inbox: Inbox,
    door: Option<Door>,
    lanes: Lanes,
    /// When the next step of the sweep is due; `None` while no key has a deadline.
    next_sweep: Option<u64>,
    /// When parked connections are checked next; `None` while no check is needed.
    next_look: Option<u64>,
}

impl Worker {
    /// The state of the calling thread.
    pub fn new(server: Arc<Server>, seat: Seat) -> Worker {
        Worker {
            lanes: Lanes::new(Arc::clone(&server)),
            server,
            poll: seat.poll,
            inbox: seat.inbox,
            door: None,
            next_sweep: None,
            next_look: None,
        }
    }

    /// Makes this the thread that accepts connections and distributes them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn accept_from(&mut self, listener: TcpListener) -> anyhow::Result<()> {
        self.door = Some(Door::new(listener, self.poll.registry(), DOOR)?);
        Ok(())
    }

    /// Serves until the server stops.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        while !self.server.is_stopping() {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other.context("cannot wait for events")?,
            }
            self.turn(&events)?;
        }
        self.lanes.close_all();
        Ok(())
    }

    fn turn(&mut self, events: &Events) -> anyhow::Result<()> {
        let now = self.server.look_at_clock();
        self.lanes.resume_waiting_turns();
        for event in events {
            match event.token() {
                DOOR => self.door.iter_mut().for_each(Door::knock),
                BELL => {}
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
        self.let_in();
        self.sweep(now);
        self.look(now);
        Ok(())
    }

    fn let_in(&mut self) {
        if let Some(door) = &mut self.door {
            door.open(&self.server);
        }
        while let Some(stream) = self.inbox.take() {
            self.lanes.begin(stream, self.poll.registry());
        }
    }

    fn sweep(&mut self, now: u64) {
        if self.next_sweep.is_some_and(|due| due > now) {
            return;
        }
        let found = self.server.store().sweep();
        self.next_sweep = match found {
            Sweep::Nothing => None,
            Sweep::Calm => Some(now + SWEEP_PAUSE),
            Sweep::Busy => Some(now + 1),
        };
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
        let retry = self.door.as_ref().is_some_and(Door::is_stuck);
        if self.lanes.has_turns() || self.door.as_ref().is_some_and(Door::has_more) {
            return Some(Duration::ZERO);
        }
        let retry = retry.then(|| self.server.now() + SWEEP_PAUSE);
        let due = [self.next_sweep, self.next_look, retry];
        let first = due.into_iter().flatten().min()?;
        Some(Duration::from_millis(
            first.saturating_sub(self.server.now()),
        ))
    }
}
