//! The server as clients meet it: redis-cli, redis-benchmark, a burst, and hostile ones.
//!
//! What needs Debian's `redis-tools` is an ignored test where they are absent; with
//! `REQUIRE_ALL=1` it is a failed one.

mod burst;
mod hostile;
mod sessions;
mod tools;
mod world;

use libtest_mimic::{Arguments, Trial};

/// Takes a test and its name.
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
