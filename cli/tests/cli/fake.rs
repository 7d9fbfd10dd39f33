//! Processes with a well-formed status page that the tests control.

use crate::stage::{copy_program, neap};
use bytemuck::bytes_of;
use neap_shared::ledger::Ledger;
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{self, Control, Head, Served};
use rustix::fs::{MemfdFlags, SealFlags};
use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A sleeping process whose standard input is a memory file.
pub struct Fake {
    file: File,
    child: Child,
}

impl Fake {
    /// With a sealed memory file of zeros.
    pub fn zeros(name: &CStr, bytes: usize) -> Fake {
        let file = memory_file(name, bytes);
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        Fake::holding(file)
    }

    /// With any file.
    pub fn holding(file: File) -> Fake {
        Fake::run(Command::new("sleep"), file)
    }

    /// With a status page with a valid head, as a process of another user. Requires root.
    pub fn of_user(user: u32) -> Fake {
        let file = memory_file(status_page::NAME, status_page::BYTES);
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        let mut command = Command::new("sleep");
        command.uid(user);
        let fake = Fake::run(command, file);
        fake.write(status_page::HEAD_AT, bytes_of(&fake.head()));
        fake.write(status_page::FIGURES_AT + 8, bytes_of(&figures()));
        fake.write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        fake
    }

    /// A sleeping process with figures that calls itself python3, with this `PYTHONMALLOC`.
    pub fn of_python(setting: Option<&str>) -> Fake {
        let file = memory_file(status_page::NAME, status_page::BYTES);
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        let room = tempfile::tempdir().unwrap();
        let python = room.path().join("python3");
        copy_program("/bin/sleep", &python);
        let mut command = Command::new(&python);
        command.env_remove("PYTHONMALLOC");
        command.envs(setting.map(|setting| ("PYTHONMALLOC", setting)));
        let fake = Fake::run(command, file);
        fake.write(status_page::HEAD_AT, bytes_of(&fake.head()));
        fake.write(status_page::FIGURES_AT + 8, bytes_of(&figures()));
        fake.write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        fake
    }

    fn run(mut command: Command, file: File) -> Fake {
        let child = command
            .arg("1000")
            .stdin(file.try_clone().unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Before it sleeps it still grows.
        while !sleeps(child.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        Fake { file, child }
    }

    /// With a status page with a valid head and nothing else.
    pub fn status_page() -> Fake {
        let fake = Fake::zeros(status_page::NAME, status_page::BYTES);
        fake.write(status_page::HEAD_AT, bytes_of(&fake.head()));
        fake
    }

    /// With a status page with figures.
    pub fn with_figures(figures: &Snapshot) -> Fake {
        let fake = Fake::status_page();
        fake.write(status_page::FIGURES_AT + 8, bytes_of(figures));
        fake.write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        fake
    }

    /// The valid head.
    pub fn head(&self) -> Head {
        Head {
            magic: status_page::MAGIC,
            version: status_page::VERSION,
            bytes: status_page::BYTES as u64,
            pid: u64::from(self.pid()),
            page_bytes: 4096,
            frontend: 1,
            made_ms: 1,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The value of its metric of this name in a page. Labels of a container or a service may
    /// follow the program's.
    pub fn metric<'a>(&self, page: &'a str, name: &str) -> Option<&'a str> {
        let start = format!("neap_{name}{{pid=\"{}\",program=\"sleep\"", self.pid());
        let line = page.lines().find(|line| line.starts_with(&start))?;
        line.rsplit_once("} ").map(|(_, value)| value)
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).unwrap();
    }

    /// The pending requests.
    pub fn control(&self) -> Control {
        let mut control = Control::default();
        let bytes = bytemuck::bytes_of_mut(&mut control);
        self.file
            .read_exact_at(bytes, status_page::CONTROL_AT as u64)
            .unwrap();
        control
    }

    /// Runs `neap VERB PID ...` while answering all requests.
    pub fn answering(&self, arguments: &[&str]) -> Output {
        self.answering_with(5 << 20, arguments)
    }

    /// Like [`Fake::answering`]; a purge reports `purged_bytes`.
    pub fn answering_with(&self, purged_bytes: u64, arguments: &[&str]) -> Output {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.serve_with(purged_bytes);
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let output = self.neap(arguments);
            over.store(true, Ordering::Relaxed);
            output
        })
    }

    /// Marks all requests as served.
    pub fn serve(&self) {
        self.serve_with(5 << 20);
    }

    fn serve_with(&self, purged_bytes: u64) {
        let control = self.control();
        let served = Served {
            ask: control.ask,
            purge: control.purge,
            purged_bytes,
            sample: control.sample,
            sample_rate: control.sample_rate,
            guard: control.guard,
            guard_interval: control.guard_interval,
            written: 1,
            cost_ns: 2_000,
            ..Served::default()
        };
        self.write(status_page::SERVED_AT, bytes_of(&served));
    }

    /// Runs `neap VERB PID ...`.
    pub fn neap(&self, arguments: &[&str]) -> Output {
        let (verb, rest) = arguments.split_first().unwrap();
        let mut command = neap();
        command.arg(verb).arg(self.pid().to_string()).args(rest);
        command.output().unwrap()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A test may have killed it before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process waits: its state in `/proc/PID/stat`, which follows the name in parentheses.
fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// An unsealed memory file of zeros.
pub fn memory_file(name: &CStr, bytes: usize) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(name, flags).unwrap());
    file.set_len(bytes as u64).unwrap();
    file
}

/// Figures with a ledger that adds up.
pub fn figures() -> Snapshot {
    let ledger = Ledger {
        requested: 10 << 20,
        rounding: 1 << 20,
        untouched: 3 << 20,
        metadata: 64 << 10,
        resident: (8 << 20) + (64 << 10),
        asked_kernel: 1,
        ..Ledger::default()
    };
    let mut figures = Snapshot {
        ledger,
        threads: 3,
        minor_faults: 1234,
        zero_spared: 7 << 20,
        ..Snapshot::default()
    };
    figures.classes[2] = neap_shared::stats::ClassFigures {
        bytes: 48,
        slabs: 2,
        blocks: 100,
        free: 30,
        cached: 20,
        refills: 4,
        ..Default::default()
    };
    figures
}
