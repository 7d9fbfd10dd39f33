//! Interprets an input as calls of the heap, and compares the heap with a model of it: a map from
//! addresses to blocks. A block's bytes are checked before every call that ends or moves it.
//!
//! Each call is one byte, followed by the bytes of its arguments. An input that ends in the middle
//! of a call ends before it.

mod crew;
mod model;

use crew::crew;
use model::{Block, Model, Way};
use neap_heap::cache::heap::HEAP;
use neap_heap::init::take_measures;
use neap_heap::reclaim::round;
use neap_heap::stacks::stack::Stack;
use neap_heap::watched::harden::Measures;
use neap_instruments::survey::snapshot;
use std::io;
use std::sync::OnceLock;

/// The heap's value for no limit.
const NO_LIMIT: usize = usize::MAX;
/// More forks than this take too long for one input.
const MOST_FORKS: u32 = 2;
/// More live bytes than these slow the rounds down.
const MOST_LIVE: usize = 64 << 20;

/// The rest of an input.
struct Script<'a> {
    bytes: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    /// A size in two bytes: a shift of up to 14, and 12 bits. Most are small.
    fn size(&mut self) -> Option<usize> {
        let (low, high) = (self.byte()?, self.byte()?);
        let bits = usize::from(low) | usize::from(high & 15) << 8;
        Some(match high >> 4 {
            shift @ 0..10 => bits >> (9 - shift).min(6),
            shift => bits << (shift - 9),
        })
    }

    /// An alignment of up to 64 KiB, mostly small.
    fn align(&mut self) -> Option<usize> {
        Some(1 << (self.byte()? % 17))
    }
}

/// What an input has done so far.
struct Player {
    model: Model,
    stacks: Vec<Stack>,
    forks: u32,
    /// A limit is set, so any allocation may fail.
    is_limited: bool,
}

/// [`calls`] in hardened mode, with all measures.
pub fn hardened_calls(bytes: &[u8]) {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        neap_instruments::install();
        take_measures(Measures::ALL);
        assert!(HEAP.measures().has(Measures::ALL));
    });
    calls(bytes);
}

/// Performs the calls, gives everything back, and looks at the heap at rest.
pub fn calls(bytes: &[u8]) {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        crew();
    });
    let mut player = Player {
        model: Model::default(),
        stacks: Vec::new(),
        forks: 0,
        is_limited: false,
    };
    let mut script = Script { bytes };
    while player.step(&mut script).is_some() {}
    player.end();
}

impl Player {
    fn step(&mut self, script: &mut Script) -> Option<()> {
        match script.byte()? % 32 {
            code @ 0..=9 => self.allocate(code, script)?,
            code @ 10..=15 => self.free(Way::of(code - 10), script)?,
            16..=18 => self.resize(script)?,
            19 => self.model.check_usable(usize::from(script.byte()?)),
            20 => self.stack(script)?,
            21 => self.end_stack(script)?,
            22 => self.trim(script)?,
            23 => drop(round::purge_all()),
            24 => self.limit(script)?,
            25 => self.survey(),
            26 => self.fork(),
            27 => self.hand_over(script)?,
            28 => self.free_elsewhere(script)?,
            29 => self.at_once(script)?,
            30 => self.short_thread(script)?,
            _ => self.settings(script)?,
        }
        Some(())
    }

    fn allocate(&mut self, code: u8, script: &mut Script) -> Option<()> {
        let size = script.size()?;
        let align = if code < 7 { 1 } else { script.align()? };
        if self.model.live() + size > MOST_LIVE {
            return Some(());
        }
        let made = Block::allocate(code, size, align, script.byte()?);
        self.note(made);
        Some(())
    }

    fn note(&mut self, made: Option<Block>) {
        match made {
            Some(block) => self.model.add(block),
            None => assert!(self.is_limited, "out of memory without a limit"),
        }
    }

    fn free(&mut self, way: Way, script: &mut Script) -> Option<()> {
        if let Some(block) = self.model.take(usize::from(script.byte()?)) {
            block.free(way);
        }
        Some(())
    }

    fn resize(&mut self, script: &mut Script) -> Option<()> {
        let (which, size) = (usize::from(script.byte()?), script.size()?.max(1));
        if self.model.live() + size > MOST_LIVE {
            return Some(());
        }
        if let Some(block) = self.model.take(which) {
            let moved = block.resize(size);
            assert!(
                moved.is_some() || self.is_limited,
                "out of memory without a limit"
            );
            // A block that could not be resized stays as it was.
            self.model.add(moved.unwrap_or(block));
        }
        Some(())
    }

    fn stack(&mut self, script: &mut Script) -> Option<()> {
        let bytes = usize::from(script.byte()?) << 12;
        match Stack::new(bytes) {
            Ok(stack) => {
                assert!(bytes >= 8 << 10 && stack.bytes() + (4 << 10) >= bytes);
                let (low, high) = (stack.limit().as_ptr(), stack.top().as_ptr());
                self.model.check_apart(low.addr(), high.addr());
                // SAFETY: the ends of a stack that no coroutine runs on.
                unsafe {
                    low.write(1);
                    high.sub(1).write(2);
                }
                self.stacks.push(stack);
            }
            Err(_) => assert!(
                self.is_limited || bytes < 8 << 10,
                "no stack of {bytes} bytes"
            ),
        }
        Some(())
    }

    fn end_stack(&mut self, script: &mut Script) -> Option<()> {
        let which = usize::from(script.byte()?);
        if !self.stacks.is_empty() {
            let stack = self.stacks.swap_remove(which % self.stacks.len());
            let top = stack.into_raw();
            // SAFETY: just given up.
            drop(unsafe { Stack::from_raw(top) });
        }
        Some(())
    }

    fn trim(&mut self, script: &mut Script) -> Option<()> {
        let (which, depth) = (usize::from(script.byte()?), usize::from(script.byte()?));
        if let Some(stack) = self.stacks.get(which % self.stacks.len().max(1)) {
            let top = stack.top().as_ptr();
            let pointer = top.wrapping_sub((depth << 6).min(stack.bytes() - 256) + 8);
            // SAFETY: no coroutine runs on the stack; the last byte is above the pointer.
            unsafe {
                stack.trim(pointer);
                assert_eq!(top.sub(1).read(), 2, "the used part of a stack has changed");
            }
        }
        Some(())
    }

    fn limit(&mut self, script: &mut Script) -> Option<()> {
        let limits = HEAP.pages.limits();
        let kind = script.byte()?;
        let bytes = usize::from(script.byte()?) << 18;
        // What the others do was begun without this limit.
        crew().rest();
        match kind % 4 {
            0 => limits.set_hard(bytes),
            1 => limits.set_soft(bytes),
            2 => limits.set_dirty(bytes),
            _ => {
                self.lift_limits();
                return Some(());
            }
        }
        self.is_limited |= kind % 4 == 0;
        Some(())
    }

    fn lift_limits(&mut self) {
        let limits = HEAP.pages.limits();
        limits.set_hard(NO_LIMIT);
        limits.set_soft(NO_LIMIT);
        limits.set_dirty(NO_LIMIT);
        self.is_limited = false;
    }

    /// The ledger adds up, and counts what the model has.
    fn survey(&self) {
        crew().rest();
        let figures = snapshot();
        let ledger = &figures.ledger;
        assert_eq!(ledger.sum(), i128::from(ledger.resident), "{ledger:?}");
        let (live, usable) = (figures.live, self.model.usable() as u64);
        if HEAP.measures().harden() {
            // The heap counts what blocks take, canaries among it.
            assert!(
                live >= usable,
                "{live} bytes of live blocks, {usable} usable"
            );
            assert_eq!(live == 0, self.model.is_empty(), "live bytes: {live}");
        } else {
            assert_eq!(live, usable, "usable bytes of live blocks");
        }
        assert_eq!(
            figures.stacks.used,
            self.stacks.len() as u64,
            "stacks in use"
        );
    }

    fn settings(&mut self, script: &mut Script) -> Option<()> {
        let (kind, value) = (script.byte()?, script.byte()?);
        match kind % 3 {
            0 => HEAP.pages.limits().set_decay_ms(u64::from(value)),
            1 => round::keep_free(usize::from(value) << 16),
            _ => drop(neap_heap::stacks::stack::release_idle()),
        }
        Some(())
    }

    /// The child checks every block, works, and ends; its parent goes on.
    fn fork(&mut self) {
        if self.forks == MOST_FORKS {
            return;
        }
        self.forks += 1;
        crew().rest();
        // SAFETY: the child uses only the heap, which is prepared for that, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no process can be made");
        if child == 0 {
            self.model.work_in_child(self.is_limited);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: our own child.
        let mut wait = || unsafe { libc::waitpid(child, &mut status, 0) };
        // The fuzzer's timer may interrupt it.
        let ended = loop {
            match wait() {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                ended => break ended,
            }
        };
        assert_eq!(ended, child, "{}", io::Error::last_os_error());
        assert_eq!(status, 0, "the child of a fork ended with this status");
    }

    /// Another thread allocates for this one.
    fn hand_over(&mut self, script: &mut Script) -> Option<()> {
        let (size, seed) = (script.size()?, script.byte()?);
        if self.model.live() + size <= MOST_LIVE {
            let made = crew().ask(seed, move || Block::allocate(seed % 7, size, 1, seed));
            self.note(made);
        }
        Some(())
    }

    /// Another thread frees a block of this one.
    fn free_elsewhere(&mut self, script: &mut Script) -> Option<()> {
        let which = script.byte()?;
        if let Some(block) = self.model.take(usize::from(which)) {
            crew().tell(which, move || block.free(Way::of(which % 6)));
        }
        Some(())
    }

    /// Two threads allocate and free at the same time as this one.
    fn at_once(&mut self, script: &mut Script) -> Option<()> {
        let (size, count) = (script.size()?.min(64 << 10), script.byte()? % 32);
        let limited = self.is_limited;
        let work = move |seed: u8| {
            let mut model = Model::default();
            for number in 0..count {
                match Block::allocate(number % 7, size, 1, seed ^ number) {
                    Some(block) => model.add(block),
                    None => assert!(limited, "out of memory without a limit"),
                }
                if number % 3 == 2 {
                    model
                        .take(usize::from(number))
                        .into_iter()
                        .for_each(|block| block.free(Way::Plain));
                }
            }
            model.free_all();
        };
        crew().tell(0, move || work(0));
        crew().tell(1, move || work(1));
        work(2);
        Some(())
    }

    /// A thread that ends leaves its cache, and a block.
    fn short_thread(&mut self, script: &mut Script) -> Option<()> {
        let (size, seed) = (script.size()?.min(64 << 10), script.byte()?);
        let made = std::thread::spawn(move || {
            let kept = Block::allocate(seed % 7, size, 1, seed);
            Block::allocate(0, size / 2, 1, seed)
                .into_iter()
                .for_each(|block| block.free(Way::Plain));
            kept
        });
        self.note(made.join().expect("the thread does not panic"));
        Some(())
    }

    fn end(mut self) {
        self.model.free_all();
        self.stacks.clear();
        self.lift_limits();
        HEAP.pages.limits().set_decay_ms(1000);
        round::keep_free(0);
        crew().rest();
        HEAP.pages
            .check()
            .expect("the page heap keeps its invariants");
        self.survey();
    }
}
