//! The files that one command line executes in turn: a program found by name as `execvp` finds it,
//! a script whose first line is read as the kernel reads it, `env`, the interpreter.

use super::elf::Elf;
use super::obstacle::{Obstacle, Why, gain};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

choice! {
    /// Why a file is executed.
    pub enum Role {
        /// The command line names it.
        Named = "named",
        /// The first line of a script names it to the kernel.
        Interpreter = "interpreter",
        /// The first line of a script names it to `env`.
        ByEnv = "found by env",
        /// It runs a text without such a line.
        Shell = "shell",
    }
}

/// One executed file.
#[derive(Debug)]
pub struct Link {
    /// The file.
    pub file: PathBuf,
    /// Its `argv`.
    pub arguments: Vec<OsString>,
    /// The argument among them that a script's first line gives its interpreter.
    pub argument: Option<OsString>,
    /// Why it is executed.
    pub role: Role,
    /// Its headers, if it has any and they can be read.
    pub elf: Option<Elf>,
}

impl Link {
    /// A file whose headers were not read yet.
    pub fn new(file: PathBuf, arguments: Vec<OsString>, role: Role) -> Self {
        Self {
            file,
            arguments,
            argument: None,
            role,
            elf: None,
        }
    }
}

/// Which programs run under Neap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The program and its descendants.
    Tree,
    /// Only the program.
    Alone,
}

/// The files of one command line, up to the first that cannot run under Neap.
#[derive(Debug)]
pub struct Chain {
    /// At least one, unless the first was not found.
    pub links: Vec<Link>,
    /// How the chain ends, or what stops it.
    pub end: Result<End, Obstacle>,
}

/// How a chain ends without an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At a program.
    Program,
    /// At an `env` whose line Neap does not parse.
    OpaqueEnv,
    /// At a file that is executable but not readable, so it cannot be examined.
    Unreadable,
}

/// A longer chain is a cycle; the kernel itself follows five scripts.
const LONGEST: usize = 12;

/// Follows `words` (a program and its arguments) to the final program. Compares headers with the
/// library's.
pub fn follow(words: &[OsString], library: &Elf) -> Chain {
    let mut chain = Chain {
        links: Vec::new(),
        end: Ok(End::Program),
    };
    chain.end = chain.walk(words, library);
    chain
}

/// What follows a file in the chain.
enum Next {
    Step(Link),
    End(End),
}

impl Chain {
    /// The link to execute: the first one that the kernel can execute. For [`Scope::Alone`], the
    /// program that the last `env` would execute, because `env` would otherwise make it a
    /// descendant.
    pub fn start(self, scope: Scope) -> Result<Link, Obstacle> {
        let end = self.end?;
        let mut start = 0;
        if scope == Scope::Alone {
            if let (End::OpaqueEnv, Some(link)) = (end, self.links.first()) {
                return Err(Why::OpaqueEnv.at(&link.file));
            }
            let by_env = |link: &Link| link.role == Role::ByEnv;
            start = self.links.iter().rposition(by_env).unwrap_or(0);
        }
        let is_shell = |link: &Link| link.role == Role::Shell;
        start += usize::from(self.links.get(start + 1).is_some_and(is_shell));
        let link = self.links.into_iter().nth(start);
        Ok(link.expect("a chain without an obstacle has a first link"))
    }

    fn walk(&mut self, words: &[OsString], library: &Elf) -> Result<End, Obstacle> {
        let first = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let mut next = Next::Step(Link::new(locate(first)?, words.to_vec(), Role::Named));
        loop {
            match next {
                Next::End(end) => return Ok(end),
                Next::Step(link) if self.links.len() == LONGEST => {
                    return Err(Why::TooDeep.at(&link.file));
                }
                Next::Step(link) => {
                    self.links.push(link);
                    next = self.examine(library)?;
                }
            }
        }
    }

    /// Examines the last link and tells what follows.
    fn examine(&mut self, library: &Elf) -> Result<Next, Obstacle> {
        let link = self.links.last_mut().expect("walk has pushed a link");
        match Elf::read(&link.file) {
            Ok(None) => after_text(link),
            Ok(Some(elf)) => {
                link.elf = Some(elf);
                judge(link, library).map(|()| Next::End(End::Program))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Next::End(End::Unreadable))
            }
            Err(error) => Err(Why::Unreadable(error).at(&link.file)),
        }
        .and_then(|next| self.after_env(next))
    }

    /// If the last link is `env` called by a script, the program that it executes.
    fn after_env(&self, next: Next) -> Result<Next, Obstacle> {
        let link = self.links.last().expect("walk has pushed a link");
        let is_env = link.role == Role::Interpreter
            && link.elf.is_some()
            && link.file.file_name() == Some(OsStr::new("env"));
        if !is_env {
            return Ok(next);
        }
        let argument = link.argument.as_deref();
        match argument.map_or(EnvLine::Opaque, EnvLine::parse) {
            EnvLine::Opaque => Ok(Next::End(End::OpaqueEnv)),
            EnvLine::Runs(words) => {
                let arguments = [&words[..], &link.arguments[2..]].concat();
                let file = locate(&words[0])?;
                Ok(Next::Step(Link::new(file, arguments, Role::ByEnv)))
            }
        }
    }
}

/// The interpreter of a file that is not ELF.
fn after_text(link: &Link) -> Result<Next, Obstacle> {
    let file = &link.file;
    match Head::read(file) {
        Ok(Head::Interpreter {
            path: interpreter,
            argument,
        }) => {
            is_executable(&interpreter).map_err(|obstacle| match obstacle.why {
                Why::NotFound => Why::NoInterpreter(interpreter.clone()).at(file),
                _ => obstacle,
            })?;
            let arguments = interpreted(link, &interpreter, argument.as_ref());
            Ok(Next::Step(Link {
                argument,
                ..Link::new(interpreter, arguments, Role::Interpreter)
            }))
        }
        Ok(Head::Text) if link.role != Role::Interpreter => {
            let shell = PathBuf::from("/bin/sh");
            let arguments = interpreted(link, Path::new("sh"), None);
            Ok(Next::Step(Link::new(shell, arguments, Role::Shell)))
        }
        Ok(Head::Text | Head::Binary) => Err(Why::NotAProgram.at(file)),
        Err(error) => Err(Why::Unreadable(error).at(file)),
    }
}

/// The arguments that the kernel passes: the interpreter, its one argument, the script, and the
/// script's arguments without its name.
fn interpreted(link: &Link, interpreter: &Path, argument: Option<&OsString>) -> Vec<OsString> {
    let head = [
        Some(interpreter.as_os_str().to_owned()),
        argument.cloned(),
        Some(link.file.as_os_str().to_owned()),
    ];
    let rest = link.arguments.iter().skip(1).cloned();
    head.into_iter().flatten().chain(rest).collect()
}

fn judge(link: &Link, library: &Elf) -> Result<(), Obstacle> {
    let Some(elf) = &link.elf else { return Ok(()) };
    let why = match &elf.loader {
        _ if !elf.is_like(library) => Why::OtherMachine {
            program: elf.clone(),
            library: library.clone(),
        },
        None if elf.has_neap => Why::NeapInside,
        None => Why::Static,
        Some(loader) if !elf.can_preload(library) => Why::OtherLoader(loader.clone()),
        Some(loader) if !loader.exists() => Why::NoInterpreter(loader.clone()),
        Some(_) => match gain(&link.file) {
            Ok(Some(how)) => Why::Privileged(how),
            Ok(None) => return Ok(()),
            Err(error) => Why::Unreadable(error),
        },
    };
    Err(why.at(&link.file))
}

/// The kernel reads this many bytes of a file.
const HEAD: usize = 256;

/// The beginning of a file that is not ELF.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// `#!interpreter argument`.
    Interpreter {
        path: PathBuf,
        argument: Option<OsString>,
    },
    /// Text without such a line: callers other than the kernel pass it to `/bin/sh`.
    Text,
    /// Neither.
    Binary,
}

impl Head {
    /// Reads the beginning of `file`.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut head = Vec::with_capacity(HEAD);
        File::open(file)?.take(HEAD as u64).read_to_end(&mut head)?;
        Ok(Self::parse(&head))
    }

    fn parse(head: &[u8]) -> Self {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        match line.strip_prefix(b"#!") {
            Some(line) => Self::parse_interpreter(line),
            None if head.contains(&0) => Self::Binary,
            None => Self::Text,
        }
    }

    fn parse_interpreter(line: &[u8]) -> Self {
        let line = trim(line);
        let (path, argument) = match line.iter().position(is_blank) {
            Some(end) => (&line[..end], trim(&line[end..])),
            None => (line, &[][..]),
        };
        if path.is_empty() || line.contains(&0) {
            return Self::Binary;
        }
        Self::Interpreter {
            path: PathBuf::from(OsStr::from_bytes(path)),
            argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned()),
        }
    }
}

/// What `env` makes of the rest of a script's first line.
#[derive(Debug, PartialEq, Eq)]
pub enum EnvLine {
    /// It runs this program with these arguments.
    Runs(Vec<OsString>),
    /// It has options, assignments or quotes.
    Opaque,
}

impl EnvLine {
    /// Parses the one argument that the kernel passes to `env`.
    pub fn parse(argument: &OsStr) -> Self {
        let text = argument.as_bytes();
        let words: Vec<&[u8]> = match text.strip_prefix(b"-S") {
            Some(rest) => rest
                .split(is_blank)
                .filter(|word| !word.is_empty())
                .collect(),
            None => vec![text],
        };
        let names_a_program = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
        let has_quotes = |word: &&[u8]| word.iter().any(|byte| b"'\"\\$#".contains(byte));
        if !words.first().is_some_and(names_a_program) || words.iter().any(has_quotes) {
            return Self::Opaque;
        }
        let owned = words.iter().map(|word| OsString::from_vec(word.to_vec()));
        Self::Runs(owned.collect())
    }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Where `execvp` searches if `PATH` is not set.
const WITHOUT_PATH: &str = "/bin:/usr/bin";

/// The file that `name` refers to.
pub fn locate(name: &OsStr) -> Result<PathBuf, Obstacle> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return is_executable(&file).map(|()| file);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from(WITHOUT_PATH));
    search(name, &path)
}

/// The first executable file. Without one, the obstacle of the first file of that name.
fn search(name: &OsStr, path: &OsStr) -> Result<PathBuf, Obstacle> {
    let mut obstacle = Why::NotFound.at(name);
    for room in env::split_paths(path) {
        let file = if room.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            room.join(name)
        };
        match is_executable(&file) {
            Ok(()) if !name.is_empty() => return Ok(file),
            Err(
                found @ Obstacle {
                    why: Why::NotPermitted,
                    ..
                },
            ) if matches!(obstacle.why, Why::NotFound) => {
                obstacle = found;
            }
            Ok(()) | Err(_) => {}
        }
    }
    Err(obstacle)
}

/// Whether this user may execute `file`.
pub fn is_executable(file: &Path) -> Result<(), Obstacle> {
    let meta = file.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::NotFound.at(file),
        _ => Why::Unreadable(error).at(file),
    })?;
    match (meta.is_dir(), meta.is_file() && may_execute(file)) {
        (true, _) => Err(Why::Directory.at(file)),
        (_, true) => Ok(()),
        (_, false) => Err(Why::NotPermitted.at(file)),
    }
}

fn may_execute(file: &Path) -> bool {
    CString::new(file.as_os_str().as_bytes()).is_ok_and(|file| {
        // SAFETY: `file` is a string that ends with a zero byte and outlives the call.
        unsafe { libc::faccessat(libc::AT_FDCWD, file.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(path: &str, argument: Option<&str>) -> Head {
        Head::Interpreter {
            path: path.into(),
            argument: argument.map(OsString::from),
        }
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_reads_them() {
        assert_eq!(
            Head::parse(b"#!/bin/sh\necho"),
            interpreter("/bin/sh", None)
        );
        assert_eq!(
            Head::parse(b"#! \t/bin/sh  -e -u \n"),
            interpreter("/bin/sh", Some("-e -u"))
        );
        assert_eq!(
            Head::parse(b"#!/bin/sh\r\n"),
            interpreter("/bin/sh\r", None)
        );
        assert_eq!(Head::parse(b"#!\n/bin/sh"), Head::Binary);
        assert_eq!(Head::parse(b"echo\n"), Head::Text);
        assert_eq!(Head::parse(b""), Head::Text);
        assert_eq!(Head::parse(b"MZ\0\0"), Head::Binary);
    }

    #[test]
    fn env_takes_one_program_or_splits_when_told_to() {
        let runs = |words: &[&str]| EnvLine::Runs(words.iter().map(OsString::from).collect());
        assert_eq!(EnvLine::parse(OsStr::new("python3")), runs(&["python3"]));
        assert_eq!(
            EnvLine::parse(OsStr::new("python3 -u")),
            runs(&["python3 -u"])
        );
        assert_eq!(
            EnvLine::parse(OsStr::new("-S python3 -u")),
            runs(&["python3", "-u"])
        );
        assert_eq!(
            EnvLine::parse(OsStr::new("-Spython3\t-u")),
            runs(&["python3", "-u"])
        );
        for opaque in [
            "-i",
            "-S",
            "-S -i python3",
            "A=1",
            "-S A=1 python3",
            "-S sh -c 'a b'",
        ] {
            assert_eq!(
                EnvLine::parse(OsStr::new(opaque)),
                EnvLine::Opaque,
                "{opaque}"
            );
        }
    }
}
