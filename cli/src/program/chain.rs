//! The files that one command line executes in turn: a script, `env`, the interpreter.

use super::elf::Elf;
use super::obstacle::{Obstacle, Why};
use super::script::{EnvLine, Head};
use super::{path, privilege};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The command line names it.
    Named,
    /// The first line of a script names it to the kernel.
    Interpreter,
    /// The first line of a script names it to `env`.
    ByEnv,
    /// It runs a text without such a line.
    Shell,
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
            start = self
                .links
                .iter()
                .rposition(|link| link.role == Role::ByEnv)
                .unwrap_or(0);
        }
        let next_is_shell = self
            .links
            .get(start + 1)
            .is_some_and(|link| link.role == Role::Shell);
        let start = start + usize::from(next_is_shell);
        Ok(self
            .links
            .into_iter()
            .nth(start)
            .expect("a chain without an obstacle has a first link"))
    }

    fn walk(&mut self, words: &[OsString], library: &Elf) -> Result<End, Obstacle> {
        let first = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let mut next = Next::Step(Link::new(path::locate(first)?, words.to_vec(), Role::Named));
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
        match link
            .argument
            .as_deref()
            .map_or(EnvLine::Opaque, EnvLine::parse)
        {
            EnvLine::Opaque => Ok(Next::End(End::OpaqueEnv)),
            EnvLine::Runs(words) => {
                let arguments = [&words[..], &link.arguments[2..]].concat();
                let file = path::locate(&words[0])?;
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
            path::is_executable(&interpreter).map_err(|obstacle| match obstacle.why {
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
    head.into_iter()
        .flatten()
        .chain(link.arguments.iter().skip(1).cloned())
        .collect()
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
        Some(_) => match privilege::gain(&link.file) {
            Ok(Some(how)) => Why::Privileged(how),
            Ok(None) => return Ok(()),
            Err(error) => Why::Unreadable(error),
        },
    };
    Err(why.at(&link.file))
}
