//! Makes requests to a process through its status page, and says why one has not been answered.
//!
//! Request numbers grow, so an answer to a later request, by any observer, also answers the earlier
//! ones.

use super::memory_file::ended;
use super::status_page::StatusPage;
use crate::failure::Failure;
use bytemuck::Pod;
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{
    CONTROL_AT, Coarse, Control, Guards, LEASE_MS, LEAST_INTERVAL_MS, Refusal, Served, ThreadState,
};
use neap_shared::units::SLICE_SHIFT;
use rustix::time::{ClockId, clock_gettime};
use std::mem::offset_of;
use std::time::{Duration, Instant};
use std::{io, thread};

/// First and longest pause between two looks for an answer; each pause is twice the one before.
const LOOK: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(2)];

impl StatusPage {
    /// Asks for figures and waits for them for at most `timeout`. Returns what the process wrote
    /// after the request, or `None`; [`Self::silence`] then says why.
    ///
    /// # Errors
    ///
    /// The process has ended, or never completes the figures that it writes.
    pub fn ask(&self, timeout: Duration) -> Result<Option<Snapshot>, Failure> {
        let word = offset_of!(Control, ask);
        match self.question(word, |served| served.ask, timeout)? {
            None => Ok(None),
            Some(_) => self.figures().map(Some).ok_or_else(|| self.torn()),
        }
    }

    /// Asks for figures without waiting.
    pub fn nudge(&self) -> Result<(), Failure> {
        let word = offset_of!(Control, ask);
        self.put(word, self.read::<u64>(word)?.wrapping_add(1))?;
        self.ring()
    }

    /// Has the process write its figures every `interval` for `lease` from now, at most
    /// [`LEASE_MS`]. Does not slow down an observer that asked for a shorter interval.
    pub fn watch(&self, interval: Duration, lease: Duration) -> Result<(), Failure> {
        let now = now_ms();
        let wanted = millis(interval).max(LEAST_INTERVAL_MS);
        let control: Control = self.read(0)?;
        let others = if control.lease_until_ms > now {
            control.interval_ms.max(LEAST_INTERVAL_MS)
        } else {
            u64::MAX
        };
        self.put(offset_of!(Control, interval_ms), wanted.min(others))?;
        let until = now.saturating_add(millis(lease).min(LEASE_MS));
        if !(until + 1..=now + LEASE_MS).contains(&control.lease_until_ms) {
            self.put(offset_of!(Control, lease_until_ms), until)?;
        }
        self.ring()
    }

    /// Has the process give all its free pages back to the kernel. Returns how many bytes it gave
    /// back, or `None` if it has not done so within `timeout`.
    pub fn purge(&self, timeout: Duration) -> Result<Option<u64>, Failure> {
        let word = offset_of!(Control, purge);
        let served = self.question(word, |served| served.purge, timeout)?;
        Ok(served.map(|served| served.purged_bytes))
    }

    /// Switches sampling on, with a mean of `rate` bytes between two samples, or off with 0.
    /// Returns the rate in force, or `None` if the process has not answered within `timeout`.
    ///
    /// # Errors
    ///
    /// The process has ended, or refuses.
    pub fn sample(&self, rate: u64, timeout: Duration) -> Result<Option<u64>, Failure> {
        self.put(offset_of!(Control, sample_rate), rate)?;
        let word = offset_of!(Control, sample);
        match self.question(word, |served| served.sample, timeout)? {
            Some(served) if served.sample_refusal != Refusal::None as u64 => {
                Err(self.refusal(served.sample_refusal, &SAMPLING))
            }
            served => Ok(served.map(|served| served.sample_rate)),
        }
    }

    /// Has the process guard these allocations. Returns what it says afterwards, or `None` if it
    /// has not answered within `timeout`.
    ///
    /// # Errors
    ///
    /// The process has ended, or refuses.
    pub fn guard(&self, guards: Guards, timeout: Duration) -> Result<Option<Served>, Failure> {
        self.put(offset_of!(Control, guard_interval), guards.word())?;
        let word = offset_of!(Control, guard);
        match self.question(word, |served| served.guard, timeout)? {
            Some(served) if served.guard_refusal != Refusal::None as u64 => {
                Err(self.refusal(served.guard_refusal, &GUARDING))
            }
            served => Ok(served),
        }
    }

    /// Makes a request, whose number is at `word` of [`Control`]. Returns the process's [`Served`]
    /// once it has answered, or `None` after `timeout`.
    fn question(
        &self,
        word: usize,
        answered: fn(&Served) -> u64,
        timeout: Duration,
    ) -> Result<Option<Served>, Failure> {
        let number = self.read::<u64>(word)?.wrapping_add(1);
        self.put(word, number)?;
        self.ring()?;
        let (start, [mut look, longest]) = (Instant::now(), LOOK);
        loop {
            let served = self.served();
            if reaches(answered(&served), number) {
                return Ok(Some(served));
            }
            // Another observer may have written a smaller number at the same moment.
            if !reaches(self.read(word)?, number) {
                self.put(word, number)?;
                self.ring()?;
            }
            if self.has_ended() {
                return Err(self.over());
            }
            if start.elapsed() >= timeout {
                return Ok(None);
            }
            thread::sleep(look.min(timeout));
            look = (2 * look).min(longest);
        }
    }

    /// Reads from the observers' part of the status page.
    fn read<T: Pod>(&self, at: usize) -> Result<T, Failure> {
        let value = self.reach.value(CONTROL_AT + at);
        value.map_err(|error| self.lost(&error))
    }

    fn put(&self, word: usize, value: u64) -> Result<(), Failure> {
        let written = self.reach.put(CONTROL_AT + word, value);
        written.map_err(|error| self.lost(&error))
    }

    /// Wakes the thread that answers, if the process has one.
    fn ring(&self) -> Result<(), Failure> {
        self.reach.ring().map_err(|error| self.lost(&error))
    }

    /// Why the status page can no longer be reached.
    fn lost(&self, error: &io::Error) -> Failure {
        if self.has_ended() {
            self.over()
        } else {
            failure!(
                "{}: its status page cannot be reached: {error}",
                self.title()
            )
        }
    }

    fn over(&self) -> Failure {
        match self.process() {
            Some(process) => ended(process),
            None => failure!("process {} has ended", self.head().pid),
        }
    }

    fn torn(&self) -> Failure {
        failure!(
            "{}: its status page is malformed: its figures are never complete",
            self.title()
        )
    }

    fn refusal(&self, why: u64, reasons: &[&str; 4]) -> Failure {
        let place = usize::try_from(why).map_or(reasons.len(), |why| why.clamp(1, reasons.len()));
        failure!("{} {}", self.title(), reasons[place - 1])
    }
}

/// What the user is told, by the number of the [`Refusal`] from 1; last, for one that this neap
/// does not know.
const SAMPLING: [&str; 4] = [
    "does not sample at this rate: it is out of bounds",
    "cannot sample: there is no memory for the profile",
    "cannot sample: it has forbidden itself the system calls that sampling needs",
    "refuses to sample for a reason that this neap does not know",
];

/// See [`SAMPLING`].
const GUARDING: [&str; 4] = [
    "does not guard allocations at this interval: it is out of bounds",
    "cannot guard allocations: there is no memory for the pool of guarded blocks",
    "cannot guard allocations: it has forbidden itself the system calls that this needs",
    "refuses to guard allocations for a reason that this neap does not know",
];

/// Whether `reached` is at or after `number`. Both wrap around.
fn reaches(reached: u64, number: u64) -> bool {
    reached.wrapping_sub(number).cast_signed() >= 0
}

/// Now, in ms of `CLOCK_MONOTONIC`.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl StatusPage {
    /// Why the process has not answered in time, and a remedy.
    pub fn silence(&self) -> Silence {
        let is_small = is_small(self.coarse().as_ref());
        Silence::of(&self.served(), self.is_own_heap(), is_small)
    }
}

/// Below this many bytes, the library starts no thread (`START_BYTES` of the purge thread).
const SMALL: u64 = 4 << 20;

/// Whether a heap is that small, by the page heap's own figures. A process without them has not
/// grown.
fn is_small(coarse: Option<&Coarse>) -> bool {
    let used = coarse.map_or(0, |coarse| {
        let slices = coarse.spans.iter().map(|span| span.slices);
        let taken = slices.map(|slices| slices.saturating_mul(1 << SLICE_SHIFT));
        taken.fold(coarse.free_dirty, u64::saturating_add)
    });
    used < SMALL
}

/// Why a process has not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// What the process lacks.
    pub why: &'static str,
    /// What makes it answer at once, if anything does.
    pub remedy: Option<&'static str>,
    /// Whether it may answer by itself.
    pub outlook: Outlook,
}

/// Whether a process that has not answered may still do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// It may.
    #[default]
    Open,
    /// It does not.
    Hopeless,
}

impl Silence {
    /// Derived from what the process says of its thread, and from the size of its heap.
    fn of(served: &Served, is_of_rust: bool, is_small: bool) -> Silence {
        let is = |state: ThreadState| served.thread == state as u64;
        let (why, remedy) = match () {
            () if is(ThreadState::Here) => (
                "its thread has not answered yet: the process is stopped, or the machine is busy",
                None,
            ),
            () if is(ThreadState::Off) => (
                "it was started without the thread that answers (NEAP_PURGE_THREAD=never), so only \
                 calls that leave the allocator's fast path do",
                Some("start it without --purge-thread never"),
            ),
            () if is(ThreadState::Sandboxed) => (
                "it has entered a sandbox, or is about to (neap::prepare_for_sandbox), and answers no \
                 requests",
                None,
            ),
            () if is(ThreadState::NotAsked) && is_of_rust => (
                "a Rust program with Neap as its own allocator has no thread that answers unless \
                 it asks for one, so only calls that leave the allocator's fast path do",
                Some("call neap::purge::enable_thread() in it, or set NEAP_PURGE_THREAD=always"),
            ),
            () if is_small => (
                "its heap is small, so it has no thread that answers, and only calls that leave the \
                 allocator's fast path do",
                Some("start it with neap run --purge-thread always"),
            ),
            () => (
                "it has found no safe moment yet to start the thread that answers, so only calls \
                 that leave the allocator's fast path do",
                Some("start it with neap run --purge-thread always"),
            ),
        };
        let outlook = if is(ThreadState::Sandboxed) {
            Outlook::Hopeless
        } else {
            Outlook::Open
        };
        Silence {
            why,
            remedy,
            outlook,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use bytemuck::bytes_of;
    use neap_shared::status_page::{FIGURES_AT, SERVED_AT};
    use std::mem::offset_of;

    const SHORT: Duration = Duration::from_millis(20);
    /// Longer than any machine needs.
    const LONG: Duration = Duration::from_secs(60);

    /// Runs `serve` on the status page in a loop, in place of a process, while `work` runs.
    fn with_server<T>(
        forged: &Forged,
        serve: impl Fn(Control) -> Served + Sync,
        then: impl FnOnce() -> T,
    ) -> T {
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let served = serve(forged.open().read::<Control>(0).unwrap());
                    forged.write(SERVED_AT, bytes_of(&served));
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let result = then();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            result
        })
    }

    fn obliging(control: Control) -> Served {
        Served {
            ask: control.ask,
            purge: control.purge,
            purged_bytes: 4096,
            sample: control.sample,
            sample_rate: control.sample_rate,
            guard: control.guard,
            guard_interval: control.guard_interval,
            ..Served::default()
        }
    }

    #[test]
    fn nobody_answers() {
        let forged = Forged::status_page();
        let status_page = forged.open();
        assert!(status_page.ask(SHORT).unwrap().is_none());
        assert_eq!(status_page.purge(SHORT).unwrap(), None);
        assert_eq!(status_page.sample(1 << 19, SHORT).unwrap(), None);
        let control = status_page.read::<Control>(0).unwrap();
        assert_eq!((control.ask, control.purge, control.sample), (1, 1, 1));
        assert_eq!(control.sample_rate, 1 << 19);
        assert!(status_page.guard(Guards::All, SHORT).unwrap().is_none());
        let control = status_page.read::<Control>(0).unwrap();
        assert_eq!((control.guard, control.guard_interval), (1, u64::MAX));
    }

    #[test]
    fn answers_are_taken() {
        let forged = Forged::status_page();
        let figures = Snapshot {
            live: 7,
            ..Snapshot::default()
        };
        forged.write(FIGURES_AT + 8, bytes_of(&figures));
        forged.write(FIGURES_AT, &2_u64.to_ne_bytes());
        let status_page = forged.open();
        with_server(&forged, obliging, || {
            let figures = status_page.ask(LONG).unwrap().expect("an answer");
            assert_eq!(figures.live, 7);
            assert_eq!(status_page.purge(LONG).unwrap(), Some(4096));
            assert_eq!(status_page.sample(512, LONG).unwrap(), Some(512));
            let served = status_page.guard(Guards::Every(20), LONG).unwrap();
            assert_eq!(served.map(|served| served.guard_interval), Some(20));
        });
    }

    #[test]
    fn a_refusal_is_told() {
        let forged = Forged::status_page();
        let refusing = |control: Control| Served {
            sample: control.sample,
            sample_refusal: 3,
            ..Served::default()
        };
        let refusal = with_server(&forged, refusing, || forged.open().sample(1, LONG));
        assert!(
            refusal
                .unwrap_err()
                .to_string()
                .contains("forbidden itself")
        );
        let refusing = |control: Control| Served {
            guard: control.guard,
            guard_refusal: 1,
            ..Served::default()
        };
        let guard = || forged.open().guard(Guards::Every(1), LONG);
        let refusal = with_server(&forged, refusing, guard)
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("does not guard allocations at this interval"));
    }

    #[test]
    fn figures_that_are_never_complete_are_an_error() {
        let forged = Forged::status_page();
        forged.write(FIGURES_AT, &1_u64.to_ne_bytes());
        let torn = with_server(&forged, obliging, || forged.open().ask(LONG));
        assert!(torn.unwrap_err().to_string().contains("malformed"));
    }

    #[test]
    fn the_one_who_wants_figures_oftener_keeps_getting_them() {
        let forged = Forged::status_page();
        let status_page = forged.open();
        status_page
            .watch(Duration::from_millis(100), Duration::from_secs(50))
            .unwrap();
        status_page
            .watch(Duration::from_secs(2), Duration::from_secs(5))
            .unwrap();
        let control = status_page.read::<Control>(0).unwrap();
        assert_eq!(control.interval_ms, 100);
        let left = control.lease_until_ms - now_ms();
        assert!(left > 5_000 && left <= 50_000, "{left}");
    }

    #[test]
    fn intervals_and_leases_are_kept_within_bounds() {
        let forged = Forged::status_page();
        forged.write(CONTROL_AT + offset_of!(Control, lease_until_ms), &[0xff; 8]);
        let status_page = forged.open();
        status_page.watch(Duration::ZERO, Duration::MAX).unwrap();
        let control = status_page.read::<Control>(0).unwrap();
        assert_eq!(control.interval_ms, LEAST_INTERVAL_MS);
        assert!(control.lease_until_ms <= now_ms() + LEASE_MS);
    }

    #[test]
    fn numbers_start_again_at_zero() {
        assert!(reaches(0, u64::MAX) && reaches(5, 5) && reaches(6, 5));
        assert!(!reaches(4, 5) && !reaches(u64::MAX, 0));
    }

    #[test]
    fn silence_has_the_reason_of_its_heap() {
        use neap_shared::status_page::{COARSE_AT, Head};
        let why = |forged: &Forged| forged.open().silence();
        let forged = Forged::status_page();
        assert!(why(&forged).why.starts_with("its heap is small"));
        let mut coarse = Coarse {
            sequence: 2,
            free_dirty: 1 << 20,
            ..Coarse::default()
        };
        coarse.spans[0].slices = (3 << 20) >> neap_shared::units::SLICE_SHIFT;
        forged.write(COARSE_AT, bytes_of(&coarse));
        let large = why(&forged);
        assert!(large.why.contains("no safe moment"), "{}", large.why);
        let frontend = offset_of!(Head, frontend);
        forged.write(frontend, &2_u64.to_ne_bytes());
        let asked = why(&forged);
        assert!(asked.why.contains("no safe moment"), "{}", asked.why);
        let with_thread = |state: ThreadState| {
            let served = Served {
                thread: state as u64,
                ..Served::default()
            };
            forged.write(SERVED_AT, bytes_of(&served));
            why(&forged)
        };
        let rust = with_thread(ThreadState::NotAsked);
        assert!(rust.why.starts_with("a Rust program"), "{}", rust.why);
        assert!(rust.remedy.unwrap().contains("enable_thread"));
        assert_eq!(rust.outlook, Outlook::Open);
        let off = with_thread(ThreadState::Off);
        assert!(off.why.contains("NEAP_PURGE_THREAD=never"));
        let sandboxed = with_thread(ThreadState::Sandboxed);
        assert!(sandboxed.why.contains("sandbox"));
        assert_eq!(
            (sandboxed.remedy, sandboxed.outlook),
            (None, Outlook::Hopeless)
        );
    }
}
