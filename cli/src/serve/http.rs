//! HTTP/1.1 for a few local readers: GET and HEAD, one request per connection, a thread for each.
//!
//! Every connection has a bounded life: its request must arrive, and its answer must leave, before
//! a deadline. At most [`MOST_CONNECTIONS`] are served at a time; others wait in the kernel's
//! queue.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use ureq::http::{Method, StatusCode, Uri};

/// Connections served at a time.
const MOST_CONNECTIONS: usize = 64;
/// The status of a response to a request that is too long.
const TOO_LARGE: StatusCode = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
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
/// How long to wait until a connection may have ended, or descriptors or memory may be free.
const PAUSE: Duration = Duration::from_millis(10);

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

/// A response. The length is added when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: StatusCode,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
}

impl Response {
    /// A response with a body of this media type, which the client must not keep.
    pub fn new(media_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: StatusCode::OK,
            headers: vec![("content-type", media_type), ("cache-control", "no-store")],
            body: body.into(),
        }
    }

    /// An error as one sentence.
    pub fn refusal(status: StatusCode, why: impl std::fmt::Display) -> Response {
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

    fn bytes(&self, method: &Method) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let length = self.body.len();
        head += &format!("content-length: {length}\r\nconnection: close\r\n\r\n");
        let body = match *method {
            Method::HEAD => &[][..],
            _ => &self.body,
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
    /// Each connection in progress has a clone, so the count of clones tells how many there are.
    ending: Arc<AtomicBool>,
}

/// Clones of [`Server::ending`] without a connection: the server's and its thread's.
const IDLE: usize = 2;

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
            ending: Arc::default(),
        };
        let (ending, answer) = (Arc::clone(&server.ending), Arc::new(answer));
        thread::Builder::new().spawn(move || {
            loop {
                while Arc::strong_count(&ending) >= IDLE + MOST_CONNECTIONS {
                    thread::sleep(PAUSE);
                }
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let client = Client {
                    stream,
                    ending: Arc::clone(&ending),
                };
                let answer = Arc::clone(&answer);
                // A client that disconnects early needs no answer. Without a thread, the connection
                // is closed.
                let _ = thread::Builder::new().spawn(move || talk(&client, &*answer));
            }
        })?;
        Ok(server)
    }

    /// Has long requests end early, and waits for those in progress.
    pub fn end(&self, grace: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        let end = Instant::now() + grace;
        while Arc::strong_count(&self.ending) > IDLE && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }
}

/// Reads the request and answers it.
fn talk(client: &Client, answer: &impl Fn(&Request, &Client) -> Response) -> io::Result<()> {
    let stream = |time| Timed(&client.stream, Instant::now() + time);
    let (method, response) = match request(&mut stream(ARRIVAL))? {
        Ok(request) => (request.method.clone(), answer(&request, client)),
        Err(refusal) => (Method::GET, refusal),
    };
    stream(DEPARTURE).write_all(&response.bytes(&method))?;
    client.stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream(FAREWELL), &mut io::sink())?;
    Ok(())
}

/// A connection that fails from a moment on.
struct Timed<'a>(&'a TcpStream, Instant);

impl Timed<'_> {
    fn left(&self) -> Option<Duration> {
        Some(self.1.saturating_duration_since(Instant::now()))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(self.left())?;
        self.0.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(self.left())?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The request, or the response to one that cannot be understood.
fn request(stream: &mut Timed) -> io::Result<Result<Request, Response>> {
    let mut head = vec![0; LONGEST];
    let mut length = 0;
    while length < LONGEST {
        length += match stream.read(&mut head[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A socket that reaches its timeout would block. A timeout of no time is invalid.
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::InvalidInput].contains(&error.kind()) =>
            {
                let why = format!("the request did not arrive within {} s", ARRIVAL.as_secs());
                return Ok(Err(Response::refusal(StatusCode::REQUEST_TIMEOUT, why)));
            }
            Err(error) => return Err(error),
        };
        if let Some(request) = parsed(&head[..length]).transpose() {
            return Ok(request);
        }
    }
    let why = format!("the request is longer than {LONGEST} bytes");
    Ok(Err(Response::refusal(TOO_LARGE, why)))
}

/// The request in these bytes; `None` if its end has not arrived.
pub fn parsed(head: &[u8]) -> Result<Option<Request>, Response> {
    let alien = |error: &dyn std::fmt::Display| {
        let why = format!("this is not an HTTP/1.1 request: {error}");
        Response::refusal(StatusCode::BAD_REQUEST, why)
    };
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let why = format!("the request has more than {MOST_HEADERS} headers");
            return Err(Response::refusal(TOO_LARGE, why));
        }
        Err(error) => return Err(alien(&error)),
    }
    let method = match request.method {
        Some("GET") => Method::GET,
        Some("HEAD") => Method::HEAD,
        _ => {
            let why = "only GET and HEAD are served";
            let refusal = Response::refusal(StatusCode::METHOD_NOT_ALLOWED, why);
            return Err(refusal.with("allow", "GET, HEAD"));
        }
    };
    let header = |name: &str| {
        let mut headers = request.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map_or("".into(), |header| String::from_utf8_lossy(header.value))
    };
    // A target is a path with its query, or a whole URL, whose host then counts.
    let target = request.path.unwrap_or_default().parse::<Uri>();
    let target = target.map_err(|error| alien(&error))?;
    let host = target
        .authority()
        .map_or(header("host"), |host| host.as_str().into());
    let query = target.query().unwrap_or_default();
    Ok(Some(Request {
        method,
        path: target.path().to_owned(),
        query: form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
        host: host.into_owned(),
        site: header("sec-fetch-site").into_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Request {
        parsed(head.as_bytes()).unwrap().unwrap()
    }

    fn refused(head: &str) -> u16 {
        parsed(head.as_bytes()).unwrap_err().status.as_u16()
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
            (Method::HEAD, "/metrics")
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
        assert_eq!(response.bytes(&Method::HEAD), expected.as_bytes());
        assert_eq!(
            response.bytes(&Method::GET),
            format!("{expected}four").as_bytes()
        );
    }
}
