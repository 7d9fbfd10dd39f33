//! Requests: from the bytes of a connection to the arguments of a command.
//!
//! Arguments are ranges of the connection's buffer, so nothing is copied. The parser reads an array
//! element by element. So a request that arrives in many pieces is not read again from its start,
//! arrays do not nest, and a claimed length reserves no memory.

/// The longest incomplete line that is waited for, in bytes.
const MAX_LINE: usize = 64 << 10;

/// The most arguments of one request.
pub const MAX_ARGUMENTS: usize = 1 << 20;

/// The longest `*N` or `$N`, with room for every number in range.
const MAX_HEADER: usize = 32;

/// Why a connection is closed, in redis's words: the bytes that follow are ambiguous.
pub type ProtocolError = &'static str;

/// A line of plain text that does not end.
pub const INLINE_TOO_BIG: ProtocolError = "too big inline request";
/// `*` without a line end.
pub const ARRAY_HEADER_TOO_BIG: ProtocolError = "too big mbulk count string";
/// `*` without a number, or with one out of range.
pub const ARRAY_LENGTH: ProtocolError = "invalid multibulk length";
/// Another byte in place of `$`.
pub const NOT_BULK: ProtocolError = "expected '$'";
/// `$` without a line end.
pub const BULK_HEADER_TOO_BIG: ProtocolError = "too big bulk count string";
/// `$` without a number, with one out of range, or with data that do not end there.
pub const BULK_LENGTH: ProtocolError = "invalid bulk length";
/// The request is longer than the server accepts.
pub const REQUEST_TOO_BIG: ProtocolError = "too big request";

/// What the bytes so far form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request of this many bytes. Its arguments are in [`Parser::arguments`]; there may be none.
    Request(usize),
    /// More bytes are needed.
    Incomplete,
}

/// Argument ranges that a connection keeps between requests.
const KEPT_SPANS: usize = 16;

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
        self.spans.shrink_to(KEPT_SPANS);
        self.missing = None;
        self.at = 0;
    }

    fn incomplete(&self, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        if bytes.len() > self.max_request {
            return Err(REQUEST_TOO_BIG);
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
        let Some(line) = line(bytes, MAX_HEADER, ARRAY_HEADER_TOO_BIG)? else {
            return Ok(false);
        };
        let count = number(&line[1..]).ok_or(ARRAY_LENGTH)?;
        if count > MAX_ARGUMENTS as i64 {
            return Err(ARRAY_LENGTH);
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
                MAX_LINE => Err(INLINE_TOO_BIG),
                _ => Ok(false),
            };
        };
        let mut start = 0;
        for word in bytes[..end].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.note(start, word.len())?;
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
            Some(_) => return Err(NOT_BULK),
        }
        let Some(line) = line(rest, MAX_HEADER, BULK_HEADER_TOO_BIG)? else {
            return Ok(false);
        };
        let length = number(&line[1..]).and_then(|length| usize::try_from(length).ok());
        let left = self.max_request.saturating_sub(self.at);
        let length = length.filter(|&length| length <= left);
        let (start, length) = (line.len() + 2, length.ok_or(BULK_LENGTH)?);
        let Some(end) = rest.get(start + length..start + length + 2) else {
            return Ok(false);
        };
        if end != b"\r\n" {
            return Err(BULK_LENGTH);
        }
        let start = self.at + start;
        self.at = start + length + 2;
        if self.at > self.max_request {
            return Err(REQUEST_TOO_BIG);
        }
        self.note(start, length)?;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Notes an argument.
    fn note(&mut self, start: usize, length: usize) -> Result<(), ProtocolError> {
        self.spans.try_reserve(1).map_err(|_| REQUEST_TOO_BIG)?;
        self.spans.push((start as u32, (start + length) as u32));
        Ok(())
    }

    /// Bytes that the ranges of arguments take, beyond those that every connection keeps.
    pub fn bytes(&self) -> usize {
        self.spans.capacity().saturating_sub(KEPT_SPANS) * size_of::<(u32, u32)>()
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
