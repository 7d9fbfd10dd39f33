//! The instruments behind the heap's hook, [`neap_heap::hook`].

use crate::{attach, check, guard, peek, profile, sizes, statistics, unwind};
use attach::When;
use neap_heap::cache::heap::Found;
use neap_heap::cache::misuse::Call;
use neap_heap::cache::thread_cache::Blocks;
use neap_heap::cache::thread_cache::Cache;
use neap_heap::hook::{self, Instruments};
use neap_heap::os::loader;
use neap_heap::os::lock::Lock;
use neap_heap::pages::SliceRef;
use neap_heap::slab::class::Class;
use neap_shared::control::Value;
use neap_shared::status_page::ThreadState;

/// All of them.
struct All;

static ALL: &dyn Instruments = &All;

/// Before all other code of the program or library that this is linked into: its first allocation
/// reads the options.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // The loader's list does not change now, as it may at the first allocation of a library that
    // the program opens.
    loader::begin();
    profile::find_python();
    install();
}

/// Installs the instruments, in a library that may start before its constructors. The loader is not
/// asked: what it calls may be another library's, which allocates.
pub fn install() {
    hook::install(&ALL);
}

impl Instruments for All {
    unsafe fn set_option(&self, name: &str, value: Value<'_>) {
        match (name, value) {
            // SAFETY: the caller's promise: one thread.
            ("stats", Value::Choice(word)) => unsafe { statistics::choose(word) },
            // SAFETY: as above.
            ("stats-file", Value::Path(path)) => unsafe { statistics::keep_path(path) },
            ("sample", Value::Bytes(rate)) => profile::want(rate),
            ("guard", Value::Millis(interval)) => guard::want(interval),
            // SAFETY: as above.
            ("guard-file", Value::Path(path)) => unsafe { guard::keep_path(path) },
            ("status-page", Value::Choice("0")) => attach::choose(When::Never),
            ("status-page", Value::Choice("1")) => attach::choose(When::AtStart),
            // SAFETY: as above.
            ("monitor", Value::Path(name)) => unsafe { attach::keep_monitor(name) },
            _ => {}
        }
    }

    fn begin(&self) {
        attach::begin();
        profile::begin();
        guard::begin();
    }

    fn sample(&self, cache: &Cache, size: usize, class: Class) -> Option<*mut u8> {
        profile::take(cache, size, class)
    }

    fn guard(&self, cache: &Cache, size: usize, align: usize, class: Class) -> Option<*mut u8> {
        guard::take(cache, [size, align], class)
    }

    fn guarded_bytes(&self, call: Call, address: usize) -> usize {
        guard::bytes(call, address)
    }

    fn guarded_freed(&self, address: usize) {
        guard::give(address);
    }

    fn large_made(&self, place: &SliceRef<'_>, size: usize, usable: usize) {
        profile::note_large(place, size, usable);
    }

    fn sampled_freed(&self, address: usize) {
        profile::note_freed(address);
    }

    fn requested(&self, size: usize, class: Option<Class>) {
        sizes::note(size, class);
    }

    fn hold(&self, address: usize, found: &Found) -> bool {
        check::hold(address, found)
    }

    unsafe fn hold_back(&self, blocks: &Blocks) -> bool {
        // SAFETY: the caller's promise.
        unsafe { check::hold_back(blocks) }
    }

    fn holds(&self, address: usize) -> bool {
        check::holds(address)
    }

    fn wants_status_page(&self) -> bool {
        attach::is_wanted_soon()
    }

    fn make_status_page(&self) {
        attach::renew();
    }

    fn answer_on_the_way(&self) {
        attach::on_the_way();
    }

    fn answer_due(&self) -> bool {
        guard::arm_due() | attach::serve_due()
    }

    fn due_in_ms(&self) -> Option<u64> {
        let due = [attach::due_in_ms(), guard::due_in_ms()];
        due.into_iter().flatten().min()
    }

    fn note_thread(&self, state: ThreadState) {
        attach::note_thread(state);
    }

    fn callers<'f>(&self, frames: &'f mut [u64], room: usize) -> Option<&'f [u64]> {
        if peek::is_reliable() && !peek::has_stack(room) {
            return None;
        }
        let depth = unwind::capture(frames);
        let frames = &frames[..depth];
        let is_handler = |&pc: &u64| unwind::is_signal_return(pc as usize);
        (!frames.iter().any(is_handler)).then_some(frames)
    }

    #[unsafe(link_section = "neap_text")]
    fn locks(&self) -> &'static [&'static Lock] {
        static LOCKS: [&Lock; 4 + check::LOCKS] = {
            let mut locks = [&attach::LOCK; 4 + check::LOCKS];
            let mut number = 0;
            while number < check::LOCKS {
                locks[1 + number] = check::lock(number);
                number += 1;
            }
            locks[1 + number] = profile::LOCK;
            locks[2 + number] = profile::PACE_LOCK;
            locks[3 + number] = guard::LOCK;
            locks
        };
        &LOCKS
    }

    #[unsafe(link_section = "neap_text")]
    fn after_fork_in_child(&self) {
        profile::after_fork_in_child();
        guard::after_fork_in_child();
        attach::after_fork_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_heap::os::lock_order::ORDER;
    use std::vec::Vec;

    #[test]
    fn a_fork_closes_the_instruments_locks_in_the_order_of_the_table() {
        let mut ranks: Vec<_> = ALL.locks().iter().map(|lock| lock.rank()).collect();
        assert_eq!(ranks.len(), 4 + check::LOCKS);
        ranks.dedup();
        assert!(
            ranks
                .iter()
                .eq(ORDER[..ranks.len()].iter().map(|row| &row.rank))
        );
    }
}
