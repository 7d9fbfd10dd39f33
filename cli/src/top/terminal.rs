//! The terminal: its mode, its size and its keys.

use super::canvas::{Colours, Line, sequences};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use rustix::termios::{tcflush, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Once, OnceLock};
use std::time::Duration;

/// Enters the alternate screen, hides the cursor and switches the wrapping of long lines off.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`ENTER`].
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The size of a terminal that does not tell its own.
const USUAL: (u16, u16) = (24, 80);
/// How long the rest of a key's sequence may take.
const REST: Duration = Duration::from_millis(25);

/// The terminal's own mode, once [`Terminal::take`] has read it.
static OWN: OnceLock<Termios> = OnceLock::new();
/// Whether the terminal may have another mode than its own, or show the alternate screen.
static HELD: AtomicBool = AtomicBool::new(false);
/// Whether SIGTSTP has come.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// Whether SIGCONT has come: a shell may have used the terminal.
static CONTINUED: AtomicBool = AtomicBool::new(false);

/// A terminal in raw mode on its alternate screen. Dropping it restores the terminal.
pub struct Terminal {
    colours: Colours,
    size: (u16, u16),
    /// The lines on the screen.
    shown: Vec<String>,
    /// Bytes read and not yet understood.
    input: Vec<u8>,
}

impl Terminal {
    /// Takes the terminal over.
    pub fn take() -> io::Result<Terminal> {
        let own = tcgetattr(io::stdin())?;
        OWN.get_or_init(|| own);
        restore_after_panic();
        handle(libc::SIGTSTP, note_stop);
        handle(libc::SIGCONT, note_continue);
        let mut terminal = Terminal {
            colours: if std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
                Colours::Shown
            } else {
                Colours::Refused
            },
            size: (0, 0),
            shown: Vec::new(),
            input: Vec::new(),
        };
        terminal.enter()?;
        Ok(terminal)
    }

    /// Sets the mode and the screen. A process in the background stops here until it is continued
    /// in the foreground.
    fn enter(&mut self) -> io::Result<()> {
        let mut raw = own()?.clone();
        raw.make_raw();
        HELD.store(true, Relaxed);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // The screen is empty.
        self.size = (0, 0);
        send(ENTER)
    }

    /// Stops this process if SIGTSTP has come. The next [`Terminal::draw`] takes the terminal
    /// again.
    pub fn heed_stop(&mut self) {
        if STOPPING.swap(false, Relaxed) {
            restore();
            // SAFETY: plain numbers.
            unsafe {
                libc::signal(libc::SIGTSTP, libc::SIG_DFL);
                libc::raise(libc::SIGTSTP);
            }
            handle(libc::SIGTSTP, note_stop);
            // Where no shell could continue a process, the kernel does not stop it.
            CONTINUED.store(true, Relaxed);
        }
    }

    /// Draws a screen. Only lines that changed are written.
    pub fn draw(&mut self, paint: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        if CONTINUED.swap(false, Relaxed) {
            self.enter()?;
        }
        let size = size();
        let mut text = String::new();
        if size != self.size {
            self.size = size;
            self.shown.clear();
            text.push_str("\x1b[2J");
        }
        let [height, width] = [size.0, size.1].map(usize::from);
        let lines = paint(height, width).into_iter();
        let lines: Vec<String> = lines
            .map(|line| sequences(line, width, self.colours))
            .collect();
        self.shown.resize(lines.len(), String::new());
        for (index, (line, shown)) in lines.iter().zip(&self.shown).enumerate() {
            if line != shown {
                // Erased first: after a full line, the cursor stands on its last letter.
                text += &format!("\x1b[{};1H\x1b[K{line}", index + 1);
            }
        }
        self.shown = lines;
        send(&text)
    }

    /// The next key that has arrived.
    pub fn key(&mut self) -> io::Result<Option<Key>> {
        if self.input.is_empty() && is_ready(Duration::ZERO) {
            self.read()?;
        }
        while is_cut(&self.input) && is_ready(REST) {
            if !self.read()? {
                break;
            }
        }
        if self.input.is_empty() {
            return Ok(None);
        }
        let (key, length) = first(&self.input);
        self.input.drain(..length);
        if key == Key::Control(b'z') {
            // In its own mode, the terminal does this.
            // SAFETY: plain numbers; 0 is this process's group.
            unsafe { libc::kill(0, libc::SIGTSTP) };
        }
        Ok(Some(key))
    }

    /// Reads what has arrived. False at the end of the input.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 256];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut bytes))?;
        self.input.extend_from_slice(&bytes[..count]);
        Ok(count > 0)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

extern "C" fn note_stop(_: i32) {
    STOPPING.store(true, Relaxed);
}

extern "C" fn note_continue(_: i32) {
    CONTINUED.store(true, Relaxed);
}

/// Has a handler called for a signal.
pub fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: the handlers of this folder use atomics and calls that a signal handler may make.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

fn own() -> io::Result<&'static Termios> {
    OWN.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Gives the terminal back. A terminal that is gone needs nothing.
fn restore() {
    if HELD.load(Relaxed) {
        restore_mode();
        let _ = send(LEAVE);
        HELD.store(false, Relaxed);
    }
}

/// Restores the mode, unless a shell has put this process in the background: then the shell has set
/// a mode, and the kernel would stop a process that changes it.
fn restore_mode() {
    let ours = tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp());
    if let (true, Ok(own)) = (ours, own()) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, own);
    }
}

/// Gives the terminal back in a signal handler, without waiting for it: what it has not taken by
/// now is lost.
pub fn abandon() {
    if HELD.load(Relaxed) {
        restore_mode();
        let _ = tcflush(io::stdout(), QueueSelector::OFlush);
        // A new description, because other processes share the flags of this one.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        if let Ok(terminal) = open(c"/proc/self/fd/1", flags, Mode::empty()) {
            let _ = rustix::io::write(terminal, LEAVE.as_bytes());
        }
    }
}

/// The message of a panic goes to the restored terminal, also where a panic aborts.
fn restore_after_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
}

fn send(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Lines and columns.
fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => USUAL,
    }
}

/// Waits until a byte can be read.
fn is_ready(patience: Duration) -> bool {
    polled(patience).contains(PollFlags::IN)
}

/// Waits until the terminal has input or `patience` is over. True if it has hung up.
pub fn is_gone(patience: Duration) -> bool {
    polled(patience).intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

fn polled(patience: Duration) -> PollFlags {
    let input = io::stdin();
    let mut terminal = [PollFd::new(&input, PollFlags::IN)];
    // After a signal, nothing is ready. A time that is too long has no end.
    let _ = poll(&mut terminal, Timespec::try_from(patience).ok().as_ref());
    terminal[0].revents()
}

/// A key that `neap top` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter as typed.
    Letter(u8),
    /// Ctrl with a letter.
    Control(u8),
    Escape,
    Enter,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    /// F1.
    Help,
    /// Any other.
    Other,
}

/// Whether these bytes begin a sequence whose end has not arrived.
fn is_cut(input: &[u8]) -> bool {
    match input {
        [0x1b] | [0x1b, b'O'] => true,
        [0x1b, b'[', rest @ ..] => ending(rest).is_none(),
        _ => false,
    }
}

/// The index of the byte that ends a control sequence.
fn ending(rest: &[u8]) -> Option<usize> {
    // The Linux console sends F1 as ESC [ [ A.
    let skipped = usize::from(rest.first() == Some(&b'['));
    let mut bytes = rest.iter().skip(skipped);
    let at = bytes.position(|byte| !(0x20..0x40).contains(byte));
    at.map(|at| at + skipped)
}

/// The first key of a text that is not empty, and its length in bytes.
fn first(input: &[u8]) -> (Key, usize) {
    match input {
        [0x1b, b'[', rest @ ..] => match ending(rest) {
            Some(end) => (sequence(&rest[..end], rest[end]), end + 3),
            None => (Key::Escape, input.len()),
        },
        [0x1b, b'O', last, ..] => (sequence(b"", *last), 3),
        [0x1b, ..] => (Key::Escape, 1),
        [b'\r' | b'\n', ..] => (Key::Enter, 1),
        [0x7f | 0x08, ..] => (Key::Backspace, 1),
        [byte @ 0x01..=0x1a, ..] => (Key::Control(byte | 0x60), 1),
        [byte @ 0x20..=0x7e, ..] => (Key::Letter(*byte), 1),
        _ => (Key::Other, 1),
    }
}

/// The key of a control sequence by its parameters and its last byte.
fn sequence(parameters: &[u8], last: u8) -> Key {
    let number = parameters.split(|byte| *byte == b';').next();
    match (last, number.unwrap_or_default()) {
        (b'A', b"[") => Key::Help,
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'P', _) | (b'~', b"11") => Key::Help,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(mut input: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        while !input.is_empty() {
            let (key, length) = first(input);
            keys.push(key);
            input = &input[length..];
        }
        keys
    }

    #[test]
    fn sequences_are_keys() {
        use Key::*;
        let all = [
            (
                &b"q\x03\r\x7f\x1b"[..],
                &[Letter(b'q'), Control(b'c'), Enter, Backspace, Escape][..],
            ),
            (b"\x1b[A\x1bOB\x1b[1;5C\x1b[D", &[Up, Down, Right, Left]),
            (b"\x1b[5~\x1b[6~", &[PageUp, PageDown]),
            (b"\x1bOP\x1b[11~\x1b[[A", &[Help, Help, Help]),
            (
                b"\x1b[3~\x1b[<0;1;1Mp\xc3",
                &[Other, Other, Letter(b'p'), Other],
            ),
            (b"\x1b\x1b[A", &[Escape, Up]),
        ];
        for (input, expected) in all {
            assert_eq!(keys(input), expected, "{input:?}");
        }
    }

    #[test]
    fn a_sequence_is_awaited_to_its_end() {
        for cut in [&b"\x1b"[..], b"\x1b[", b"\x1b[1;", b"\x1bO", b"\x1b[["] {
            assert!(is_cut(cut), "{cut:?}");
        }
        for whole in [
            &b""[..],
            b"q",
            b"\x1b[A",
            b"\x1bOP",
            b"\x1b\x1b",
            b"\x1b[5~",
        ] {
            assert!(!is_cut(whole), "{whole:?}");
        }
    }
}
