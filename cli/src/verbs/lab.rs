//! `neap lab`: becomes `neap-lab`, which is installed beside this program.

use crate::failure::{Outcome, shown};
use crate::launch::Program;
use crate::program::{Link, Role};
use clap::ArgMatches;
use std::env;
use std::ffi::OsString;

const NAME: &str = "neap-lab";

/// Executes the lab with the same arguments. Returns only on failure.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let exe = env::current_exe()
        .map_err(|error| failure!("cannot tell where neap itself is: {error}"))?;
    let file = exe.with_file_name(NAME);
    if !file.is_file() {
        return Err(failure!(
            "{} is not there: build it with cargo build --release -p {NAME}",
            shown(&file)
        ));
    }
    let words = matches
        .get_many::<OsString>("ARGUMENTS")
        .into_iter()
        .flatten()
        .cloned();
    let arguments = [OsString::from(NAME)].into_iter().chain(words).collect();
    let program = Program::new(Link::new(file, arguments, Role::Named))?;
    Err(program.failure(&program.execute()))
}
