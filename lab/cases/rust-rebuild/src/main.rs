//! A service with an index of 300,000 entries. Eight times, a task rebuilds the whole index on the
//! blocking pool and swaps it in, while four workers answer requests from the current one. The
//! allocator is the system's, so that a preload replaces it.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

const ENTRIES: u64 = 300_000;
const REBUILDS: u64 = 8;
const WORKERS: usize = 4;
const PARTS: u64 = 4;

/// One entry: what a request shows, and what it leads to.
struct Entry {
    title: String,
    tags: Vec<String>,
    links: Vec<u64>,
}

type Index = HashMap<String, Entry>;

/// The next of a sequence of numbers that look random.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn entry(number: u64, generation: u64) -> (String, Entry) {
    let mut seed = 88_172_645_463_325_252 ^ (number * REBUILDS + generation);
    let mut pick = |most: u64| next(&mut seed) % most;
    let title = "t".repeat(20 + pick(120) as usize);
    let tags = (0..pick(4)).map(|tag| format!("tag-{tag}-{}", pick(1_000)));
    let tags = tags.collect();
    let links = (0..pick(24)).map(|_| pick(ENTRIES)).collect();
    (format!("entry-{number:08}"), Entry { title, tags, links })
}

/// A part of the index, by a thread of the blocking pool.
fn part(part: u64, generation: u64) -> Vec<(String, Entry)> {
    let numbers = (0..ENTRIES).filter(|number| number % PARTS == part);
    numbers.map(|number| entry(number, generation)).collect()
}

async fn rebuilt(generation: u64) -> Index {
    let mut index = Index::new();
    for number in 0..PARTS {
        let part = tokio::task::spawn_blocking(move || part(number, generation));
        index.extend(part.await.expect("a part failed"));
    }
    index
}

/// A request: a page of entries, as text.
fn answer(index: &Index, seed: &mut u64) -> usize {
    let page = (0..50).filter_map(|_| {
        let key = format!("entry-{:08}", next(seed) % ENTRIES);
        let entry = index.get(&key)?;
        Some(format!(
            "{key}: {} {:?} {:?}\n",
            entry.title, entry.tags, entry.links
        ))
    });
    page.collect::<Vec<_>>().concat().len()
}

fn bytes(index: &Index) -> usize {
    let of_entry = |(key, entry): (&String, &Entry)| {
        let tags: usize = entry.tags.iter().map(|tag| tag.capacity() + 24).sum();
        key.capacity() + entry.title.capacity() + tags + 8 * entry.links.capacity()
    };
    let table = index.capacity() * (24 + size_of::<Entry>());
    table + index.iter().map(of_entry).sum::<usize>()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_time()
        .build()
        .expect("no runtime");
    let index: Arc<RwLock<Arc<Index>>> = Arc::default();
    let over = Arc::new(AtomicBool::new(false));
    println!("work");
    let requests = (0..16).map(|number: u64| {
        let (index, over) = (Arc::clone(&index), Arc::clone(&over));
        runtime.spawn(async move {
            let mut seed = 1 + number;
            while !over.load(Ordering::Relaxed) {
                let current = Arc::clone(&index.read().expect("a rebuild failed"));
                answer(&current, &mut seed);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    });
    let requests: Vec<_> = requests.collect();
    let check = runtime.block_on(async {
        for generation in 0..REBUILDS {
            let new = Arc::new(rebuilt(generation).await);
            *index.write().expect("a request failed") = new;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        over.store(true, Ordering::Relaxed);
        for request in requests {
            request.await.expect("a request failed");
        }
        answer(&index.read().expect("a request failed"), &mut 7)
    });
    println!("live {}", bytes(&index.read().expect("a request failed")));
    println!("check {check}\nrest");
    // A failed read is the end, too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
