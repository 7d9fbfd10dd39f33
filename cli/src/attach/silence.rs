//! Why a process has not answered a request, and whether it may yet.

use super::status_page::StatusPage;
use neap_shared::status_page::{Coarse, Served, ThreadState};
use neap_shared::units::SLICE_SHIFT;

impl StatusPage {
    /// Why the process has not answered in time, and a remedy.
    pub fn silence(&self) -> Silence {
        let size = Size::of_heap(self.coarse().as_ref());
        Silence::of(&self.served(), self.is_own_heap(), size)
    }
}

/// Below this many bytes, the library starts no thread (`START_BYTES` of the purge thread).
const SMALL: u64 = 4 << 20;

/// The heap of a process that has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Below [`SMALL`].
    Small,
    /// At least [`SMALL`].
    Large,
}

impl Size {
    /// By the page heap's own figures. A process without them has not grown.
    fn of_heap(coarse: Option<&Coarse>) -> Size {
        let used = coarse.map_or(0, |coarse| {
            let spans = coarse.spans.iter();
            let taken = spans.fold(0_u64, |sum, span| {
                sum.saturating_add(span.slices.saturating_mul(1 << SLICE_SHIFT))
            });
            taken.saturating_add(coarse.free_dirty)
        });
        match used < SMALL {
            true => Size::Small,
            false => Size::Large,
        }
    }
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
    fn of(served: &Served, is_of_rust: bool, size: Size) -> Silence {
        let is = |state: ThreadState| served.thread == state as u64;
        let (why, remedy) = match () {
            () if is(ThreadState::Here) => (
                "its thread has not answered yet: the process is stopped, or the machine is busy",
                None,
            ),
            () if is(ThreadState::Off) => (
                "it was started without the thread that answers (NEAP_PURGE_THREAD=never), so only \
                 its own calls of the allocator do",
                Some("start it without --purge-thread never"),
            ),
            () if is(ThreadState::Sandboxed) => (
                "it has entered a sandbox, or is about to (neap::prepare_for_sandbox), and answers no \
                 requests",
                None,
            ),
            () if is(ThreadState::NotAsked) && is_of_rust => (
                "a Rust program with Neap as its own allocator has no thread that answers unless \
                 it asks for one, so only \
                 its own calls of the allocator do",
                Some("call neap::purge::enable_thread() in it, or set NEAP_PURGE_THREAD=always"),
            ),
            () if size == Size::Small => (
                "its heap is small, so it has no thread that answers, only its own calls of the \
                 allocator do",
                Some("start it with neap run --purge-thread always"),
            ),
            () => (
                "it has found no safe moment yet to start the thread that answers, so only its own \
                 calls of the allocator do",
                Some("start it with neap run --purge-thread always"),
            ),
        };
        let outlook = match is(ThreadState::Sandboxed) {
            true => Outlook::Hopeless,
            false => Outlook::Open,
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
    use neap_shared::status_page::SERVED_AT;
    use std::mem::offset_of;

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
