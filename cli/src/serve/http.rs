//! HTTP/1.1 for a few local readers: GET and HEAD, one request per connection, a thread for each.
//!
//! Every connection has a bounded life: its request must arrive, and its answer must leave, before
//! a deadline. At most [`MOST_CONNECTIONS`] are served at a time; others wait in the kernel's
//! queue.

use percent_encoding::percent_decode_str;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections served at a time.
const MOST_CONNECTIONS: usize = 64;
/// The longest request, in bytes.
const LONGEST: usize = 16 << 10;
/// Most header lines of a request.
const MOST_HEADERS: usize = 64;
/// How long a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);
/// How long an answer may take to leave.
const DEPARTURE: Duration = Duration::from_secs(30);
/// How long to wait for the client to close its end. Closing first may lose the end of the answer.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long to wait after a connection could not be accepted, for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// Names and values of the query, without escapes.
    pub query: Vec<(String, String)>,
    /// The host by which the client called this server; empty if it did not say.
    pub host: String,
    /// Where the page is that made a browser ask (`Sec-Fetch-Site`); empty without a browser.
    pub site: String,
}

/// The methods that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
}

/// A response. The length is added when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: Status,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
}

/// A response's number and its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u16, &'static str);

impl Status {
    pub const OK: Status = Status(200, "OK");
    pub const BAD_REQUEST: Status = Status(400, "Bad Request");
    pub const FORBIDDEN: Status = Status(403, "Forbidden");
    pub const NOT_FOUND: Status = Status(404, "Not Found");
    pub const METHOD_NOT_ALLOWED: Status = Status(405, "Method Not Allowed");
    pub const TIMEOUT: Status = Status(408, "Request Timeout");
    pub const TOO_LARGE: Status = Status(431, "Request Header Fields Too Large");
    pub const INTERNAL: Status = Status(500, "Internal Server Error");
    pub const UNAVAILABLE: Status = Status(503, "Service Unavailable");
}

impl Response {
    /// A response with a body of this media type, which the client must not keep.
    pub fn new(media_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: Status::OK,
            headers: vec![("content-type", media_type), ("cache-control", "no-store")],
            body: body.into(),
        }
    }

    /// An error as one sentence.
    pub fn refusal(status: Status, why: impl std::fmt::Display) -> Response {
        Response {
            status,
            ..Response::new("text/plain; charset=utf-8", format!("{why}\n"))
        }
    }

    /// The same with one more header.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Response {
        self.headers.push((name, value));
        self
    }

    fn bytes(&self, method: Method) -> Vec<u8> {
        let Status(number, words) = self.status;
        let mut head = format!("HTTP/1.1 {number} {words}\r\n");
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let length = self.body.len();
        head += &format!("content-length: {length}\r\nconnection: close\r\n\r\n");
        let body = match method {
            Method::Get => &self.body[..],
            Method::Head => &[],
        };
        [head.as_bytes(), body].concat()
    }
}

/// The other end of a connection, for work that takes long.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    ending: Arc<AtomicBool>,
}

impl Client {
    /// Whether an answer is pointless: the client has disconnected, or the server ends.
    pub fn has_left(&self) -> bool {
        let mut stream = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let changed = poll(&mut stream, Some(&Timespec::default()));
        changed.is_ok_and(|count| count > 0) || self.ending.load(Ordering::Relaxed)
    }
}

/// A server that accepts connections on a thread of its own, until the program ends.
pub struct Server {
    seats: Seats,
    ending: Arc<AtomicBool>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    ///
    /// There can be no more threads.
    pub fn start(
        listener: TcpListener,
        answer: impl Fn(&Request, &Client) -> Response + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let server = Server {
            seats: Seats::new(MOST_CONNECTIONS),
            ending: Arc::default(),
        };
        let (seats, ending) = (server.seats.clone(), Arc::clone(&server.ending));
        let answer = Arc::new(answer);
        thread::Builder::new().spawn(move || {
            loop {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let seat = seats.take();
                let client = Client {
                    stream,
                    ending: Arc::clone(&ending),
                };
                let answer = Arc::clone(&answer);
                // Without a thread, the connection is closed.
                let _ = thread::Builder::new().spawn(move || {
                    // A client that disconnects early needs no answer.
                    let _ = talk(&client, &*answer);
                    drop(seat);
                });
            }
        })?;
        Ok(server)
    }

    /// Has long requests end early, and waits for those in progress.
    pub fn end(&self, grace: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        self.seats.wait_until_free(grace);
    }
}

/// Reads the request and answers it.
fn talk(client: &Client, answer: &impl Fn(&Request, &Client) -> Response) -> io::Result<()> {
    let (method, response) = match request(&client.stream)? {
        Ok(request) => (request.method, answer(&request, client)),
        Err(refusal) => (Method::Get, refusal),
    };
    send(&client.stream, &response.bytes(method))?;
    client.stream.shutdown(Shutdown::Write)?;
    let end = Instant::now() + FAREWELL;
    let mut rest = [0; 4096];
    while receive(&client.stream, &mut rest, end)? > 0 {}
    Ok(())
}

/// The request, or the response to one that cannot be understood.
fn request(stream: &TcpStream) -> io::Result<Result<Request, Response>> {
    let end = Instant::now() + ARRIVAL;
    let mut head = vec![0; LONGEST];
    let mut length = 0;
    loop {
        let count = match receive(stream, &mut head[length..], end) {
            Err(error) if is_late(&error) => {
                let why = format!("the request did not arrive within {} s", ARRIVAL.as_secs());
                return Ok(Err(Response::refusal(Status::TIMEOUT, why)));
            }
            count => count?,
        };
        length += count;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match parsed(&head[..length]) {
            Ok(None) if length < LONGEST => {}
            Ok(None) => {
                let why = format!("the request is longer than {LONGEST} bytes");
                return Ok(Err(Response::refusal(Status::TOO_LARGE, why)));
            }
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// The request in these bytes; `None` if its end has not arrived.
pub fn parsed(head: &[u8]) -> Result<Option<Request>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let why = format!("the request has more than {MOST_HEADERS} headers");
            return Err(Response::refusal(Status::TOO_LARGE, why));
        }
        Err(error) => {
            let why = format!("this is no request of HTTP/1.1: {error}");
            return Err(Response::refusal(Status::BAD_REQUEST, why));
        }
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => {
            let why = "only GET and HEAD are served";
            let refusal = Response::refusal(Status::METHOD_NOT_ALLOWED, why);
            return Err(refusal.with("allow", "GET, HEAD"));
        }
    };
    let header = |name: &str| {
        let mut headers = request.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map_or("".into(), |header| String::from_utf8_lossy(header.value))
    };
    // A target is a path with its query, or a whole URL, whose host then counts.
    let target = request.path.unwrap_or_default();
    let (host, target) = match target.strip_prefix("http://") {
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (host.into(), path)
        }
        None => (header("host"), target),
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescaped(name), unescaped(value))
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    Ok(Some(Request {
        method,
        path: path.to_owned(),
        query: pairs.map(pair).collect(),
        host: host.into_owned(),
        site: header("sec-fetch-site").into_owned(),
    }))
}

/// A name or a value of a query, as forms write it: `+` is a space.
fn unescaped(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Reads some bytes before a deadline.
fn receive(mut stream: &TcpStream, bytes: &mut [u8], end: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(end)?))?;
    again(|| stream.read(bytes))
}

/// Writes all bytes before a deadline.
fn send(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + DEPARTURE;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let count = again(|| stream.write(bytes))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The time until a deadline.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Whether a deadline has passed. A socket's timeout is the error of one that would block.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// A number of seats. Clones share them.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<usize>,
    changed: Condvar,
}

/// A taken seat. Dropping it frees it.
#[derive(Debug)]
pub struct Seat(Seats);

impl Seats {
    /// Free seats.
    pub fn new(most: usize) -> Seats {
        Seats(Arc::new(Shared {
            most,
            taken: Mutex::new(0),
            changed: Condvar::new(),
        }))
    }

    /// Takes a seat if one is free.
    pub fn try_take(&self) -> Option<Seat> {
        let mut taken = self.taken();
        let is_free = *taken < self.0.most;
        is_free.then(|| {
            *taken += 1;
            Seat(self.clone())
        })
    }

    /// Waits for a free seat and takes it.
    pub fn take(&self) -> Seat {
        let full = |taken: &mut usize| *taken >= self.0.most;
        let taken = self.0.changed.wait_while(self.taken(), full);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Seat(self.clone())
    }

    /// Waits until all seats are free, at most this long.
    pub fn wait_until_free(&self, patience: Duration) {
        let some = |taken: &mut usize| *taken > 0;
        // The caller goes on in either case.
        let _ = self
            .0
            .changed
            .wait_timeout_while(self.taken(), patience, some);
    }

    fn taken(&self) -> MutexGuard<'_, usize> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.taken() -= 1;
        self.0.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Request {
        parsed(head.as_bytes()).unwrap().unwrap()
    }

    fn refused(head: &str) -> u16 {
        parsed(head.as_bytes()).unwrap_err().status.0
    }

    #[test]
    fn requests_are_taken_apart() {
        let request = of("GET /debug/pprof/heap?pid=7&seconds=&x HTTP/1.1\r\nhOst: a:1\r\n\r\n");
        assert_eq!(
            (request.path.as_str(), request.host.as_str()),
            ("/debug/pprof/heap", "a:1")
        );
        let pairs = [("pid", "7"), ("seconds", ""), ("x", "")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(request.query, pairs);
        let request = of("HEAD http://b:2/metrics HTTP/1.0\r\nHost: a\r\n\r\n");
        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::Head, "/metrics")
        );
        assert_eq!(request.host, "b:2");
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n").host, "");
    }

    #[test]
    fn names_and_values_of_the_query_are_decoded_once() {
        let request =
            of("GET /?program=c%2B%2Bserver&my+name=a%20%26b%3d&x=%2541%&y=%ff HTTP/1.1\r\n\r\n");
        let pairs = [
            ("program", "c++server"),
            ("my name", "a &b="),
            ("x", "%41%"),
            ("y", "\u{fffd}"),
        ];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(request.query, pairs);
    }

    #[test]
    fn what_is_no_request_is_refused_or_awaited() {
        assert_eq!(parsed(b"GET / HTTP/1.1\r\nHo"), Ok(None));
        assert_eq!(refused("POST /metrics HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(refused("GET / HTTP/9\r\n\r\n"), 400);
        assert_eq!(refused("\x16\x03\x01 TLS"), 400);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65))),
            431
        );
    }

    #[test]
    fn a_head_has_the_length_of_the_body_and_no_body() {
        let response = Response::new("text/plain", "four").with("x", "y");
        let expected = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: no-store\r\n\
                        x: y\r\ncontent-length: 4\r\nconnection: close\r\n\r\n";
        assert_eq!(response.bytes(Method::Head), expected.as_bytes());
        assert_eq!(
            response.bytes(Method::Get),
            format!("{expected}four").as_bytes()
        );
    }

    #[test]
    fn a_seat_is_free_again_when_it_is_dropped() {
        let seats = Seats::new(2);
        let (one, two) = (seats.take(), seats.try_take());
        assert!(two.is_some() && seats.try_take().is_none());
        let waiting = seats.clone();
        let waiter = std::thread::spawn(move || drop(waiting.take()));
        drop(one);
        waiter.join().unwrap();
        drop(two);
        seats.wait_until_free(Duration::from_secs(60));
        assert_eq!(*seats.taken(), 0);
    }
}
