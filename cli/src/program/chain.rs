//! The files that one command line executes, one after the other: a script, `env`, the
//! interpreter.

use super::elf::Elf;
use super::obstacle::Obstacle;
use super::script::{EnvLine, Head};
use super::{path, privilege};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was named on the command line.
    Named,
    /// The kernel found it in a script's first line.
    Interpreter,
    /// `env` found it in a script's first line.
    ByEnv,
    /// It runs a text that has no such line.
    Shell,
}

/// One file that is executed.
#[derive(Debug)]
pub struct Link {
    /// The file.
    pub file: PathBuf,
    /// What it finds in `argv`.
    pub arguments: Vec<OsString>,
    /// The one argument among them that a script's first line gives its interpreter.
    pub argument: Option<OsString>,
    /// Why it is executed.
    pub role: Role,
    /// Its headers, if it has any and they may be read.
    pub elf: Option<Elf>,
}

/// Which programs are to run under Neap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The program and all that it starts.
    Tree,
    /// Only the program.
    Alone,
}

/// The files of one command line, up to the first that cannot run under Neap.
#[derive(Debug)]
pub struct Chain {
    /// At least one, except when the first could not be found.
    pub links: Vec<Link>,
    /// What the last file, or the one that would follow it, meets.
    pub end: Result<End, Obstacle>,
}

/// How a chain ends without an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At a program.
    Program,
    /// At an `env` whose line we do not take apart.
    OpaqueEnv,
    /// At a file that may be executed but not read, so nobody can judge it.
    Unreadable,
}

/// More scripts than that are a circle; the kernel itself follows five.
const LONGEST: usize = 12;

/// Follows `words` (a program and its arguments) down to the program that remains,
/// judged beside the headers of the library.
pub fn follow(words: &[OsString], library: &Elf) -> Chain {
    let mut chain = Chain {
        links: Vec::new(),
        end: Ok(End::Program),
    };
    chain.end = chain.walk(words, library);
    chain
}

/// What comes after a file.
enum Next {
    Step {
        file: PathBuf,
        arguments: Vec<OsString>,
        argument: Option<OsString>,
        role: Role,
    },
    End(End),
}

impl Chain {
    /// The link to execute: the first that the kernel can, and for [`Scope::Alone`] the
    /// one that the last `env` would turn into, since `env` would make it a child.
    pub fn start(self, scope: Scope) -> Result<Link, Obstacle> {
        let end = self.end?;
        let mut start = 0;
        if scope == Scope::Alone {
            if let (End::OpaqueEnv, Some(link)) = (end, self.links.first()) {
                return Err(Obstacle::OpaqueEnv(link.file.clone()));
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
        let mut next = Next::Step {
            file: path::locate(first)?,
            arguments: words.to_vec(),
            argument: None,
            role: Role::Named,
        };
        loop {
            match next {
                Next::End(end) => return Ok(end),
                Next::Step { file, .. } if self.links.len() == LONGEST => {
                    return Err(Obstacle::TooDeep(file));
                }
                Next::Step {
                    file,
                    arguments,
                    argument,
                    role,
                } => {
                    self.links.push(Link {
                        file,
                        arguments,
                        argument,
                        role,
                        elf: None,
                    });
                    next = self.examine(library)?;
                }
            }
        }
    }

    /// Judges the last link and says what it leads to.
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
            Err(error) => Err(Obstacle::Unreadable {
                file: link.file.clone(),
                error,
            }),
        }
        .and_then(|next| self.after_env(next))
    }

    /// If the last link is `env` called by a script, the program that it turns into.
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
            EnvLine::Runs(words) => Ok(Next::Step {
                file: path::locate(&words[0])?,
                arguments: [&words[..], &link.arguments[2..]].concat(),
                argument: None,
                role: Role::ByEnv,
            }),
        }
    }
}

/// What executes a file that is no ELF file.
fn after_text(link: &Link) -> Result<Next, Obstacle> {
    let file = link.file.clone();
    match Head::read(&file) {
        Ok(Head::Interpreter {
            path: interpreter,
            argument,
        }) => {
            path::is_executable(&interpreter).map_err(|obstacle| match obstacle {
                Obstacle::NotFound(_) => Obstacle::NoInterpreter {
                    script: file,
                    interpreter: interpreter.clone(),
                },
                other => other,
            })?;
            let arguments = interpreted(link, &interpreter, argument.as_ref());
            Ok(Next::Step {
                file: interpreter,
                arguments,
                argument,
                role: Role::Interpreter,
            })
        }
        Ok(Head::Text) if link.role != Role::Interpreter => {
            let shell = PathBuf::from("/bin/sh");
            let arguments = interpreted(link, Path::new("sh"), None);
            Ok(Next::Step {
                file: shell,
                arguments,
                argument: None,
                role: Role::Shell,
            })
        }
        Ok(Head::Text | Head::Binary) => Err(Obstacle::NotAProgram(file)),
        Err(error) => Err(Obstacle::Unreadable { file, error }),
    }
}

/// The arguments that the kernel makes: the interpreter, its one argument, the script,
/// and the script's arguments without its name.
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
    let file = || link.file.clone();
    let Some(elf) = &link.elf else { return Ok(()) };
    if !elf.is_like(library) {
        return Err(Obstacle::OtherMachine {
            file: file(),
            program: elf.clone(),
            library: library.clone(),
        });
    }
    let Some(loader) = &elf.loader else {
        return Err(Obstacle::Static(file()));
    };
    if elf.has_other_loader() {
        return Err(Obstacle::OtherLoader {
            file: file(),
            loader: loader.clone(),
        });
    }
    if !loader.exists() {
        return Err(Obstacle::NoInterpreter {
            script: file(),
            interpreter: loader.clone(),
        });
    }
    match privilege::gain(&link.file) {
        Ok(Some(how)) => Err(Obstacle::Privileged { file: file(), how }),
        Ok(None) => Ok(()),
        Err(error) => Err(Obstacle::Unreadable {
            file: file(),
            error,
        }),
    }
}
