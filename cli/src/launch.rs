//! Finds the program, preloads the library, and replaces this process by the program.

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, shown};
use crate::library;
use crate::program::{Link, Scope, follow};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;

/// A program ready for `exec`: no further allocation is needed.
#[derive(Clone)]
pub struct Program {
    name: PathBuf,
    file: CString,
    arguments: Vec<CString>,
}

impl Program {
    /// The program of `link`.
    pub fn new(link: Link) -> Result<Self, Failure> {
        let file = text(link.file.clone().into_os_string())?;
        let arguments = link
            .arguments
            .into_iter()
            .map(text)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: link.file,
            file,
            arguments,
        })
    }

    /// The file's name.
    pub fn name(&self) -> &OsStr {
        self.name.as_os_str()
    }

    /// Replaces this process by the program, with the current environment. Open files, signal
    /// dispositions and all other state of the process stay as the caller left them. Returns only
    /// on failure.
    pub fn execute(&self) -> io::Error {
        let mut arguments: Vec<_> = self.arguments.iter().map(|text| text.as_ptr()).collect();
        arguments.push(ptr::null());
        // SAFETY: `file` and every argument end with a zero byte and outlive the call; the
        // array ends with a null pointer.
        unsafe { libc::execv(self.file.as_ptr(), arguments.as_ptr()) };
        io::Error::last_os_error()
    }

    /// The message for an `error` that [`Self::execute`] returned.
    pub fn failure(&self, error: &io::Error) -> Failure {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        Failure::with_code(
            code,
            format!("cannot execute {}: {error}", shown(&self.name)),
        )
    }
}

/// The program that `words` lead to, with the library preloaded.
pub fn prepare(words: &[OsString]) -> Result<Program, Failure> {
    let library = library::find()?;
    let preload = library::preload(&library)?;
    let start = follow(words, &library::headers(&library)?).start(scope())?;
    let program = Program::new(start)?;
    set_variables([(library::PRELOAD, preload)]);
    Ok(program)
}

/// The name of a file about a program: the program's between these two.
pub fn named_after(start: &str, program: &OsStr, ending: &str) -> OsString {
    let mut name = OsString::from(start);
    name.push(Path::new(program).file_name().unwrap_or(program));
    name.push(ending);
    name
}

/// The scope from the flag or from the inherited variable.
fn scope() -> Scope {
    match env::var_os("NEAP_CHILDREN") {
        Some(word) if word == "0" => Scope::Alone,
        _ => Scope::Tree,
    }
}

/// Sets variables for the program and its descendants.
pub fn set_variables(variables: impl IntoIterator<Item = (&'static str, OsString)>) {
    for (name, value) in variables {
        // SAFETY: this process has only one thread, so no other thread reads the environment
        // meanwhile.
        unsafe { env::set_var(name, value) };
    }
}

fn text(text: OsString) -> Result<CString, Failure> {
    CString::new(text.into_vec()).map_err(|error| {
        let bytes = error.into_vec();
        failure!(
            "an argument has a zero byte: {}",
            shown(OsStr::from_bytes(&bytes))
        )
    })
}
