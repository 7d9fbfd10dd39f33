//! Why a program cannot run under Neap.

use super::elf::Elf;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, shown};
use std::ffi::OsString;
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
        match self {
            Self::NotFound(name) => write!(out, "{}: no such program{}", shown(name), hint(name)),
            Self::NoInterpreter {
                script,
                interpreter,
            } => {
                let (script, interpreter) = (shown(script), shown(interpreter));
                write!(
                    out,
                    "{script}: its interpreter {interpreter} does not exist; correct the first line"
                )
            }
            Self::Directory(file) => write!(out, "{}: is a directory, not a program", shown(file)),
            Self::NotPermitted(file) => {
                write!(
                    out,
                    "{}: not executable by this user; try chmod +x",
                    shown(file)
                )
            }
            Self::NotAProgram(file) => {
                write!(
                    out,
                    "{}: neither a program nor a script of this system",
                    shown(file)
                )
            }
            Self::Static(file) => write!(
                out,
                "{}: statically linked, so no library can be preloaded; link it dynamically, or \
                 build Neap into it",
                shown(file)
            ),
            Self::OtherLoader { file, loader } => write!(
                out,
                "{}: uses the loader {} of another C library; libneap.so is built for glibc",
                shown(file),
                shown(loader)
            ),
            Self::OtherMachine {
                file,
                program,
                library,
            } => write!(
                out,
                "{}: built for {program}, but the library for {library}; use the neap of that \
                 machine",
                shown(file)
            ),
            Self::Privileged { file, how } => write!(
                out,
                "{}: {how}, so the loader ignores preloads; run it as the user whose rights it \
                 takes",
                shown(file)
            ),
            Self::TooDeep(file) => {
                write!(
                    out,
                    "{}: its interpreters are scripts without end",
                    shown(file)
                )
            }
            Self::OpaqueEnv(file) => write!(
                out,
                "{}: its first line calls env with options, so its interpreter would be a child; \
                 name the interpreter yourself, or leave --no-children out",
                shown(file)
            ),
            Self::Unreadable { file, error } => write!(out, "{}: {error}", shown(file)),
        }
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
