//! The rows of the experiment: a program, its heap, and its stacks. The write-up's program in Go is
//! built from source.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::which;
use crate::engine::campaign::by_name;
use crate::names::choose;
use crate::peers;
use crate::peers::locate::{Places, Ready};
use crate::run;
use crate::work::tide::protocol::Sizes;
use crate::work::tide::stacks::StackKind;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its name on the command line and in the record.
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The write-up's program; `freed` runs the collector after "closed".
    Go { freed: bool },
    /// corosensei's coroutines under a peer.
    Coroutines {
        peer: &'static str,
        stacks: StackKind,
    },
}

const fn under(name: &'static str, peer: &'static str, stacks: StackKind) -> Engine {
    let kind = Kind::Coroutines { peer, stacks };
    Engine { name, kind }
}

const fn own(peer: &'static str) -> Engine {
    under(peer, peer, StackKind::Own)
}

const fn in_go(name: &'static str, freed: bool) -> Engine {
    let kind = Kind::Go { freed };
    Engine { name, kind }
}

/// All, in the order of the report.
pub const ALL: [Engine; 12] = [
    in_go("go", false),
    in_go("go-freed", true),
    own("glibc"),
    own("mimalloc3"),
    own("mimalloc2"),
    own("jemalloc"),
    own("snmalloc"),
    own("gperftools"),
    own("tcmalloc"),
    own("rpmalloc"),
    under("neap-heap", "neap", StackKind::Own),
    under("neap", "neap", StackKind::Neap),
];

/// The default engines.
const USUAL: [&str; 7] = [
    "go",
    "go-freed",
    "glibc",
    "mimalloc3",
    "jemalloc",
    "neap-heap",
    "neap",
];

/// The engines named in `only`, or the default ones if it is empty, in the order of the report.
///
/// # Errors
/// If a name is unknown.
pub fn select(only: &[String]) -> anyhow::Result<Vec<&'static Engine>> {
    let mut chosen = choose("engine", only, ALL.iter().collect(), |e| e.name)?;
    chosen.retain(|engine| !only.is_empty() || USUAL.contains(&engine.name));
    Ok(chosen)
}

by_name!(Engine);

/// An available engine.
pub struct Present {
    /// Its name.
    pub name: &'static str,
    start: Start,
}

enum Start {
    Go {
        program: PathBuf,
        version: String,
        freed: bool,
    },
    Worker {
        peer: Ready,
        stacks: StackKind,
    },
}

/// Prepares the engine.
///
/// # Errors
/// If its library or its compiler is not installed.
pub fn locate(engine: &Engine, places: &Places) -> anyhow::Result<Present> {
    let name = engine.name;
    let start = match engine.kind {
        Kind::Go { freed } => {
            let folder = places.peers.with_file_name("tide");
            let (program, version) = build_go(&folder)?;
            Start::Go {
                program,
                version,
                freed,
            }
        }
        Kind::Coroutines { peer, stacks } => {
            let peer = peers::locate::locate_name(peer, places)?;
            if stacks == StackKind::Neap {
                ensure_stacks(&peer.library)?;
            }
            Start::Worker { peer, stacks }
        }
    };
    Ok(Present { name, start })
}

/// Fails unless the library has Neap's stacks, by a name in its symbol table.
///
/// # Errors
/// If it has not, or cannot be read.
pub fn ensure_stacks(library: &Path) -> anyhow::Result<()> {
    const NAME: &[u8] = b"\0neap_stack_alloc\0";
    let bytes = std::fs::read(library)?;
    ensure!(
        bytes.windows(NAME.len()).any(|window| window == NAME),
        "{} has no neap_stack_alloc",
        library.display()
    );
    Ok(())
}

impl Present {
    /// Its version for the head of a record.
    pub fn version(&self) -> String {
        match &self.start {
            Start::Go { version, .. } => version.clone(),
            Start::Worker { peer, .. } => peer.version.clone(),
        }
    }

    /// The command of a run's process.
    ///
    /// # Errors
    /// If this program's own path cannot be read.
    pub fn command(&self, sizes: &Sizes) -> anyhow::Result<Command> {
        match &self.start {
            Start::Go { program, freed, .. } => Ok(go_command(program, *freed, sizes)),
            Start::Worker { peer, stacks } => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["worker", "tide", StackKind::name(*stacks)]);
                command
                    .args(sizes.arguments())
                    .env("LD_PRELOAD", &peer.library);
                Ok(command)
            }
        }
    }

    /// Fails unless the process that greeted with `line` uses this engine's heap.
    ///
    /// # Errors
    /// If it uses another.
    pub fn ensure_heap(&self, line: &str) -> anyhow::Result<()> {
        match &self.start {
            Start::Go { version, .. } => {
                let told = run::needed(line, "heap")?;
                ensure!(
                    told == version,
                    "the program is of {told}, not of {version}"
                );
                Ok(())
            }
            Start::Worker { peer, .. } => run::ensure_heap(line, &peer.library),
        }
    }
}

fn go_command(program: &Path, freed: bool, sizes: &Sizes) -> Command {
    let mut command = Command::new(program);
    command.args([sizes.heap_bytes.to_string(), sizes.coroutines.to_string()]);
    command.arg(if freed { "freed" } else { "plain" });
    // Measure the runtime's defaults.
    for name in ["GOGC", "GOMEMLIMIT", "GODEBUG", "GOMAXPROCS"] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
impl Present {
    /// Any program in place of the write-up's.
    pub fn of_program(program: &str) -> Present {
        let start = Start::Go {
            program: program.into(),
            version: String::new(),
            freed: false,
        };
        Present { name: "go", start }
    }
}

const SOURCE: &str = include_str!("../../tide/tide.go");

/// The program, and the version of Go that built it.
fn build_go(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    let go = which("go").context("go is not installed")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
    let (source, program) = (folder.join("tide.go"), folder.join("tide-go"));
    std::fs::write(&source, SOURCE).with_context(|| format!("cannot write {source:?}"))?;
    let mut command = Command::new(&go);
    // Nothing is downloaded: the source needs only the standard library.
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off");
    command
        .args(["build", "-o"])
        .args([&program, &source])
        .current_dir(folder);
    let output = command.output().context("cannot run go")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "go build: {}",
        errors.lines().last().unwrap_or("failed")
    );
    Ok((program, go_version(&go)?))
}

/// Such as `go1.26.8`.
fn go_version(go: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(go);
    let output = command
        .env("GOTOOLCHAIN", "local")
        .args(["env", "GOVERSION"])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_engine_is_one_and_unknown_ones_are_refused() {
        let usual = select(&[]).unwrap();
        assert_eq!(usual.len(), USUAL.len());
        let named = select(&["neap".into(), "glibc".into()]).unwrap();
        assert_eq!([named[0].name, named[1].name], ["glibc", "neap"]);
        assert!(select(&["dlmalloc".into()]).is_err());
    }

    #[test]
    fn every_peer_has_a_row() {
        let has_row = |peer: &peers::Peer| ALL.iter().any(|engine| engine.name == peer.name);
        assert!(peers::all().all(has_row));
    }

    #[test]
    fn a_library_without_stacks_is_refused() {
        let libc = crate::work::identity::own_heap().unwrap();
        let told = ensure_stacks(&libc).unwrap_err().to_string();
        assert!(told.contains("has no neap_stack_alloc"), "{told}");
    }

    #[test]
    fn a_worker_of_another_heap_is_refused() {
        let places = Places::new(None).unwrap();
        let glibc = locate(select(&["glibc".into()]).unwrap()[0], &places).unwrap();
        let own = crate::work::identity::own_heap().unwrap();
        assert!(
            glibc
                .ensure_heap(&format!("heap={}", own.display()))
                .is_ok()
        );
        assert!(glibc.ensure_heap("heap=/nowhere/libother.so").is_err());
    }
}
