//! A thread's connections, each a coroutine in a lane.

use crate::connection::{Arrival, Gone, Link, Need, Wait, Wake};
use crate::server::Server;
use crate::stack::Stack;
use corosensei::{Coroutine, CoroutineResult};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

type Routine = Coroutine<Wake, Wait, Result<(), Gone>, Stack>;

struct Lane {
    routine: Routine,
    wait: Wait,
    stack: Stack,
    /// Events that arrived while it waited for another one.
    arrival: Arrival,
    parked_at: u64,
    trim: Trim,
}

/// Whether a parked coroutine's stack has been trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    Due,
    Done,
}

impl Lane {
    fn trim(&mut self, server: &Server) {
        // SAFETY: every lane's coroutine is suspended while the thread is here, and left its mark
        // when it was.
        let bytes = unsafe { self.stack.trim(self.wait.mark) };
        server.stats.trimmed_bytes.fetch_add(bytes as u64, Relaxed);
        self.trim = Trim::Done;
    }
}

pub(super) struct Lanes {
    server: Arc<Server>,
    lanes: Slab<Lane>,
    /// Those that let other connections have their turn.
    turns: VecDeque<usize>,
    /// Those that have run this turn's requests.
    batch: Vec<usize>,
    /// Whether any ran since the last query.
    stirred: bool,
}

impl Lanes {
    pub(super) fn new(server: Arc<Server>) -> Lanes {
        Lanes {
            server,
            lanes: Slab::new(),
            turns: VecDeque::new(),
            batch: Vec::new(),
            stirred: false,
        }
    }

    pub(super) fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether any connection began or ran since the last query.
    pub(super) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Begins to serve a connection, which runs at its first event.
    pub(super) fn begin(&mut self, mut stream: TcpStream, registry: &Registry) {
        let slot = self.lanes.vacant_entry();
        let both = Interest::READABLE | Interest::WRITABLE;
        let stack = Stack::new(&self.server.options);
        let registered = registry.register(&mut stream, Token(slot.key()), both);
        let (Ok(stack), Ok(())) = (stack, registered) else {
            // Without a stack or kernel memory, the connection is dropped.
            self.server.clients.fetch_sub(1, Relaxed);
            self.server.stats.rejected.fetch_add(1, Relaxed);
            return;
        };
        self.stirred = true;
        let server = Arc::clone(&self.server);
        let routine = Coroutine::with_stack(stack.clone(), move |yielder, first| {
            Link::new(&server, yielder, stream, first).serve()
        });
        slot.insert(Lane {
            routine,
            wait: Wait {
                need: Need::Input,
                mark: 0,
            },
            stack,
            arrival: Arrival::default(),
            parked_at: self.server.now(),
            trim: Trim::Done,
        });
    }

    /// Handles the kernel's event for a socket.
    pub(super) fn on_event(&mut self, key: usize, arrival: Arrival, room: bool) {
        // An event of a connection that ended in this turn.
        let Some(lane) = self.lanes.get_mut(key) else {
            return;
        };
        lane.arrival.input |= arrival.input;
        lane.arrival.hangup |= arrival.hangup;
        let wanted = match lane.wait.need {
            Need::Input => arrival.input || arrival.hangup,
            Need::Room => room || arrival.hangup,
            Need::Turn | Need::Batch => false,
        };
        if wanted {
            self.resume(key);
        }
    }

    /// Resumes those that let other connections have their turn.
    pub(super) fn resume_waiting_turns(&mut self) {
        for _ in 0..self.turns.len() {
            if let Some(key) = self.turns.pop_front() {
                self.resume(key);
            }
        }
    }

    /// Resumes those that have run this turn's requests.
    pub(super) fn resume_batch(&mut self) {
        for key in std::mem::take(&mut self.batch) {
            self.resume(key);
        }
    }

    /// Ends all connections.
    pub(super) fn close_all(&mut self) {
        let keys: Vec<usize> = self.lanes.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key));
    }

    /// Trims the stacks of connections parked for `long` milliseconds, and closes those silent for
    /// too long. True if a later check could find more to do.
    pub(super) fn look(&mut self, now: u64, long: u64) -> bool {
        let timeout = u64::from(self.server.options.timeout) * 1_000;
        let mut silent = Vec::new();
        let mut again = timeout != 0 && !self.lanes.is_empty();
        for (key, lane) in &mut self.lanes {
            let parked = now.saturating_sub(lane.parked_at);
            if timeout != 0 && parked >= timeout {
                silent.push(key);
            } else if lane.trim == Trim::Due && parked >= long {
                lane.trim(&self.server);
            }
            again |= lane.trim == Trim::Due;
        }
        silent.into_iter().for_each(|key| self.close(key));
        again
    }

    fn resume(&mut self, key: usize) {
        let Some(lane) = self.lanes.get_mut(key) else {
            return;
        };
        self.stirred = true;
        let arrival = std::mem::take(&mut lane.arrival);
        match lane.routine.resume(Wake::Ready(arrival)) {
            CoroutineResult::Return(_) => self.end(key),
            CoroutineResult::Yield(wait) => {
                lane.wait = wait;
                lane.parked_at = self.server.now();
                lane.trim = Trim::Due;
                match wait.need {
                    Need::Turn => self.turns.push_back(key),
                    Need::Batch => self.batch.push(key),
                    Need::Input | Need::Room => {}
                }
                self.measure(key);
            }
        }
    }

    fn measure(&self, key: usize) {
        if self.server.options.measure_depth {
            let depth = self.lanes[key].stack.depth();
            self.server.depth.fetch_max(depth, Relaxed);
        }
    }

    fn close(&mut self, key: usize) {
        let Some(lane) = self.lanes.get_mut(key) else {
            return;
        };
        // A coroutine waits in only one place, and this word ends the wait.
        while let CoroutineResult::Yield(_) = lane.routine.resume(Wake::Close) {}
        self.end(key);
    }

    fn end(&mut self, key: usize) {
        self.measure(key);
        drop(self.lanes.remove(key));
        if self.lanes.is_empty() {
            self.lanes.shrink_to_fit();
        }
        self.server.clients.fetch_sub(1, Relaxed);
    }
}
