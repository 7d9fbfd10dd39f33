//! PostgreSQL: a cluster is made, filled by pgbench, used by four clients and queried. The server
//! refuses to run as root; as root, everything therefore runs as the package's own user.

use neap_programs::{Need, Outcome, Program, Server, World, installed};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const POSTGRES: Program = Program {
    name: "postgres",
    needs: &[Need {
        command: POSTGRES_FILE,
        package: "postgresql",
    }],
    limit: Duration::from_secs(180),
    transcript,
};

const POSTGRES_FILE: &str = "/usr/lib/postgresql/*/bin/postgres";

fn transcript(world: &World) -> Outcome<String> {
    let user = User::for_servers(world)?;
    let options = [
        "-D",
        "data",
        "-A",
        "trust",
        "-U",
        "nea",
        "--no-sync",
        "--locale=C.UTF-8",
    ];
    world.succeed(user.command(world, "initdb", &options)?)?;
    let server = start(world, &user)?;
    let scale = world.size("1", "10");
    world.succeed(user.command(world, "pgbench", &["-q", "-i", "-s", scale, "bank"])?)?;
    let transactions = world.size("150", "10000");
    let load = ["-n", "-c", "4", "-j", "2", "-t", transactions, "bank"];
    world.succeed(user.command(world, "pgbench", &load)?)?;
    server.assert_identity(5)?;
    world.write("work.sql", include_str!("../inputs/postgres.sql"))?;
    let script = world.path("work.sql").display().to_string();
    let questions = [
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        &script,
        "bank",
    ];
    let answers = world.succeed(user.command(world, "psql", &questions)?)?;
    server.stop(libc::SIGINT)?;
    Ok(answers)
}

fn start<'w>(world: &'w World, user: &User) -> Outcome<Server<'w>> {
    let sockets = format!("unix_socket_directories={}", world.directory.display());
    let options = [
        "-D",
        "data",
        "-c",
        "listen_addresses=",
        "-c",
        &sockets,
        "-c",
        "fsync=off",
    ];
    let mut server = world.serve(user.command(world, "postgres", &options)?)?;
    server.ready(|| {
        let create = ["-X", "-q", "-c", "create database bank", "postgres"];
        world.succeed(user.command(world, "psql", &create)?)
    })?;
    Ok(server)
}

/// The owner of the cluster.
enum User {
    /// The user that runs the tests.
    Own,
    /// Another user, with these user and group IDs.
    Other(u32, u32),
}

impl User {
    /// As root, hands over the world's directory.
    fn for_servers(world: &World) -> Outcome<Self> {
        // SAFETY: the call takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(Self::Own);
        }
        let id =
            |which| -> Outcome<u32> { Ok(world.run("id", &[which, "postgres"])?.trim().parse()?) };
        let (user, group) = (id("-u")?, id("-g")?);
        chown(&world.directory, Some(user), Some(group))?;
        Ok(Self::Other(user, group))
    }

    fn command(&self, world: &World, tool: &str, arguments: &[&str]) -> Outcome<Command> {
        let postgres = installed::find(POSTGRES_FILE).ok_or("postgres is gone")?;
        let tool: PathBuf = postgres.with_file_name(tool);
        let mut command = match self {
            Self::Own => world.command(tool),
            Self::Other(user, group) => {
                let mut command = world.command("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={group}")]);
                command.arg("--clear-groups").arg(tool);
                command
            }
        };
        command
            .args(arguments)
            .env("PGHOST", &world.directory)
            .env("PGUSER", "nea");
        Ok(command)
    }
}
