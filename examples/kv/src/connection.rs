//! One connection: a coroutine that reads a request, runs it and replies, as straight-line code.
//!
//! It holds buffers only while it works. Parked, it costs its stack's touched pages and an
//! incomplete request.

use crate::commands::{Command, Course, Handler, Refusal, Session, choose, settle};
use crate::reply::Reply;
use crate::request::{Arguments, Parser, Progress, ProtocolError};
use crate::server::Server;
use corosensei::Yielder;
use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes per read, unless a longer request is in progress.
const READ_BYTES: usize = 16 << 10;

/// The usual room for a batch of replies, in bytes.
const REPLY_BYTES: usize = 1 << 10;

/// Smaller buffers, in bytes, are not counted while the connection is running.
const UNCOUNTED: usize = READ_BYTES + REPLY_BYTES;

/// What a coroutine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Bytes from the client.
    Input,
    /// Room for bytes to the client.
    Room,
    /// The other connections' turn to end.
    Turn,
    /// The requests that arrived at the same time to be run.
    Batch,
}

/// A coroutine that waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// What it waits for.
    pub need: Need,
    /// An address on its stack; pages well below it hold no data.
    pub mark: usize,
}

/// The kernel's report about the socket since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// There are bytes to read.
    pub input: bool,
    /// The client has closed its side, or the connection is broken.
    pub hangup: bool,
}

/// The connection is over; nothing more can be sent to the client.
#[derive(Debug)]
pub struct Gone;

/// The state of the socket's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// All input was read: an event precedes any more.
    Drained,
    /// There may be more.
    Open,
    /// The end is near. Read until it is reached, because no further event may come.
    Ending,
}

/// A connection as its coroutine sees it.
pub struct Link<'a> {
    server: &'a Server,
    yielder: &'a Yielder<Arrival, Wait>,
    stream: TcpStream,
    course: Course,
    parser: Parser,
    input: Vec<u8>,
    /// Where the current request begins in `input`.
    start: usize,
    state: Input,
    output: Reply,
    /// Requests that were run but whose replies are not sent yet.
    under_way: u32,
    /// Bytes counted in the server's sum.
    counted: usize,
}

impl<'a> Link<'a> {
    /// A new connection.
    pub fn new(
        server: &'a Server,
        yielder: &'a Yielder<Arrival, Wait>,
        stream: TcpStream,
        first: Arrival,
    ) -> Link<'a> {
        let mut link = Link {
            server,
            yielder,
            stream,
            course: Course::On,
            parser: Parser::new(server.options.max_request),
            input: Vec::new(),
            start: 0,
            state: Input::Open,
            output: Reply::new(server.options.max_reply),
            under_way: 0,
            counted: 0,
        };
        link.learn(first);
        link
    }

    /// Serves requests until one side ends the connection.
    ///
    /// # Errors
    /// If the client disconnected.
    pub fn serve(&mut self) -> Result<(), Gone> {
        while self.course == Course::On {
            let length = self.next_request()?;
            self.run();
            self.start += length;
            self.parser.restart();
            self.acquire()?;
        }
        self.flush()
    }

    /// Waits until a whole request is in `input`, and returns its length.
    fn next_request(&mut self) -> Result<usize, Gone> {
        loop {
            match self.parser.advance(&self.input[self.start..]) {
                Ok(Progress::Request(length)) => return Ok(length),
                Ok(Progress::Incomplete) => self.fill()?,
                Err(error) => return self.refuse(error),
            }
        }
    }

    fn refuse(&mut self, error: ProtocolError) -> Result<usize, Gone> {
        self.server.stats.protocol_errors.fetch_add(1, Relaxed);
        self.output
            .error(&format_args!("ERR Protocol error: {error}"));
        self.flush()?;
        Err(Gone)
    }

    /// Runs the request at `start`.
    fn run(&mut self) {
        let arguments = self.parser.arguments(&self.input[self.start..]);
        if arguments.is_empty() {
            return;
        }
        self.output.begin();
        self.output.prepare(REPLY_BYTES);
        let mut session = Session {
            server: self.server,
            course: &mut self.course,
        };
        match choose(arguments) {
            Ok(command) if matches!(command.handler, Handler::Long(_)) => self
                .yielder
                .on_parent_stack(|| run(command, &mut session, arguments, &mut self.output)),
            Ok(command) => run(command, &mut session, arguments, &mut self.output),
            Err(refusal) => self.output.fail(&refusal),
        }
        self.server.stats.requests.fetch_add(1, Relaxed);
        self.under_way += 1;
    }

    /// The connection's semaphore: waits until another request may be in progress.
    fn acquire(&mut self) -> Result<(), Gone> {
        let options = &self.server.options;
        let full = self.output.bytes().len() >= options.max_unsent;
        if full || self.under_way >= options.max_requests {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends all replies.
    fn flush(&mut self) -> Result<(), Gone> {
        let mut sent = 0;
        while sent < self.output.bytes().len() {
            match self.stream.write(&self.output.bytes()[sent..]) {
                Ok(0) => return Err(Gone),
                Ok(count) => sent += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => self.park(Need::Room)?,
                    _ => return Err(Gone),
                },
            }
        }
        self.output.clear(UNCOUNTED);
        self.under_way = 0;
        Ok(())
    }

    /// Appends the client's next bytes to `input`. Sends the pending replies before any wait.
    fn fill(&mut self) -> Result<(), Gone> {
        if self.state == Input::Drained {
            self.await_batch();
            self.flush()?;
        }
        // Each may have waited and received an event for more input, which is not announced twice.
        if self.state == Input::Drained {
            self.park(Need::Input)?;
        }
        self.make_room()?;
        let room = self.input.capacity() - self.input.len();
        match rustix::io::read(&self.stream, spare_capacity(&mut self.input)) {
            Ok(0) => return Err(Gone),
            Ok(count) => self.note_read(count < room),
            Err(rustix::io::Errno::AGAIN) => self.state = Input::Drained,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Gone),
        }
        Ok(())
    }

    /// Lets the requests that arrived at the same time run first. Their replies then leave
    /// together, so a sleeping client on another core is woken only once.
    fn await_batch(&mut self) {
        if !self.output.bytes().is_empty() {
            self.release_input();
            self.wait(Need::Batch);
        }
    }

    /// A short read means that all input was read. After a full one, the other connections have
    /// their turn.
    fn note_read(&mut self, short: bool) {
        match self.state {
            Input::Ending => {}
            _ if short => self.state = Input::Drained,
            _ => self.wait(Need::Turn),
        }
    }

    /// Makes room in `input` for more.
    fn make_room(&mut self) -> Result<(), Gone> {
        self.input.drain(..self.start);
        self.start = 0;
        let room = self.input.capacity() - self.input.len();
        if room < READ_BYTES / 4 {
            let more = self.input.len().max(READ_BYTES);
            self.input.try_reserve_exact(more).map_err(|_| Gone)?;
        }
        if self.input.capacity() > UNCOUNTED {
            self.count()?;
        }
        Ok(())
    }

    /// Frees the buffers that are not needed while waiting, and waits.
    fn park(&mut self, need: Need) -> Result<(), Gone> {
        self.release_input();
        if self.output.bytes().is_empty() {
            self.output.clear(0);
        }
        self.count()?;
        self.wait(need);
        Ok(())
    }

    /// Shrinks `input` to the bytes that are not run yet.
    fn release_input(&mut self) {
        let left = self.input.len() - self.start;
        if left == 0 {
            self.input = Vec::new();
            self.start = 0;
        } else if left < self.input.capacity() / 4 {
            self.input = self.input[self.start..].to_vec();
            self.start = 0;
        }
    }

    /// Adds the buffers to the server's sum. A connection that makes the sum exceed its limit is
    /// closed.
    fn count(&mut self) -> Result<(), Gone> {
        let held = self.input.capacity() + self.output.capacity() + self.parser.bytes();
        if held == self.counted {
            return Ok(());
        }
        let sum = self.server.buffered.load(Relaxed) - self.counted + held;
        self.server.buffered.store(sum, Relaxed);
        let grows = held > self.counted;
        self.counted = held;
        if grows && sum > self.server.options.client_memory {
            let text = b"-ERR the memory for unfinished requests and unsent replies is used up\r\n";
            // Only if it can be written at once: no buffer is kept for this client.
            let _ = self.stream.write(text);
            return Err(Gone);
        }
        Ok(())
    }

    fn wait(&mut self, need: Need) {
        let here = 0u8;
        let mark = std::ptr::from_ref(&here) as usize;
        let arrival = self.yielder.suspend(Wait { need, mark });
        self.learn(arrival);
    }

    /// Takes note of a wake-up's news about the input.
    fn learn(&mut self, arrival: Arrival) {
        if arrival.hangup {
            self.state = Input::Ending;
        } else if arrival.input && self.state == Input::Drained {
            self.state = Input::Open;
        }
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        self.server.buffered.fetch_sub(self.counted, Relaxed);
    }
}

fn run(command: &Command, session: &mut Session<'_>, arguments: Arguments<'_>, reply: &mut Reply) {
    let server = session.server;
    let outcome = match command.handler {
        Handler::Growth(_) if server.is_full() => Err(Refusal::OutOfMemory),
        Handler::Data(handler) | Handler::Growth(handler) => {
            handler(&mut server.store(), arguments, reply)
        }
        Handler::Session(handler) | Handler::Long(handler) => handler(session, arguments, reply),
    };
    settle(outcome, reply);
}
