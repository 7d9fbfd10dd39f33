//! The connections, each a coroutine in a lane.

use crate::connection::{Arrival, Gone, Link, Need, Wait};
use crate::server::Server;
use crate::stack::Stack;
use corosensei::{Coroutine, CoroutineResult};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

type Routine = Coroutine<Arrival, Wait, Result<(), Gone>, Stack>;

struct Lane {
    routine: Routine,
    wait: Wait,
    stack: Stack,
    /// Events that arrived while it waited for another one.
    arrival: Arrival,
    /// Since when it waits on a stack that is not trimmed.
    untrimmed: Option<u64>,
}

impl Lane {
    fn trim(&mut self, server: &Server) {
        // SAFETY: every lane's coroutine is suspended while the thread is here, and left its mark
        // when it was.
        let bytes = unsafe { self.stack.trim(self.wait.mark) };
        server.stats.trimmed_bytes.fetch_add(bytes as u64, Relaxed);
        self.untrimmed = None;
    }
}

pub(super) struct Lanes {
    server: Rc<Server>,
    lanes: Slab<Lane>,
    /// Those that let other connections have their turn.
    turns: VecDeque<usize>,
    /// Those that have run this turn's requests.
    batch: Vec<usize>,
    /// Whether any ran since the last query.
    stirred: bool,
}

impl Lanes {
    pub(super) fn new(server: Rc<Server>) -> Lanes {
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
        let server = Rc::clone(&self.server);
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
            untrimmed: None,
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

    /// Trims the stacks of connections parked for `long` milliseconds. True if a later check could
    /// find more to do.
    pub(super) fn look(&mut self, now: u64, long: u64) -> bool {
        let mut again = false;
        for (_, lane) in &mut self.lanes {
            if lane.untrimmed.is_some_and(|since| now >= since + long) {
                lane.trim(&self.server);
            }
            again |= lane.untrimmed.is_some();
        }
        again
    }

    fn resume(&mut self, key: usize) {
        let Some(lane) = self.lanes.get_mut(key) else {
            return;
        };
        self.stirred = true;
        let arrival = std::mem::take(&mut lane.arrival);
        match lane.routine.resume(arrival) {
            CoroutineResult::Return(_) => self.end(key),
            CoroutineResult::Yield(wait) => {
                lane.wait = wait;
                lane.untrimmed = Some(self.server.now());
                match wait.need {
                    Need::Turn => self.turns.push_back(key),
                    Need::Batch => self.batch.push(key),
                    Need::Input | Need::Room => {}
                }
            }
        }
    }

    fn end(&mut self, key: usize) {
        drop(self.lanes.remove(key));
        if self.lanes.is_empty() {
            self.lanes.shrink_to_fit();
        }
        self.server.clients.fetch_sub(1, Relaxed);
    }
}
