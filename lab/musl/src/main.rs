//! An asynchronous service, all of it in one process, so that its allocator is all that differs.
//!
//! 64 clients send requests of 0.2 to 8 KB of JSON. The service parses each, keeps it as the user's
//! session in place of the last one, and hands its answer to a task that writes it. So blocks pass
//! between threads. Then all but every twentieth user leave, and the service rests.
//!
//! It prints one line of words and numbers: time, processor time, and resident memory.

mod allocator;

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::read_to_string;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const THREADS: usize = 4;
const CLIENTS: u64 = 64;
const USERS: u64 = 20_000;
/// One user in this many stays.
const STAY: u64 = 20;
/// Requests of each client, unless the first argument says how many.
const REQUESTS: u64 = 1_000;

type Sessions = Arc<RwLock<HashMap<u64, Value>>>;

/// The next of a sequence of numbers that look random.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// A request's body.
fn body(user: u64, seed: &mut u64) -> String {
    let items: Vec<Value> = (0..2 + next(seed) % 60)
        .map(|number| {
            let name = "n".repeat(10 + (next(seed) % 70) as usize);
            json!({"number": number, "name": name, "price": next(seed) % 10_000})
        })
        .collect();
    json!({"user": user, "items": items}).to_string()
}

/// Serves a request: parses it, keeps it, and gives the answer.
fn serve(sessions: &Sessions, body: &str) -> String {
    let value: Value = serde_json::from_str(body).expect("the client writes JSON");
    let user = value["user"].as_u64().expect("a user");
    let answer = json!({"accepted": value["items"]}).to_string();
    let last = sessions
        .write()
        .expect("a request failed")
        .insert(user, value);
    // After the lock.
    drop(last);
    answer
}

/// A client, which waits for each answer to be written.
async fn client(number: u64, requests: u64, sessions: Sessions, writer: mpsc::Sender<String>) {
    let mut seed = 88_172_645_463_325_252 ^ number;
    for _ in 0..requests {
        let user = next(&mut seed) % USERS;
        let body = body(user, &mut seed);
        let answer = serve(&sessions, &body);
        writer.send(answer).await.expect("the writer is there");
    }
}

/// Drops the answers, on the thread on which it runs.
async fn writer(mut answers: mpsc::Receiver<String>) -> usize {
    let mut bytes = 0;
    while let Some(answer) = answers.recv().await {
        bytes += answer.len();
    }
    bytes
}

async fn all_clients(requests: u64, sessions: &Sessions) -> usize {
    let (sender, answers) = mpsc::channel(256);
    let writer = tokio::spawn(writer(answers));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            tokio::spawn(client(
                number,
                requests,
                Arc::clone(sessions),
                sender.clone(),
            ))
        })
        .collect();
    drop(sender);
    for client in clients {
        client.await.expect("a client failed");
    }
    writer.await.expect("the writer failed")
}

/// A number of `/proc/self/status`, in KiB.
fn status(name: &str) -> u64 {
    let text = read_to_string("/proc/self/status").expect("the kernel tells");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Processor time of the process, in ticks of 10 ms.
fn ticks() -> u64 {
    let text = read_to_string("/proc/self/stat").expect("the kernel tells");
    let after = text.rsplit(')').next().expect("a name in parentheses");
    let words = after.split_whitespace().skip(11).take(2);
    words
        .map(|word| word.parse::<u64>().expect("a number"))
        .sum()
}

fn main() {
    allocator::begin();
    let requests = std::env::args().nth(1);
    let requests = requests.map_or(REQUESTS, |word| word.parse().expect("a number of requests"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_time()
        .build()
        .expect("no runtime");
    let sessions = Sessions::default();
    let began = Instant::now();
    let bytes = runtime.block_on(all_clients(requests, &sessions));
    let (took, cpu) = (began.elapsed(), ticks() * 10);
    sessions
        .write()
        .expect("a request failed")
        .retain(|user, _| user % STAY == 0);
    let rest = status("VmRSS");
    std::thread::sleep(Duration::from_secs(2));
    let after_2 = status("VmRSS");
    std::thread::sleep(Duration::from_secs(8));
    println!(
        "{} bytes {bytes} sessions {} ms {} cpu_ms {cpu} peak_kib {} rest_kib {rest} \
         after_2_s_kib {after_2} after_10_s_kib {}",
        allocator::NAME,
        sessions.read().expect("a request failed").len(),
        took.as_millis(),
        status("VmHWM"),
        status("VmRSS"),
    );
}
