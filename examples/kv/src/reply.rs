//! Replies: RESP2, written straight into the connection's output.

use std::fmt::Display;
use std::io::Write as _;

/// The output of a connection: replies not sent yet.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    /// The longest reply to one request, in bytes; 0 for no limit.
    limit: usize,
    /// Where the current reply begins.
    begin: usize,
    overflown: bool,
}

impl Reply {
    /// An empty output without memory.
    pub fn new(limit: usize) -> Reply {
        Reply {
            limit,
            ..Reply::default()
        }
    }

    /// Begins the reply to one request.
    pub fn begin(&mut self) {
        self.begin = self.bytes.len();
        self.overflown = false;
    }

    /// Whether the current reply exceeded the limit. Its rest was left out.
    pub fn overflown(&self) -> bool {
        self.overflown
    }

    /// Replaces the current reply by an error.
    pub fn fail(&mut self, error: &dyn Display) {
        self.bytes.truncate(self.begin);
        self.overflown = false;
        self.error(error);
    }

    /// `+text`.
    pub fn simple(&mut self, text: &str) {
        self.put(&[b"+", text.as_bytes(), b"\r\n"]);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.put(&[b"+OK\r\n"]);
    }

    /// `-error`. Line ends become blanks, because the text may quote a client.
    pub fn error(&mut self, error: &dyn Display) {
        let text = error.to_string().replace(['\r', '\n'], " ");
        self.put(&[b"-", text.as_bytes(), b"\r\n"]);
    }

    /// `:number`.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A length or a count.
    pub fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// `$N` and the bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.put(&[bytes, b"\r\n"]);
    }

    /// Two texts, one after the other.
    pub fn pair(&mut self, one: &str, other: &str) {
        self.bulk(one.as_bytes());
        self.bulk(other.as_bytes());
    }

    /// The null bulk string.
    pub fn null(&mut self) {
        self.put(&[b"$-1\r\n"]);
    }

    /// A bulk string, or null.
    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The head of an array; its elements follow.
    pub fn array(&mut self, elements: usize) {
        self.header(b'*', elements as i64);
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory held, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Discards what was sent, and frees memory above `keep` bytes.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.begin = 0;
        if self.bytes.capacity() > keep {
            self.bytes = Vec::new();
        }
    }

    /// Reserves room for the usual batch of replies, if there is none.
    pub fn prepare(&mut self, bytes: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(bytes);
        }
    }

    fn header(&mut self, kind: u8, number: i64) {
        let mut digits = [0; 20];
        let length = decimal(number, &mut digits);
        self.put(&[&[kind], &digits[..length], b"\r\n"]);
    }

    fn put(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let full = self.limit != 0 && self.bytes.len() - self.begin + length > self.limit;
        if full || self.overflown || self.bytes.try_reserve(length).is_err() {
            self.overflown = true;
            return;
        }
        parts
            .iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
    }
}

/// Writes a number in decimal; returns its length.
///
/// # Panics
/// If `digits` has fewer than 20 bytes and the number does not fit.
pub fn decimal(number: i64, digits: &mut [u8]) -> usize {
    let whole = digits.len();
    let mut rest = digits;
    write!(rest, "{number}").expect("20 bytes hold every i64");
    whole - rest.len()
}
