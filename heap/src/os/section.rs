//! Sections of code that must not call the kernel: those under a lock for which all other threads
//! wait.
//!
//! Debug builds check this. [`Section`] notes which thread is in such a section. There, every call
//! of [`super::Os`] that may enter the kernel ends the process, and so does sleeping for a lock.
//! Calls that cost no system call are exempt: the clock, and the size of a page.

#[cfg(debug_assertions)]
use crate::base::sync::plain::{AtomicUsize, Ordering};

/// How many sections are noted at once; more go unchecked.
#[cfg(debug_assertions)]
const PLACES: usize = 64;

/// The threads that are in sections; 0 marks a free place.
#[cfg(debug_assertions)]
static INSIDE: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// The calling thread's way through a section, which ends when this is dropped.
#[derive(Debug)]
pub struct Section {
    #[cfg(debug_assertions)]
    place: Option<usize>,
}

impl Section {
    /// Enters a section.
    #[cfg(debug_assertions)]
    pub fn enter() -> Self {
        let take = |place: &AtomicUsize| {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            place
                .compare_exchange(0, this_thread(), success, failure)
                .is_ok()
        };
        Self {
            place: INSIDE.iter().position(take),
        }
    }

    /// Enters a section, which release builds do not note.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub const fn enter() -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
impl Drop for Section {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            INSIDE[place].store(0, Ordering::Relaxed);
        }
    }
}

/// Ends the process in a section, in debug builds; in unit tests, panics.
#[inline(always)]
pub fn assert_outside() {
    #[cfg(debug_assertions)]
    if INSIDE
        .iter()
        .any(|place| place.load(Ordering::Relaxed) == this_thread())
    {
        const WHAT: &str = "a system call under a lock for which all others wait";
        #[cfg(test)]
        panic!("{WHAT}");
        #[cfg(not(test))]
        super::abort::fatal(format_args!("{WHAT}"));
    }
}

/// What identifies this thread among the living ones: the address of its `errno`.
#[cfg(debug_assertions)]
fn this_thread() -> usize {
    super::errno::location().addr()
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_its_threads_own_and_ends() {
        let panics = || std::panic::catch_unwind(assert_outside).is_err();
        let section = Section::enter();
        assert!(panics());
        std::thread::scope(|scope| scope.spawn(assert_outside).join().unwrap());
        let inner = Section::enter();
        drop(inner);
        assert!(panics());
        drop(section);
        assert_outside();
    }
}
