//! Requests: from the bytes of a connection to the arguments of a command.
//!
//! Arguments are ranges of the connection's buffer, so nothing is copied. The crate
//! `redis-protocol` decodes each bulk string. This module reads the array around them element by
//! element. So a request that arrives in many pieces is not read again from its start, arrays do
//! not nest, and a claimed length reserves no memory.

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use std::fmt;

/// The longest incomplete line that is waited for, in bytes.
const MAX_LINE: usize = 64 << 10;

/// The most arguments of one request.
pub const MAX_ARGUMENTS: usize = 1 << 20;

/// The longest `*N` or `$N`, with room for every number in range.
const MAX_HEADER: usize = 32;

/// Why a connection is closed: the bytes that follow are ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line of plain text that does not end.
    InlineTooBig,
    /// `*` without a line end.
    ArrayHeaderTooBig,
    /// `*` without a number, or with one out of range.
    ArrayLength,
    /// Another byte in place of `$`.
    NotBulk(u8),
    /// `$` without a line end.
    BulkHeaderTooBig,
    /// `$` without a number, with one out of range, or with data that do not end there.
    BulkLength,
    /// The request is longer than the server accepts.
    RequestTooBig,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProtocolError::InlineTooBig => "too big inline request",
            ProtocolError::ArrayHeaderTooBig => "too big mbulk count string",
            ProtocolError::ArrayLength => "invalid multibulk length",
            ProtocolError::NotBulk(byte) => {
                let letter = byte.escape_ascii();
                return write!(out, "Protocol error: expected '$', got '{letter}'");
            }
            ProtocolError::BulkHeaderTooBig => "too big bulk count string",
            ProtocolError::BulkLength => "invalid bulk length",
            ProtocolError::RequestTooBig => "too big request",
        };
        write!(out, "Protocol error: {text}")
    }
}

/// What the bytes so far form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request of this many bytes. Its arguments are in [`Parser::arguments`]; there may be none.
    Request(usize),
    /// More bytes are needed.
    Incomplete,
}

/// Reads one request at a time, and remembers its position.
#[derive(Debug)]
pub struct Parser {
    /// Argument ranges, from the start of the request.
    spans: Vec<(u32, u32)>,
    /// Arguments not read yet; `None` before the array's header.
    missing: Option<usize>,
    /// The position in the request.
    at: usize,
    max_request: usize,
}

impl Parser {
    /// A parser that refuses requests longer than `max_request` bytes, at most 1 GiB.
    pub fn new(max_request: usize) -> Parser {
        Parser {
            spans: Vec::new(),
            missing: None,
            at: 0,
            max_request: max_request.min(1 << 30),
        }
    }

    /// Continues to read `bytes`, which begin where the request begins.
    ///
    /// # Errors
    /// If the bytes are not a request.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        if self.missing.is_none() && !self.header(bytes)? {
            return Ok(Progress::Incomplete);
        }
        while self.missing > Some(0) {
            if !self.element(bytes)? {
                return self.incomplete(bytes);
            }
        }
        Ok(Progress::Request(self.at))
    }

    /// The arguments of the request that [`Parser::advance`] announced.
    pub fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        Arguments {
            bytes,
            spans: &self.spans,
        }
    }

    /// Forgets the request, and frees the room of an unusually long one.
    pub fn restart(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(16);
        self.missing = None;
        self.at = 0;
    }

    fn incomplete(&self, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        if bytes.len() > self.max_request {
            return Err(ProtocolError::RequestTooBig);
        }
        Ok(Progress::Incomplete)
    }

    /// Reads `*N`, or a whole request in plain text. True if it was complete.
    fn header(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        match bytes.first() {
            None => Ok(false),
            Some(b'*') => self.array(bytes),
            Some(_) => self.inline(bytes),
        }
    }

    fn array(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let Some(line) = line(bytes, MAX_HEADER, ProtocolError::ArrayHeaderTooBig)? else {
            return Ok(false);
        };
        let count = number(&line[1..]).ok_or(ProtocolError::ArrayLength)?;
        if count > MAX_ARGUMENTS as i64 {
            return Err(ProtocolError::ArrayLength);
        }
        // A negative count is an empty request, as in redis.
        self.missing = Some(usize::try_from(count).unwrap_or(0));
        self.at = line.len() + 2;
        Ok(true)
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let window = &bytes[..bytes.len().min(MAX_LINE)];
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            return match window.len() {
                MAX_LINE => Err(ProtocolError::InlineTooBig),
                _ => Ok(false),
            };
        };
        let mut start = 0;
        for word in bytes[..end].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.spans.push((start as u32, (start + word.len()) as u32));
            }
            start += word.len() + 1;
        }
        self.missing = Some(0);
        self.at = end + 1;
        Ok(true)
    }

    /// Reads `$N` and its bytes. True if they were complete.
    fn element(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let rest = &bytes[self.at..];
        match rest.first() {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NotBulk(other)),
        }
        match decode_range(rest) {
            Ok(Some((RangeFrame::BulkString((start, end)), length))) => {
                self.push(rest, start, end, length)
            }
            Ok(None) => self.wait_for_bulk(rest),
            Ok(Some(_)) | Err(_) => Err(ProtocolError::BulkLength),
        }
    }

    fn push(
        &mut self,
        rest: &[u8],
        start: usize,
        end: usize,
        length: usize,
    ) -> Result<bool, ProtocolError> {
        if !rest[..length].ends_with(b"\r\n") {
            return Err(ProtocolError::BulkLength);
        }
        if self.at + length > self.max_request {
            return Err(ProtocolError::RequestTooBig);
        }
        let span = ((self.at + start) as u32, (self.at + end) as u32);
        self.spans.push(span);
        self.at += length;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// An incomplete bulk string: checks that its length is acceptable.
    fn wait_for_bulk(&self, rest: &[u8]) -> Result<bool, ProtocolError> {
        let Some(line) = line(rest, MAX_HEADER, ProtocolError::BulkHeaderTooBig)? else {
            return Ok(false);
        };
        let length = number(&line[1..]).and_then(|length| usize::try_from(length).ok());
        match length {
            Some(length) if length <= self.max_request - self.at.min(self.max_request) => Ok(false),
            _ => Err(ProtocolError::BulkLength),
        }
    }
}

/// The line at the start of `bytes` without its end, once it is complete.
fn line(
    bytes: &[u8],
    longest: usize,
    error: ProtocolError,
) -> Result<Option<&[u8]>, ProtocolError> {
    let window = &bytes[..bytes.len().min(longest)];
    match window.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some(&bytes[..end])),
        None if window.len() == longest => Err(error),
        None => Ok(None),
    }
}

/// A decimal number in redis's format: without `+`, blanks or leading zeros.
pub fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        b"0" => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [(u32, u32)],
}

impl<'a> Arguments<'a> {
    /// How many there are, including the name.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the request is an empty line or array.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn at(&self, index: usize) -> &'a [u8] {
        let (start, end) = self.spans[index];
        &self.bytes[start as usize..end as usize]
    }

    /// All arguments from number `first` on.
    pub fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans[first..]
            .iter()
            .map(move |&(start, end)| &bytes[start as usize..end as usize])
    }
}
