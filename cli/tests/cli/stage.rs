//! The tests' environment: the command, a stand-in library, small programs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The command as cargo built it, beside the real library.
pub fn neap() -> Command {
    clean(Path::new(env!("CARGO_BIN_EXE_neap")))
}

/// A command without the test environment's variables for Neap.
pub fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"NEAP_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// A directory on a file system that allows execution.
pub fn room() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A directory in which every user can execute files, and whose path needs no quotes. It does not
/// depend on the clone's folder.
pub fn plain_room() -> TempDir {
    let parents = [std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    let is_plain = |path: &&PathBuf| !path.to_string_lossy().contains([' ', ':', '$']);
    let room = parents.iter().filter(is_plain).find_map(|parent| {
        let room = tempfile::tempdir_in(parent).ok()?;
        executable(room.path(), 0o755);
        copy_program("/bin/true", &room.path().join("true"));
        let mut probe = Command::new(room.path().join("true"));
        // Root can execute files in any directory, so another user must test it.
        let probe = if is_root() { probe.uid(1) } else { &mut probe };
        probe
            .status()
            .is_ok_and(|status| status.success())
            .then_some(room)
    });
    room.expect("a directory that every user can search, such as /tmp")
}

/// Copies a program to `place`. `cp` does it: if this process did, a child that another thread
/// forks at that moment would hold the copy open for writing, and the kernel would not execute it.
pub fn copy_program(program: &str, place: &Path) {
    let mut command = Command::new("cp");
    assert!(
        command
            .args(["-p", program])
            .arg(place)
            .status()
            .unwrap()
            .success()
    );
}

/// A copy of the command, with the stand-in library next to it.
pub struct Stage {
    room: TempDir,
    bin: PathBuf,
}

impl Stage {
    pub fn new() -> Self {
        Self::named("bin")
    }

    /// In a directory with this name.
    pub fn named(name: &str) -> Self {
        Self::within(room(), name)
    }

    /// Like [`Stage::named`], in a [`plain_room`].
    pub fn plain(name: &str) -> Self {
        Self::within(plain_room(), name)
    }

    fn within(room: TempDir, name: &str) -> Self {
        let bin = room.path().join(name);
        fs::create_dir(&bin).unwrap();
        copy_program(env!("CARGO_BIN_EXE_neap"), &bin.join("neap"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/standin.c");
        compile(["-shared", "-fPIC", source, "-o"], &bin.join("libneap.so"));
        Self { room, bin }
    }

    pub fn neap(&self) -> Command {
        clean(&self.bin.join("neap"))
    }

    pub fn library(&self) -> PathBuf {
        self.bin.join("libneap.so").canonicalize().unwrap()
    }

    pub fn path(&self) -> &Path {
        self.room.path()
    }
}

/// Calls the C compiler with `arguments`, followed by the output file's name.
pub fn compile<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, into: &Path) {
    let status = Command::new("cc")
        .args(arguments)
        .arg(into)
        .status()
        .unwrap();
    assert!(status.success(), "the C compiler failed");
}

/// An executable file with this text.
pub fn script(file: PathBuf, text: &str) -> PathBuf {
    fs::write(&file, text).unwrap();
    executable(&file, 0o755);
    file
}

pub fn executable(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// The output of a program that must succeed.
pub fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        said(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A program's standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `unshare`, which runs a program as root in its own mount namespace. `None` if this user may not
/// create one.
pub fn with_own_mounts() -> Option<Command> {
    let ways = [&["--mount"][..], &["--map-root-user", "--mount"]];
    ways.into_iter().find_map(|flags| {
        let command = || {
            let mut command = clean(Path::new("unshare"));
            command.args(flags);
            command
        };
        let mut probe = command();
        probe.args(["mount", "-t", "tmpfs", "none", "/tmp"]);
        let is_allowed = probe.output().is_ok_and(|output| output.status.success());
        is_allowed.then(command)
    })
}

pub fn is_root() -> bool {
    // SAFETY: geteuid only reads the credentials of this process.
    unsafe { libc::geteuid() == 0 }
}
