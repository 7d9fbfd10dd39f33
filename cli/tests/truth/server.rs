//! An asynchronous server with Neap as its own allocator, which records what it holds.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Makes this test the server, and names the file for the truth.
pub const TRUTH: &str = "TRUTH_SERVER_FILE";
/// Makes the server request a purge thread.
pub const THREAD: &str = "TRUTH_SERVER_THREAD";

/// Bytes of a client's message, which the server keeps until the client disconnects.
const MESSAGE: usize = 8 << 10;
const FEW: usize = 20;
const MANY: usize = 60;
const MESSAGES: usize = 200;

static LIVE: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// Runs the server and its clients.
pub fn serve(truth: &Path) {
    if std::env::var_os(THREAD).is_some() {
        neap::purge::enable_thread();
    }
    let mut file = File::create(truth).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            while !OVER.load(Ordering::Relaxed) {
                say(&mut file);
                thread::sleep(Duration::from_millis(5));
            }
            say(&mut file);
        });
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(day());
        OVER.store(true, Ordering::Relaxed);
    });
}

fn say(file: &mut File) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let (live, page) = (LIVE.load(Ordering::Relaxed), rustix::param::page_size());
    let line = format!("{} {live} {}\n", since.as_millis(), pages * page);
    file.write_all(line.as_bytes()).unwrap();
}

/// A few clients, then many, then a few.
async fn day() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut sessions = JoinSet::new();
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            sessions.spawn(session(stream));
        }
    });
    let mut morning = Vec::new();
    for _ in 0..FEW {
        morning.push(client(address).await);
    }
    rest().await;
    let mut noon = Vec::new();
    for _ in 0..MANY {
        noon.push(client(address).await);
    }
    rest().await;
    drop(noon);
    rest().await;
    accepting.abort();
}

async fn rest() {
    tokio::time::sleep(Duration::from_millis(1200)).await;
}

async fn client(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    let message = [7; MESSAGE];
    for _ in 0..MESSAGES {
        write(&stream, &message).await;
    }
    stream
}

/// Keeps what the client sends until it disconnects.
async fn session(stream: TcpStream) {
    let mut kept: Vec<Box<[u8; MESSAGE]>> = Vec::with_capacity(MESSAGES);
    loop {
        let mut message = Box::new([0; MESSAGE]);
        LIVE.fetch_add(MESSAGE as u64, Ordering::Relaxed);
        let read = read(&stream, &mut message[..]).await;
        kept.push(message);
        if !read {
            break;
        }
    }
    let bytes = kept.len() * MESSAGE;
    drop(kept);
    LIVE.fetch_sub(bytes as u64, Ordering::Relaxed);
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        stream.writable().await.unwrap();
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// Reads all of `bytes`; false if the other side disconnected before.
async fn read(stream: &TcpStream, mut bytes: &mut [u8]) -> bool {
    while !bytes.is_empty() {
        if stream.readable().await.is_err() {
            return false;
        }
        match stream.try_read(bytes) {
            Ok(0) => return false,
            Ok(read) => bytes = &mut bytes[read..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}
