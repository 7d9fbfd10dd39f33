//! Judges the lines of the ledger at the peak.

use super::finding::{Finding, percent, share, stands_out};
use crate::recording::format::Told;
use crate::report::known::Known;
use crate::report::subject::Subject;
use neap_shared::ledger::{Ledger, Requested};
use neap_shared::stats::Bytes;

/// See [`Finding::kind`].
pub const ROUNDING: &str = "rounding";

/// One or more lines, and the thresholds from which they are reported.
struct Rule {
    kind: &'static str,
    bytes: fn(&Ledger) -> u64,
    whole: Whole,
    least: f64,
    what: &'static str,
    why: &'static str,
    remedy: &'static str,
}

#[derive(Clone, Copy)]
enum Whole {
    Resident,
    AskedFor,
}

impl Whole {
    fn of(self, ledger: &Ledger) -> (u64, &'static str) {
        match self {
            Self::Resident => (ledger.resident, "the heap's resident memory"),
            Self::AskedFor => (
                ledger.requested.saturating_add(ledger.rounding),
                "what the program held",
            ),
        }
    }
}

const RULES: [Rule; 11] = [
    Rule {
        kind: "free_held",
        bytes: |ledger| ledger.free_dirty,
        whole: Whole::Resident,
        least: 0.25,
        what: "At the peak {bytes} ({share} of {of}) \
               was free memory, not yet given back to the kernel",
        why: "The program freed it a short while before; Neap keeps such pages for the decay time \
              (1 s unless set), because taking them again is cheaper than asking the kernel.",
        remedy: "If it stays for longer than the decay time, see whether the purge thread runs. To \
                 hold less: `--decay 100ms`, or a bound by `--limit-dirty 16M`; `neap purge PID` \
                 gives it back at once.",
    },
    Rule {
        kind: "fragmentation",
        bytes: |ledger| ledger.slab_free.saturating_add(ledger.tails),
        whole: Whole::Resident,
        least: 0.25,
        what: "At the peak {bytes} ({share} of {of}) \
               was free blocks in slabs that also hold live ones",
        why: "Most of the objects allocated together have died, but some in every slab live on; a \
              page with one live block cannot be given back.",
        remedy: "Allocate long-lived objects apart from short-lived ones (first, or from an arena \
                 of its own), or rebuild the long-lived structures after the burst.",
    },
    Rule {
        kind: "magazines",
        bytes: |ledger| ledger.magazines,
        whole: Whole::Resident,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) was free blocks in the magazines of threads",
        why: "Every thread keeps freed blocks at hand for its next allocations; with many threads \
              that adds up.",
        remedy: "Lower the bound of a thread (`--thread-cache 256K`) or of all together (`--cache \
                 16M`), or use fewer threads.",
    },
    Rule {
        kind: "stacks",
        bytes: |ledger| {
            ledger
                .stacks_used
                .saturating_add(ledger.stacks_idle)
                .saturating_add(ledger.stacks_free)
        },
        whole: Whole::Resident,
        least: 0.25,
        what: "At the peak {bytes} ({share} of {of}) was stacks of coroutines",
        why: "Every suspended coroutine keeps the pages its stack has touched.",
        remedy: "Bound how many are in flight, move large local arrays to the heap, or suspend \
                 less deeply.",
    },
    Rule {
        kind: "huge_excess",
        bytes: |ledger| ledger.huge_excess,
        whole: Whole::Resident,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) was never used and came with huge pages",
        why: "The kernel brings 2 MiB at once where huge pages are allowed; free parts of them are \
              resident without having been touched.",
        remedy: "Try `--thp never`: fewer bytes, at the price of more page faults.",
    },
    Rule {
        kind: "untouched",
        bytes: |ledger| ledger.untouched,
        whole: Whole::AskedFor,
        least: 0.30,
        what: "At the peak {bytes} ({share} of {of}) was asked for and never touched",
        why: "It costs address space and page-heap work, no RAM: the kernel gives pages at the \
              first touch.",
        remedy: "If buffers are allocated for the worst case, let them grow instead; a profile \
                 (`neap run --profile`) names where they come from.",
    },
    Rule {
        kind: "swapped",
        bytes: |ledger| ledger.swapped,
        whole: Whole::AskedFor,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) was swapped out",
        why: "The machine was short of RAM; touching these pages again waits for the disk.",
        remedy: "Give the machine or the control group more memory, or bound the program \
                 (`--limit-soft`).",
    },
    Rule {
        kind: "quarantine",
        bytes: |ledger| ledger.quarantine,
        whole: Whole::Resident,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) \
               was freed blocks that the checking mode holds back",
        why: "`--check` keeps freed blocks for a while to catch second frees.",
        remedy: "Run without `--check` if memory matters.",
    },
    Rule {
        kind: "metadata",
        bytes: |ledger| ledger.metadata,
        whole: Whole::Resident,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) was Neap's own tables and caches",
        why: "Tables grow with the number of slabs and of threads, not with the bytes in them.",
        remedy: "Many small threads or a heap that was once much larger are the usual reasons; if \
                 neither holds, please report it.",
    },
    Rule {
        kind: "sampling",
        bytes: |ledger| ledger.sampling,
        whole: Whole::Resident,
        least: 0.10,
        what: "At the peak {bytes} ({share} of {of}) was the pages around sampled blocks",
        why: "While the heap is profiled, every sampled block has pages of its own.",
        remedy: "Sample less often (`--sample 2M`); without sampling, these bytes do not exist.",
    },
    Rule {
        kind: ROUNDING,
        bytes: |ledger| match ledger.requested_by != Requested::Guessed as u64 {
            true => ledger.rounding,
            false => 0,
        },
        whole: Whole::AskedFor,
        least: 0.12,
        what: "Size classes added {bytes} ({share}) to what the program asked for",
        why: "Requests are rounded up to the next class; sizes just above one waste most.",
        remedy: "`neap tune -- PROGRAM` computes the classes that suit this program; a profile \
                 (`--profile`) names where the sizes come from.",
    },
];

/// The findings about the heap at its peak, if that is known.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    let Some(told) = subject.history().peak().and_then(Known::get) else {
        return Vec::new();
    };
    let ledger = &told.heap.ledger;
    let mut findings: Vec<_> = RULES
        .iter()
        .filter_map(|rule| rule.finding(ledger))
        .collect();
    findings.extend(not_ours(&told));
    findings
}

impl Rule {
    fn finding(&self, ledger: &Ledger) -> Option<Finding> {
        let bytes = (self.bytes)(ledger);
        let (whole, of) = self.whole.of(ledger);
        stands_out(bytes, whole, self.least).then(|| Finding {
            kind: self.kind,
            bytes,
            share: share(bytes, whole),
            of,
            site: None,
            text: None,
            headline: (self.what.replace("{bytes}", &Bytes(bytes).to_string()))
                .replace("{share}", &percent(bytes, whole))
                .replace("{of}", of)
                + ".",
            detail: self.why.to_owned(),
            remedy: self.remedy.to_owned(),
        })
    }
}

fn not_ours(told: &Told) -> Option<Finding> {
    let whole = told.rss;
    let bytes = whole.saturating_sub(told.heap.ledger.resident);
    stands_out(bytes, whole, 0.5).then(|| Finding {
        kind: "not_ours",
        bytes,
        share: share(bytes, whole),
        of: "the process's resident memory",
        site: None,
        text: None,
        headline: format!(
            "{} ({} of the process) is not in the heap at all.",
            Bytes(bytes),
            percent(bytes, whole)
        ),
        detail: "Code, mapped files, the stacks of threads, and mappings that the program or its \
                 runtime makes itself with mmap."
            .to_owned(),
        remedy:
            "`/proc/PID/smaps` of the running process names them. A runtime with a heap of its \
                 own (Java, Go, JavaScript) has options for its size; CPython keeps small objects \
                 to itself unless `PYTHONMALLOC=malloc`."
                .to_owned(),
    })
}
