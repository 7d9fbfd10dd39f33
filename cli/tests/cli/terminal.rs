//! A pseudo-terminal of the tests, with a program in it.

use crate::fake::Fake;
use crate::stage::neap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

pub struct Terminal {
    master: File,
    slave: File,
    child: Child,
    /// Everything that the program has written.
    pub seen: String,
}

impl Terminal {
    pub fn start(mut command: Command) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the pointers lead to places for the two numbers and to a size; null means none.
        let rc = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(rc, 0);
        // SAFETY: both were just opened, and only these values own them.
        let (master, slave) =
            unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        for end in [&master, &slave] {
            // The program must not hold the other end of its own terminal. SAFETY: plain numbers.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        let (master, slave) = (File::from(master), File::from(slave));
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .spawn()
            .unwrap();
        Terminal {
            master,
            slave,
            child,
            seen: String::new(),
        }
    }

    /// A shell that controls jobs. Its prompt is [`PROMPT`].
    pub fn shell() -> Terminal {
        let mut shell = Command::new("sh");
        shell.arg("-i").env("PS1", PROMPT).env_remove("ENV");
        // SAFETY: both calls take plain numbers, and are safe between fork and exec.
        unsafe {
            shell.pre_exec(|| {
                libc::setsid();
                libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        Terminal::start(shell)
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes plain numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits until the program has stopped.
    pub fn wait_for_stop(&self) {
        let (start, mut status) = (Instant::now(), 0);
        let flags = libc::WUNTRACED | libc::WNOHANG;
        // SAFETY: `status` is a place for one int.
        while unsafe { libc::waitpid(self.pid(), &raw mut status, flags) } == 0 {
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(libc::WIFSTOPPED(status), "{status:x}");
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the pointer leads to a size.
        let rc = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(rc, 0);
    }

    pub fn mode(&self) -> Mode {
        mode(&self.slave)
    }

    /// Sets the mode, as a shell does when a program stops.
    pub fn set_mode(&self, mode: &Mode) {
        let slave = self.slave.as_raw_fd();
        // SAFETY: the pointer leads to a mode that the kernel filled in.
        let rc = unsafe { libc::tcsetattr(slave, libc::TCSANOW, &raw const mode.0) };
        assert_eq!(rc, 0);
    }

    /// Writes until the terminal takes no more, as when its window does not read.
    pub fn fill(&self) {
        let path = format!("/proc/self/fd/{}", self.slave.as_raw_fd());
        let mut options = File::options();
        options
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let mut slave = options.open(path).unwrap();
        while slave.write(&[b'.'; 256]).is_ok() {}
    }

    /// Reads until a text is on the screen.
    pub fn wait_for(&mut self, text: &str) {
        self.wait(text, |terminal| screen(&terminal.seen).contains(text));
    }

    /// Reads until a text has been written.
    pub fn wait_for_bytes(&mut self, text: &str) {
        self.wait(text, |terminal| terminal.seen.contains(text));
    }

    /// Reads until a text has been written after another, which has been.
    pub fn wait_for_bytes_after(&mut self, first: &str, text: &str) {
        self.wait(text, |terminal| {
            let (_, after) = terminal.seen.rsplit_once(first).expect("it was written");
            after.contains(text)
        });
    }

    fn wait(&mut self, text: &str, is_there: impl Fn(&Terminal) -> bool) {
        let start = Instant::now();
        while !is_there(self) {
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "no {text:?} on:\n{}", screen(&self.seen));
            self.read();
        }
    }

    /// Reads the available bytes, or waits a little.
    fn read(&mut self) {
        let mut ready = libc::pollfd {
            fd: self.master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer leads to one entry.
        if unsafe { libc::poll(&raw mut ready, 1, 100) } > 0 {
            let mut bytes = [0; 65536];
            let count = self.master.read(&mut bytes).unwrap();
            self.seen += &String::from_utf8_lossy(&bytes[..count]);
        }
    }

    /// Closes the terminal, as when its window is closed, and waits for the program's end.
    pub fn hang_up(mut self) -> ExitStatus {
        let nothing = || File::open("/dev/null").unwrap();
        drop(std::mem::replace(&mut self.slave, nothing()));
        drop(std::mem::replace(&mut self.master, nothing()));
        self.wait_for_end()
    }

    /// Waits for the program's end without reading what it writes.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and checks that the terminal's mode is restored.
    pub fn end(mut self, before: &Mode) -> (ExitStatus, String) {
        self.wait_for_bytes(LEFT);
        let status = self.child.wait().unwrap();
        self.read();
        assert!(
            *before == mode(&self.slave),
            "the terminal was not given back"
        );
        (status, std::mem::take(&mut self.seen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The screen of a terminal that received this text. It understands only cursor movements and
/// letters.
fn screen(text: &str) -> String {
    let mut cells = vec![vec![' '; usize::from(COLUMNS)]; usize::from(ROWS)];
    let (mut row, mut column) = (0, 0);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.next() == Some('[') => {
                let (numbers, last) = sequence(&mut letters);
                match last {
                    'H' => {
                        row = numbers.first().map_or(0, |number| number.saturating_sub(1));
                        column = numbers.get(1).map_or(0, |number| number.saturating_sub(1));
                    }
                    'J' => cells.iter_mut().for_each(|line| line.fill(' ')),
                    'K' => {
                        let line = cells.get_mut(row).and_then(|line| line.get_mut(column..));
                        line.into_iter().for_each(|rest| rest.fill(' '));
                    }
                    _ => {}
                }
            }
            '\x1b' => {}
            '\r' => column = 0,
            '\n' => row += 1,
            _ => {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    let lines = cells.iter().map(|line| line.iter().collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

/// The numbers and the last letter of a control sequence.
fn sequence(letters: &mut std::str::Chars<'_>) -> (Vec<usize>, char) {
    let mut text = String::new();
    for letter in letters {
        if letter.is_ascii_alphabetic() {
            let numbers = text.split(';').filter_map(|word| word.parse().ok());
            return (numbers.collect(), letter);
        }
        text.push(letter);
    }
    (Vec::new(), ' ')
}

/// Enters the alternate screen.
pub const ENTERED: &str = "\x1b[?1049h";
/// Leaves the alternate screen.
pub const LEFT: &str = "\x1b[?1049l";
/// The prompt of [`Terminal::shell`].
pub const PROMPT: &str = "ready> ";

pub struct Mode(libc::termios);

impl PartialEq for Mode {
    fn eq(&self, other: &Mode) -> bool {
        let flags = |mode: &Mode| (mode.0.c_iflag, mode.0.c_oflag, mode.0.c_lflag);
        flags(self) == flags(other)
    }
}

fn mode(terminal: &File) -> Mode {
    let mut mode = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the call fills what the pointer leads to if it returns 0.
    unsafe {
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), mode.as_mut_ptr()), 0);
        Mode(mode.assume_init())
    }
}

/// The mode of an unchanged terminal.
pub fn fresh_mode() -> Mode {
    let mut command = Command::new("true");
    command.env_clear();
    let terminal = Terminal::start(command);
    mode(&terminal.slave)
}

/// `neap top` on a process.
pub fn top(fake: &Fake) -> Command {
    let mut command = neap();
    command.args(["top", "--interval=50ms", &fake.pid().to_string()]);
    command
}
