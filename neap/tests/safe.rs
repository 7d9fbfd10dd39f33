//! Every safe item of the crate, called by a program that forbids unsafe code. `surface.rs` checks
//! that none is missing.
#![forbid(unsafe_code)]

use neap::profile::{self, ProfileError};
use neap::stack::{self, Stack, StackError, StackFigures};
use neap::stats::{
    self, Bytes, ClassFigures, Counted, Json, Ledger, Line, Requested, Sign, Snapshot, SpanFigures,
    Text, USE_NAMES,
};
use neap::{Neap, guard, limits, purge};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Neap = Neap;

const MIB: usize = 1 << 20;

/// Limits, decay and profiler are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn stacks() {
    let _alone = alone();
    let before: StackFigures = stack::figures();
    let stack = Stack::new(64 << 10).unwrap();
    stack.set_owner(c"a test");
    assert_eq!(
        stack.limit().addr().get() + stack.bytes(),
        stack.top().addr().get()
    );
    assert_eq!(stack::figures().used, before.used + 1);
    let error: StackError = Stack::new(1).unwrap_err();
    assert_eq!(error.to_string(), "a stack has 8 KiB to 8 MiB");
    drop(stack);
    assert_eq!(stack::figures().used, before.used);
    assert!(stack::free_cached() >= 64 << 10);
    assert!(stack::report_overflows());
    // Given up for good: a leak, and nothing worse.
    let top = Stack::new(8 << 10).unwrap().into_raw();
    assert_eq!(top.addr().get() % 4096, 0);
}

#[test]
fn purging() {
    let _alone = alone();
    purge::enable_thread();
    assert_eq!(purge::decay(), Duration::from_secs(1));
    purge::set_decay(Duration::MAX);
    assert_eq!(purge::decay(), Duration::from_secs(3600));
    drop(vec![1u8; 64 * MIB]);
    assert!(purge::all() >= 64 * MIB);
    purge::keep_resident(usize::MAX);
    let figures = stats::snapshot();
    drop(vec![1u8; 64 * MIB]);
    assert!(stats::snapshot().free_dirty >= figures.free_dirty + 63 * MIB as u64);
    purge::keep_resident(0);
    {
        let _pause: purge::Pause = purge::pause();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names =
            threads.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        assert!(names.into_iter().all(|name| name.trim() != "neap-purge"));
    }
    purge::set_decay(Duration::from_secs(1));
}

#[test]
fn bounds() {
    let _alone = alone();
    assert_eq!([limits::hard(), limits::soft(), limits::dirty()], [None; 3]);
    limits::set_hard(Some(512 * MIB));
    limits::set_soft(Some(256 * MIB));
    limits::set_dirty(Some(MIB));
    assert_eq!(limits::hard(), Some(512 * MIB));
    assert_eq!(limits::soft(), Some(256 * MIB));
    assert_eq!(limits::dirty(), Some(MIB));
    let mut bytes = Vec::<u8>::new();
    assert!(bytes.try_reserve(600 * MIB).is_err());
    assert!(bytes.try_reserve(100 * MIB).is_ok());
    // Whatever the bounds, what the program has stays.
    let kept: Vec<u8> = (0..=255).collect();
    limits::set_hard(Some(0));
    assert!(Vec::<u8>::new().try_reserve(MIB).is_err());
    limits::set_hard(None);
    limits::set_soft(None);
    limits::set_dirty(None);
    assert_eq!(limits::hard(), None);
    assert!(kept.iter().copied().eq(0..=255));
}

#[test]
fn guarded() {
    let _alone = alone();
    assert!(guard::start(Duration::ZERO));
    let mut kept: Vec<Vec<u8>> = (0..500).map(|bytes| vec![7; bytes]).collect();
    kept.iter_mut().for_each(|bytes| bytes.extend([8; 100]));
    guard::stop();
    let is_whole = |(bytes, block): (usize, &Vec<u8>)| {
        block[..bytes].iter().all(|&byte| byte == 7) && block[bytes..] == [8; 100]
    };
    assert!(kept.iter().enumerate().all(is_whole));
}

#[test]
fn figures() {
    let _alone = alone();
    let kept = vec![1u8; 3 * MIB];
    let mut figures = Box::new(Snapshot::default());
    stats::snapshot_into(&mut figures);
    assert!(figures.live >= 3 * MIB as u64);
    assert!(figures.lines().iter().any(|(name, ..)| *name == "live"));
    let class: &ClassFigures = &figures.classes[1];
    assert!(class.live() <= class.blocks);
    let spans: &[SpanFigures] = &figures.spans;
    assert_eq!(spans.len(), USE_NAMES.len());
    let counted: Counted = figures.counted;
    assert_eq!(counted.known, 0, "NEAP_COUNT is not set");
    let ledger: &Ledger = &figures.ledger;
    assert_eq!(ledger.sum(), i128::from(ledger.resident));
    assert_eq!(ledger.requested_by, Requested::Guessed as u64);
    let line: &Line = &ledger.lines()[0];
    assert_eq!((line.name, line.sign), ("requested", Sign::Plus));
    assert_eq!(line.sign.mark(), '+');
    assert!(ledger.resident_meaning().starts_with("the sum"));
    assert!(Text(&figures).to_string().contains("ledger"));
    assert!(Json(&figures).to_string().contains("\"live\":"));
    assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
    // Figures of a program's own invention print, too.
    let odd: Snapshot = Snapshot {
        live: u64::MAX,
        counted: Counted {
            known: 9,
            ..counted
        },
        ..*figures
    };
    assert!(!format!("{} {}", Text(&odd), Json(&odd)).is_empty());
    drop(kept);
}

#[test]
fn samples() {
    let _alone = alone();
    for rate in [0, 1, u64::MAX] {
        let error: ProfileError = profile::start(rate).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the rate of the profiler is 4 KiB to 1 GiB"
        );
    }
    assert_eq!(profile::rate(), None);
    profile::start(4 << 10).unwrap();
    assert_eq!(profile::rate(), Some(4 << 10));
    let blocks: Vec<Vec<usize>> = (0..2_000).map(|number| vec![number; 64]).collect();
    profile::stop();
    assert_eq!(profile::rate(), None);
    let file = profile::pprof().unwrap();
    assert!(file.windows(11).any(|bytes| bytes == b"inuse_space"));
    let intact = |(number, block): (usize, &Vec<usize>)| block.iter().all(|&word| word == number);
    assert!(blocks.iter().enumerate().all(intact));
}

/// In a process of its own: it is for good.
#[test]
fn sandboxes() {
    const MARK: &str = "SAFE_TEST_SANDBOX";
    if std::env::var_os(MARK).is_some() {
        assert_eq!(profile::pprof(), Err(ProfileError::Off));
        profile::start(MIB as u64).unwrap();
        profile::stop();
        assert!(guard::start(Duration::from_millis(20)));
        guard::stop();
        neap::prepare_for_sandbox();
        assert_eq!(profile::start(MIB as u64), Err(ProfileError::Sandbox));
        assert!(!guard::start(Duration::from_millis(20)));
        drop(vec![1u8; 64 * MIB]);
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandboxes"])
        .env(MARK, "1")
        .status()
        .unwrap();
    assert!(status.success());
}

/// Threads allocate, purge, sample and change limits at once, and every value stays what it was.
#[test]
fn at_once() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for seed in 0..4usize {
            scope.spawn(move || {
                for round in 0..200usize {
                    let texts: Vec<String> = (0..100)
                        .map(|number| format!("{seed} {round} {number}"))
                        .collect();
                    let _stack = Stack::new((8 << (round % 4)) << 10).unwrap();
                    match round % 40 {
                        7 => {
                            _ = purge::all();
                        }
                        17 => {
                            _ = profile::start(8 << 10);
                        }
                        27 => profile::stop(),
                        31 => limits::set_soft(Some(seed * MIB + MIB)),
                        33 => {
                            _ = stats::snapshot();
                        }
                        37 => {
                            _ = stack::free_cached();
                        }
                        _ => {}
                    }
                    let right = |(number, text): (usize, &String)| {
                        *text == format!("{seed} {round} {number}")
                    };
                    assert!(texts.iter().enumerate().all(right));
                }
            });
        }
    });
    profile::stop();
    limits::set_soft(None);
}
