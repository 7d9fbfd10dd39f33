//! nginx with two workers under wrk, reloaded in the middle.

use neap_programs::{Need, Outcome, Program, Server, World, net};
use std::net::SocketAddr;
use std::time::Duration;

pub const NGINX: Program = Program {
    name: "nginx",
    needs: &[
        Need {
            command: "nginx",
            package: "nginx-light",
        },
        Need {
            command: "wrk",
            package: "wrk",
        },
    ],
    limit: Duration::from_secs(60),
    transcript,
};

fn transcript(world: &World) -> Outcome<String> {
    let page = (0..3000)
        .map(|n| format!("<p>paragraph {n}</p>\n"))
        .collect::<String>();
    world.write("page.html", &page)?;
    let address = net::free_address()?;
    world.write("nginx.conf", configuration(world, address))?;
    let mut command = world.command("nginx");
    command
        .arg("-p")
        .arg(&world.directory)
        .args(["-e", "error.log", "-c", "nginx.conf"]);
    let mut server = world.serve(command)?;
    let before = server.ready(|| net::get(address, "/page.html"))?;
    world.until(|| server.assert_identity(2))?;
    load(world, address, "/page.html", "Accept-Encoding: gzip")?;
    reload(world, &server)?;
    load(world, address, "/page.html", "Accept-Encoding: identity")?;
    let after = net::get(address, "/page.html")?;
    server.stop(libc::SIGQUIT)?;
    Ok(format!("{before}{after}"))
}

/// Waits for the old workers to end: they close connections that a load would miss.
fn reload(world: &World, server: &Server) -> Outcome<()> {
    let old = server.workers()?;
    server.signal(libc::SIGHUP)?;
    world.until(|| {
        let remains = server.workers()?.iter().any(|worker| old.contains(worker));
        if remains {
            Err("old workers remain".into())
        } else {
            server.assert_identity(2)
        }
    })
}

/// Fails if wrk counted an error. Its rates are not compared.
fn load(world: &World, at: SocketAddr, path: &str, header: &str) -> Outcome<()> {
    let url = format!("http://{at}{path}");
    let duration = world.size("1s", "20s");
    let result = world.run("wrk", &["-t2", "-c40", "-d", duration, "-H", header, &url])?;
    let wrong = result.contains("Non-2xx") || result.contains("Socket errors");
    if wrong || result.contains(" 0 requests in") {
        Err(result.into())
    } else {
        Ok(())
    }
}

fn configuration(world: &World, address: SocketAddr) -> String {
    let directory = world.directory.display();
    include_str!("../inputs/nginx.conf")
        .replace("ADDRESS", &address.to_string())
        .replace("DIRECTORY", &directory.to_string())
}
