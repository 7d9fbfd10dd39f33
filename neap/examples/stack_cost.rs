//! The cost of creating and ending a coroutine, on corosensei's own stacks and on Neap's: ns per
//! coroutine, best of several rounds.
//!
//! `cargo run --release -p neap --features corosensei --example stack_cost`

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, stack};
use neap::stack::Stack;
use std::time::{Duration, Instant};

const BYTES: usize = 64 << 10;
const ROUNDS: usize = 20;

/// Creates, enters and ends `count` coroutines, one after the other.
fn one_by_one<S: stack::Stack + 'static>(count: u32, new: impl Fn() -> S) -> Duration {
    let start = Instant::now();
    for number in 0..count {
        let mut coroutine = Coroutine::<u32, (), u32, S>::with_stack(new(), |_, input| input);
        assert_eq!(coroutine.resume(number).as_return(), Some(number));
    }
    start.elapsed() / count
}

/// The same, of `count` at once; the second time is that of their end.
fn all_at_once<S: stack::Stack + 'static>(count: u32, new: impl Fn() -> S) -> [Duration; 2] {
    let start = Instant::now();
    let mut all: Vec<_> = (0..count)
        .map(|_| Coroutine::<(), (), (), S>::with_stack(new(), |yielder, ()| yielder.suspend(())))
        .collect();
    all.iter_mut().for_each(|coroutine| {
        coroutine.resume(());
    });
    let created = start.elapsed() / count;
    let start = Instant::now();
    all.iter_mut().for_each(|coroutine| {
        coroutine.resume(());
    });
    drop(all);
    [created, start.elapsed() / count]
}

fn best<T: Ord>(run: impl FnMut() -> T) -> Option<T> {
    std::iter::repeat_with(run).take(ROUNDS).min()
}

fn main() {
    let neap = || Stack::new(BYTES).expect("memory");
    let default = || DefaultStack::new(BYTES).expect("memory");
    println!(
        "one by one   neap {:?}",
        best(|| one_by_one(20_000, neap)).unwrap_or_default()
    );
    println!(
        "             default {:?}",
        best(|| one_by_one(20_000, default)).unwrap_or_default()
    );
    println!("20,000, [create and enter, end]");
    println!(
        "             neap {:?}",
        best(|| all_at_once(20_000, neap)).unwrap_or_default()
    );
    println!(
        "             default {:?}",
        best(|| all_at_once(20_000, default)).unwrap_or_default()
    );
    println!("{:?}", neap::stack::figures());
}
