//! Why a program cannot run under Neap.

use super::elf::Elf;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, shown};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why one file of a chain cannot run under Neap.
#[derive(Debug)]
pub enum Obstacle {
    /// There is no file of that name, on `PATH` or at that path.
    NotFound(OsString),
    /// A script's first line names an interpreter that does not exist.
    NoInterpreter {
        script: PathBuf,
        interpreter: PathBuf,
    },
    /// It is a directory.
    Directory(PathBuf),
    /// This user may not execute the file.
    NotPermitted(PathBuf),
    /// It is neither a program nor a script.
    NotAProgram(PathBuf),
    /// It is statically linked: no dynamic loader can preload a library.
    Static(PathBuf),
    /// Its loader belongs to another C library, for which this library is not built.
    OtherLoader { file: PathBuf, loader: PathBuf },
    /// It is built for another processor or word size than the library.
    OtherMachine {
        file: PathBuf,
        program: Elf,
        library: Elf,
    },
    /// The loader ignores preloads for programs that gain privileges.
    Privileged { file: PathBuf, how: Gain },
    /// Each script's interpreter is itself a script.
    TooDeep(PathBuf),
    /// It is `env` with options that Neap would have to parse and does not.
    OpaqueEnv(PathBuf),
    /// The file could not be examined.
    Unreadable { file: PathBuf, error: io::Error },
}

/// How a program gains privileges by being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The set-user-ID bit, of another user.
    User,
    /// The set-group-ID bit, of another group.
    Group,
    /// Capabilities stored with the file.
    Capabilities,
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        let code = match obstacle {
            Obstacle::NotFound(_) => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        Self::with_code(code, obstacle.to_string())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, why): (&OsStr, Cow<str>) = match self {
            Self::NotFound(name) => (name, format!("no such program{}", hint(name)).into()),
            Self::NoInterpreter {
                script,
                interpreter,
            } => {
                let interpreter = shown(interpreter);
                let why =
                    format!("its interpreter {interpreter} does not exist; correct the first line");
                (script.as_ref(), why.into())
            }
            Self::Directory(file) => (file.as_ref(), "is a directory, not a program".into()),
            Self::NotPermitted(file) => (
                file.as_ref(),
                "not executable by this user; try chmod +x".into(),
            ),
            Self::NotAProgram(file) => (
                file.as_ref(),
                "neither a program nor a script of this system".into(),
            ),
            Self::Static(file) => {
                let why = "statically linked, so no library can be preloaded; link it \
                           dynamically, or build Neap into it";
                (file.as_ref(), why.into())
            }
            Self::OtherLoader { file, loader } => {
                let loader = shown(loader);
                let why = format!(
                    "uses the loader {loader} of another C library; this libneap.so is built for \
                     glibc, the one of ci/dist.sh for musl as well"
                );
                (file.as_ref(), why.into())
            }
            Self::OtherMachine {
                file,
                program,
                library,
            } => {
                let why = format!(
                    "built for {program}, but the library for {library}; use the neap of that \
                     machine"
                );
                (file.as_ref(), why.into())
            }
            Self::Privileged { file, how } => {
                let why = format!(
                    "{how}, so the loader ignores preloads; run it as the user whose rights it \
                     takes"
                );
                (file.as_ref(), why.into())
            }
            Self::TooDeep(file) => (
                file.as_ref(),
                "its interpreters are scripts without end".into(),
            ),
            Self::OpaqueEnv(file) => {
                let why = "its first line calls env with options, so its interpreter would be a \
                           child; name the interpreter yourself, or leave --no-children out";
                (file.as_ref(), why.into())
            }
            Self::Unreadable { file, error } => (file.as_ref(), error.to_string().into()),
        };
        write!(out, "{}: {why}", shown(file))
    }
}

fn hint(name: &OsString) -> &'static str {
    match name.as_encoded_bytes().contains(&b'/') {
        true => "",
        false => " on PATH",
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::User => "set-user-ID",
            Self::Group => "set-group-ID",
            Self::Capabilities => "has file capabilities",
        })
    }
}
