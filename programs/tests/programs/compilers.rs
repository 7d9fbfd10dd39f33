//! gcc and g++ on generated sources: the object code must be the same, and a linked program must
//! run.

use neap_programs::world::fingerprint;
use neap_programs::{Need, Outcome, Program, World};
use std::fmt::Write;
use std::time::Duration;

pub const GCC: Program = Program {
    name: "gcc",
    needs: &[Need {
        command: "gcc",
        package: "gcc",
    }],
    limit: Duration::from_secs(120),
    transcript: |world| {
        compile(
            world,
            "gcc",
            "cc1",
            "work.c",
            &c_source(world.size(400, 6_000)),
        )
    },
};

pub const GXX: Program = Program {
    name: "g++",
    needs: &[Need {
        command: "g++",
        package: "g++",
    }],
    limit: Duration::from_secs(180),
    transcript: |world| {
        compile(
            world,
            "g++",
            "cc1plus",
            "work.cc",
            &cxx_source(world.size(12, 200)),
        )
    },
};

fn compile(
    world: &World,
    driver: &str,
    compiler: &str,
    file: &str,
    source: &str,
) -> Outcome<String> {
    world.write(file, source)?;
    let mut command = world.command(driver);
    command.args([
        "-O2",
        "-g",
        "-c",
        "-o",
        "work.o",
        file,
        "-ffile-prefix-map=.=/src",
    ]);
    let here = world.directory.to_string_lossy();
    command.arg(format!("-ffile-prefix-map={here}=/src"));
    let ended = world.finish(command)?;
    if !ended.status.success() || !ended.processes.iter().any(|p| p.name() == compiler) {
        return Err(format!("{}\n{}{:?}", ended.status, ended.stderr, ended.processes).into());
    }
    world.run(driver, &["-o", "work", "work.o"])?;
    let object = fingerprint(&world.path("work.o"))?;
    let output = world.run("./work", &[])?;
    Ok(format!("object: {object}\n{output}"))
}

fn c_source(functions: usize) -> String {
    let mut source = String::from(include_str!("../inputs/head.c"));
    for n in 0..functions {
        let _ = writeln!(
            source,
            "{}",
            include_str!("../inputs/function.c").replace("N", &n.to_string())
        );
    }
    source.push_str("int main(void) {\n  unsigned long sum = 1;\n");
    for n in 0..functions {
        let _ = writeln!(source, "  sum = work_{n}(sum);");
    }
    source.push_str("  printf(\"%lu\\n\", sum);\n  return 0;\n}\n");
    source
}

fn cxx_source(classes: usize) -> String {
    let mut source = String::from(include_str!("../inputs/head.cc"));
    for n in 0..classes {
        let _ = writeln!(
            source,
            "{}",
            include_str!("../inputs/class.cc").replace("N_", &format!("{n}_"))
        );
    }
    source.push_str("int main() {\n  std::string log;\n");
    for n in 0..classes {
        let _ = writeln!(source, "  log += Work{n}_().run({n});");
    }
    source.push_str(
        "  std::cout << std::hash<std::string>()(log) << ' ' << log.size() << '\\n';\n}\n",
    );
    source
}
