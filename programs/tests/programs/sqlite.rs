//! The sqlite3 shell on a database of 10 MB (quick) or 100 MB.

use neap_programs::world::fingerprint;
use neap_programs::{Need, Outcome, Program, World};
use std::fs::File;
use std::time::Duration;

pub const SQLITE: Program = Program {
    name: "sqlite",
    needs: &[Need {
        command: "sqlite3",
        package: "sqlite3",
    }],
    limit: Duration::from_secs(60),
    transcript,
};

/// A row with its index entries takes about 300 bytes.
fn transcript(world: &World) -> Outcome<String> {
    let rows = world.size(40_000, 400_000);
    world.write(
        "work.sql",
        include_str!("../inputs/work.sql").replace("ROWS", &rows.to_string()),
    )?;
    let mut shell = world.command("sqlite3");
    shell
        .arg("work.db")
        .stdin(File::open(world.path("work.sql"))?);
    let answers = world.succeed(shell)?;
    let size = std::fs::metadata(world.path("work.db"))?.len();
    if size < world.size(10_000_000, 100_000_000) {
        return Err(format!("the database has only {size} bytes").into());
    }
    world.run("sqlite3", &["work.db", ".output dump.sql", ".dump"])?;
    let database = fingerprint(&world.path("work.db"))?;
    let dump = fingerprint(&world.path("dump.sql"))?;
    Ok(format!("{answers}database: {database}\ndump: {dump}\n"))
}
