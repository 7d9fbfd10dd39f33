//! redis-server under redis-benchmark with pipelining, then saved in the foreground and by a forked
//! child, and loaded again.

use neap_programs::{Need, Outcome, Program, Server, World, net};
use std::fmt::Write;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

pub const REDIS: Program = Program {
    name: "redis",
    needs: &[Need {
        command: "redis-server",
        package: "redis-server",
    }],
    limit: Duration::from_secs(120),
    transcript,
};

fn transcript(world: &World) -> Outcome<String> {
    let mut answers = String::new();
    let (server, at) = start(world)?;
    benchmark(world, at)?;
    cli(world, at, &["flushall"])?;
    load(world, at, world.size(50_000, 500_000))?;
    for question in [&["dbsize"][..], &["debug", "digest"], &["save"]] {
        writeln!(answers, "{question:?} {}", cli(world, at, question)?)?;
    }
    cli(world, at, &["bgsave"])?;
    benchmark(world, at)?;
    world.until(|| saved_in_background(world, at))?;
    server.assert_identity(0)?;
    server.stop(libc::SIGTERM)?;

    let (server, at) = start(world)?;
    for question in [&["dbsize"][..], &["debug", "digest"], &["memory", "purge"]] {
        writeln!(answers, "{question:?} {}", cli(world, at, question)?)?;
    }
    server.stop(libc::SIGTERM)?;
    Ok(answers)
}

fn start<'w>(world: &'w World) -> Outcome<(Server<'w>, SocketAddr)> {
    let address = net::free_address()?;
    let mut command = world.command("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &address.port().to_string(),
        "--save",
        "",
    ]);
    command.args([
        "--enable-debug-command",
        "local",
        "--lazyfree-lazy-user-flush",
        "yes",
    ]);
    let mut server = world.serve(command)?;
    server.ready(|| cli(world, address, &["ping"]))?;
    Ok((server, address))
}

/// Its keys are random and stay below those of [`load`], which it must not touch, because the
/// second run coincides with the background save.
fn benchmark(world: &World, at: SocketAddr) -> Outcome<()> {
    let requests = world.size("50000", "1000000");
    let mut command = world.command("redis-benchmark");
    command.args([
        "-p",
        &at.port().to_string(),
        "--dbnum",
        "1",
        "-q",
        "-P",
        "16",
        "-c",
        "50",
    ]);
    command.args(["-r", "100000", "-d", "200", "-n", requests]);
    command.args([
        "-t",
        "set,get,incr,lpush,lpop,sadd,hset,spop,zadd,lrange_100,mset",
    ]);
    world.succeed(command).map(drop)
}

/// Fills the database with reproducible data.
fn load(world: &World, at: SocketAddr, keys: usize) -> Outcome<()> {
    let mut commands = String::new();
    for n in 0..keys {
        let value = "v".repeat(n % 500 + 1);
        match n % 5 {
            0 => writeln!(commands, "SET string:{n} {value}")?,
            1 => writeln!(commands, "RPUSH list:{} {value} {n}", n % 1000)?,
            2 => writeln!(commands, "HSET hash:{} field{n} {value}", n % 700)?,
            3 => writeln!(commands, "ZADD zset:{} {n} member{n}", n % 300)?,
            _ => writeln!(commands, "APPEND grown:{} {value}", n % 100)?,
        }
    }
    world.write("load", commands)?;
    let mut pipe = world.command("redis-cli");
    pipe.args(["-p", &at.port().to_string(), "--pipe"])
        .stdin(File::open(world.path("load"))?);
    world.succeed(pipe).map(drop)
}

fn saved_in_background(world: &World, at: SocketAddr) -> Outcome<()> {
    let state = cli(world, at, &["info", "persistence"])?;
    let has = |line: &str| state.lines().any(|l| l == line);
    if has("rdb_bgsave_in_progress:0") && has("rdb_last_bgsave_status:ok") {
        return Ok(());
    }
    Err(format!("no background save: {state}").into())
}

fn cli(world: &World, at: SocketAddr, words: &[&str]) -> Outcome<String> {
    let port = at.port().to_string();
    let answer = world.run("redis-cli", &[&["-e", "-p", &port], words].concat())?;
    Ok(answer.replace('\r', ""))
}
