//! Runtimes with memory managers of their own, whose native parts use malloc.

use neap_programs::witness::Presence;
use neap_programs::{Need, Outcome, Program, World};
use std::path::PathBuf;
use std::time::Duration;

pub const NODE: Program = Program {
    name: "node",
    needs: &[Need {
        command: "node",
        package: "nodejs",
    }],
    limit: Duration::from_secs(60),
    transcript: |world| {
        world.write("work.js", include_str!("../inputs/work.js"))?;
        world.run("node", &["work.js", world.size("1", "10")])
    },
};

pub const JAVA: Program = Program {
    name: "java",
    needs: &[Need {
        command: "java",
        package: "default-jre-headless",
    }],
    limit: Duration::from_secs(60),
    transcript: |world| {
        world.write("Work.java", include_str!("../inputs/Work.java"))?;
        world.run("java", &["-Xmx128m", "Work.java"])
    },
};

/// The go command is static; a program with C code that it builds is not.
pub const GO: Program = Program {
    name: "go",
    needs: &[
        Need {
            command: "go",
            package: "golang-go",
        },
        Need {
            command: "gcc",
            package: "gcc",
        },
    ],
    limit: Duration::from_secs(240),
    transcript: go,
};

fn go(world: &World) -> Outcome<String> {
    world.write("main.go", include_str!("../inputs/main.go"))?;
    let mut build = world.command("go");
    build.args(["build", "-trimpath", "-o", "work", "main.go"]);
    build
        .env("GOCACHE", go_cache(world))
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local");
    build.env("GOPROXY", "off").env("CGO_ENABLED", "1");
    world.succeed(build)?;
    let ended = world.finish(world.command("./work"))?;
    if ended
        .processes
        .iter()
        .any(|process| process.presence == Presence::Static)
    {
        return Err("the built program is static: the preload cannot reach it".into());
    }
    Ok(format!(
        "{}\n{}{}",
        ended.status, ended.stdout, ended.stderr
    ))
}

/// Kept between runs, because building Go's own packages takes longer than everything else.
fn go_cache(world: &World) -> PathBuf {
    world.bench.cache.join("go")
}
