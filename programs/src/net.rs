//! Loopback ports, and the minimal HTTP that the tests need.

use crate::outcome::Outcome;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// A free loopback address. It lies below Linux's range of ephemeral ports, where a client's own
/// end of a connection could take it before the server does.
///
/// # Errors
/// If no port of the range is free.
pub fn free_address() -> Outcome<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own_start = std::process::id() as u16;
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + own_start.wrapping_mul(37).wrapping_add(step) % PORTS;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("no free loopback port".into())
}

/// A connection whose reads and writes fail after ten seconds of silence.
///
/// # Errors
/// If no server listens.
pub fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The body of `GET path`.
///
/// # Errors
/// If the connection fails or the status is not 200.
pub fn get(address: SocketAddr, path: &str) -> Outcome<String> {
    let mut stream = connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or("an answer without a body")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200 ") {
        return Err(format!("GET {path}: {status}").into());
    }
    Ok(body.to_owned())
}
