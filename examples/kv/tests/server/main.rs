//! The server from the clients' point of view: redis-cli, redis-benchmark, a burst, and hostile
//! clients.
//!
//! Tests that need Debian's `redis-tools` are ignored without it; with `REQUIRE_ALL=1` they fail.

mod burst;
mod hostile;
mod sessions;
mod tools;
mod world;

use libtest_mimic::{Arguments, Trial};

/// Registers a test with its name.
type Add<'a> = &'a mut dyn FnMut(&str, fn());

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let mut add = |name: &str, test: fn()| {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    };
    sessions::all(&mut add);
    burst::all(&mut add);
    hostile::all(&mut add);
    trials.extend(tools::all());
    libtest_mimic::run(&arguments, trials).exit();
}
