//! CPython from the distribution: once with its own small-object allocator, once with every object
//! from malloc.

use neap_programs::{Need, Outcome, Program, World};
use std::time::Duration;

const NEEDS: &[Need] = &[Need {
    command: "/usr/bin/python3",
    package: "python3",
}];
const SCRIPT: &str = include_str!("../inputs/work.py");

pub const PYTHON: Program = Program {
    name: "python",
    needs: NEEDS,
    limit: Duration::from_secs(120),
    transcript: |world| work(world, "pymalloc"),
};

pub const PYTHON_MALLOC: Program = Program {
    name: "python_malloc",
    needs: NEEDS,
    limit: Duration::from_secs(120),
    transcript: |world| work(world, "malloc"),
};

fn work(world: &World, objects_from: &str) -> Outcome<String> {
    world.write("work.py", SCRIPT)?;
    let mut command = world.command("/usr/bin/python3");
    command
        .args(["work.py", world.size("1", "10")])
        .env("PYTHONMALLOC", objects_from);
    world.succeed(command)
}
