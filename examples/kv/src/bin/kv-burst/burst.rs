//! Resident memory around a burst of connections, with a large store loaded.

use crate::options::Options;
use crate::peer::{Peer, Running};
use crate::record::Record;
use anyhow::{Context as _, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Spare descriptors for other purposes, here and in the servers.
const SPARE_FILES: u64 = 128;

/// Connections per loopback address: well below its number of ports.
const PER_ADDRESS: usize = 10_000;

/// Time for the store to settle after loading, and for decay after the burst.
const REST: Duration = Duration::from_secs(2);

/// Measures all servers.
///
/// # Errors
/// If a server fails, or the kernel has no room for that many connections.
pub fn measure(peers: &[Peer], options: &Options, record: &mut Record) -> anyhow::Result<()> {
    let connections = allowed(options.connections)?;
    if connections < options.connections {
        println!("{connections} connections: the hard limit on open files allows no more");
    }
    record.head("connections of the burst", connections.to_string());
    for peer in peers {
        let one = measure_one(peer, options, connections, record);
        one.with_context(|| format!("the burst on {}", peer.name))?;
    }
    Ok(())
}

/// Raises the limit on open files, and returns the number of connections that it allows.
fn allowed(wanted: usize) -> anyhow::Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let needed = wanted as u64 + SPARE_FILES;
    let most = maximum.map_or(needed, |maximum| maximum.min(needed));
    let limit = Rlimit {
        current: Some(most),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit on open files")?;
    Ok(usize::try_from(most.saturating_sub(SPARE_FILES))?)
}

fn measure_one(
    peer: &Peer,
    options: &Options,
    connections: usize,
    record: &mut Record,
) -> anyhow::Result<()> {
    let server = peer.start(connections)?;
    let mut note = |step: &str| -> anyhow::Result<()> {
        record.memory(step, peer.name, server.memory()?);
        Ok(())
    };
    note("started")?;
    load(server.address, options)?;
    std::thread::sleep(REST);
    note("loaded")?;
    let open = open(&server, connections, options.value)?;
    note("connected")?;
    drop(open);
    wait_until_alone(server.address)?;
    note("closed")?;
    std::thread::sleep(REST);
    note("2 s later")
}

/// Fills the store with pipelined requests.
fn load(address: SocketAddr, options: &Options) -> anyhow::Result<()> {
    const BATCH: usize = 256;
    let mut stream = TcpStream::connect(address)?;
    let value = "v".repeat(options.value);
    let mut answers = vec![0; BATCH * b"+OK\r\n".len()];
    for first in (0..options.keys).step_by(BATCH) {
        let last = (first + BATCH).min(options.keys);
        let mut requests = String::new();
        for key in first..last {
            let length = value.len();
            requests +=
                &format!("*3\r\n$3\r\nSET\r\n$11\r\nkey:{key:07}\r\n${length}\r\n{value}\r\n");
        }
        stream.write_all(requests.as_bytes())?;
        let answers = &mut answers[..(last - first) * b"+OK\r\n".len()];
        stream.read_exact(answers)?;
        ensure!(
            answers.chunks(5).all(|answer| answer == b"+OK\r\n"),
            "a SET failed"
        );
    }
    Ok(())
}

/// Opens connections from several loopback addresses; each requests one value.
fn open(server: &Running, connections: usize, value: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut answer = vec![0; format!("${value}\r\n").len() + value + 2];
    let mut read = |stream: &mut TcpStream| -> anyhow::Result<()> {
        stream.read_exact(&mut answer)?;
        ensure!(answer[0] == b'$', "{:?}", String::from_utf8_lossy(&answer));
        Ok(())
    };
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let mut stream = connect_from(number, server.address)
            .with_context(|| format!("connection number {number}"))?;
        stream.write_all(b"*2\r\n$3\r\nGET\r\n$11\r\nkey:0000001\r\n")?;
        open.push(stream);
        // Read the answer of an earlier request, so that the last hundred are in flight at once.
        if let Some(earlier) = number.checked_sub(100) {
            read(&mut open[earlier])?;
        }
    }
    let unanswered = connections.saturating_sub(100);
    open[unanswered..].iter_mut().try_for_each(read)?;
    Ok(open)
}

fn connect_from(number: usize, server: SocketAddr) -> anyhow::Result<TcpStream> {
    let last = u8::try_from(2 + number / PER_ADDRESS)?;
    let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &own)?;
    connect(&socket, &server)?;
    Ok(TcpStream::from(socket))
}

/// Waits until the server has closed all connections except the one that asks.
fn wait_until_alone(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut buffer = [0; 8192];
    for _ in 0..2_000 {
        stream.write_all(b"*2\r\n$4\r\nINFO\r\n$7\r\nclients\r\n")?;
        let count = stream.read(&mut buffer)?;
        if String::from_utf8_lossy(&buffer[..count]).contains("connected_clients:1\r\n") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("the server still counts connections that were closed")
}
