//! The sums that the ledger is derived from.

use crate::check::held;
use crate::{guard, profile};
use core::ops::Range;
use neap_heap::base::units::SLICE_BYTES;
use neap_heap::cache::heap::{HEAP, Heap, class_of, slab_of};
use neap_heap::cache::magazine::Tag;
use neap_heap::cache::opened::Opened;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::pages::{Pages, Part, Residence, SliceRef, Use};
use neap_heap::slab::Slab;
use neap_heap::slab::class::Class;
use neap_heap::stacks::{Pool, State};
use neap_heap::watched::fences::lead_of;
use neap_heap::watched::harden::Measures;
use neap_shared::ledger::{Ledger, Requested};
use neap_shared::stats::Snapshot;

/// Bytes of a class's blocks, or of large blocks, that the program or magazines hold.
#[derive(Default)]
struct Out {
    usable: u64,
    resident: u64,
    swapped: u64,
}

/// A survey under way.
pub(super) struct Tally<'r> {
    residence: &'r Residence<'static, Linux>,
    page: usize,
    out: Out,
    /// Resident bytes of blocks in magazines.
    cached: u64,
    ledger: Ledger,
}

impl<'r> Tally<'r> {
    pub(super) fn new(residence: &'r Residence<'static, Linux>) -> Self {
        Tally {
            residence,
            page: Linux.page_bytes().min(SLICE_BYTES),
            out: Out::default(),
            cached: 0,
            ledger: Ledger::default(),
        }
    }

    /// Visits every slice of the arenas.
    pub(super) fn slices(&mut self, figures: &mut Snapshot) {
        let residence = self.residence;
        residence.for_each_slice(|place, part| self.slice(figures, &place, part));
    }

    fn slice(&mut self, figures: &mut Snapshot, place: &SliceRef<'_>, part: Part) {
        let pages = self.residence.pages(place).unwrap_or(self.assumed(part));
        match part {
            Part::Tables => self.ledger.metadata += self.bytes_of(pages.resident),
            Part::Beyond => self.ledger.huge_excess += self.bytes_of(pages.resident),
            Part::Free(dirty) => self.free(pages, dirty),
            Part::Used(Use::Slab, _) => self.slab(figures, place, pages),
            Part::Used(Use::Large, index) => self.large(place, index, pages),
            Part::Used(Use::Stack, _) => self.stacks(place, pages),
            Part::Used(Use::Meta, _) => self.ledger.metadata += self.bytes_of(pages.resident),
        }
    }

    /// The pages that may be resident, where the kernel cannot tell.
    fn assumed(&self, part: Part) -> Pages {
        let all = u16::MAX >> (16 - SLICE_BYTES / self.page);
        let resident = match part {
            Part::Used(..) => all,
            Part::Free(dirty) => dirty & all,
            Part::Tables | Part::Beyond => 0,
        };
        Pages {
            resident,
            swapped: 0,
        }
    }

    fn bytes_of(&self, mask: u16) -> u64 {
        u64::from(mask.count_ones()) * self.page as u64
    }

    /// Bytes of a range that lie on the pages of `mask`. The range holds offsets in a slice.
    fn within(&self, mask: u16, range: Range<usize>) -> u64 {
        let on_page = |page: usize| {
            let (from, to) = (page * self.page, (page + 1) * self.page);
            range.end.min(to).saturating_sub(range.start.max(from)) as u64
        };
        bits(mask).map(on_page).sum()
    }

    fn free(&mut self, pages: Pages, dirty: u16) {
        self.ledger.free_dirty += self.bytes_of(pages.resident & dirty);
        self.ledger.huge_excess += self.bytes_of(pages.resident & !dirty);
        self.ledger.swapped_free += self.bytes_of(pages.swapped);
    }

    fn slab(&mut self, figures: &mut Snapshot, place: &SliceRef<'_>, pages: Pages) {
        let Some(class) = class_of(place) else {
            // Being cut into blocks, or given up.
            self.ledger.slab_free += self.bytes_of(pages.resident);
            return;
        };
        let slab = slab_of(place);
        let free = (slab.free_blocks() + slab.withheld_blocks(class)).min(class.blocks());
        let figure = &mut figures.classes[class.index() - 1];
        figure.slabs += 1;
        figure.blocks += class.blocks() as u64;
        figure.free += free as u64;
        figures.slab_purged += slab.withheld().bytes() as u64;
        let usable = class.blocks() * class.bytes();
        self.out.usable += (usable - free * class.bytes()) as u64;
        // Of inaccessible blocks all pages are guards, which the kernel reports as swapped.
        let pages = if HEAP.is_no_bytes(class) {
            Pages {
                swapped: 0,
                ..pages
            }
        } else {
            pages
        };
        let resident = match place.tag() == Tag::SAMPLED.byte() {
            true => Kind::Sampled,
            false => Kind::Resident,
        };
        for (mask, kind) in [(pages.resident, resident), (pages.swapped, Kind::Swapped)] {
            self.slab_pages(slab, class, free, mask, kind);
        }
    }

    /// Divides the pages of `mask` of one slab among its free blocks, its tail and the blocks
    /// handed out.
    fn slab_pages(&mut self, slab: &Slab, class: Class, free: usize, mask: u16, kind: Kind) {
        let usable = class.blocks() * class.bytes();
        let all = self.bytes_of(mask);
        let tail = self.within(mask, usable..SLICE_BYTES);
        let free = match all as usize {
            0 => return,
            SLICE_BYTES => (free * class.bytes()) as u64,
            _ => bits(mask)
                .map(|page| slab.free_bytes(class, page * self.page..(page + 1) * self.page) as u64)
                .sum(),
        };
        let free = free.min(all - tail);
        match kind {
            Kind::Resident => {
                self.ledger.tails += tail;
                self.ledger.slab_free += free;
                self.out.resident += all - tail - free;
            }
            Kind::Sampled => {
                self.ledger.sampling += tail + free;
                self.out.resident += all - tail - free;
            }
            Kind::Swapped => {
                self.ledger.swapped_free += tail + free;
                self.out.swapped += all - tail - free;
            }
        }
    }

    fn large(&mut self, place: &SliceRef<'_>, index: usize, pages: Pages) {
        let first = self.residence.first_of(place, index);
        let (lead, bytes) = (lead_of(&first), first.bytes());
        // The kernel reports a guard as swapped.
        let pages = if lead > 0 {
            Pages {
                swapped: 0,
                ..pages
            }
        } else {
            pages
        };
        let here = |end: usize| end.saturating_sub(index * SLICE_BYTES).min(SLICE_BYTES);
        let used = here(lead)..here(lead + bytes);
        self.out.usable += used.len() as u64;
        let resident = self.within(pages.resident, used.clone());
        let swapped = self.within(pages.swapped, used);
        self.out.resident += resident;
        self.out.swapped += swapped;
        self.ledger.tails += self.bytes_of(pages.resident) - resident;
        self.ledger.swapped_free += self.bytes_of(pages.swapped) - swapped;
    }

    /// The kernel reports a guard as swapped, so the ledger counts no page of a stack as swapped.
    /// An older kernel reports the zero pages of a guard against writes as resident.
    fn stacks(&mut self, place: &SliceRef<'_>, pages: Pages) {
        for page in bits(pages.resident) {
            let address = place.slice_base() + page * self.page;
            let stack = Pool::stack_at(&HEAP.pages, address);
            if stack
                .as_ref()
                .is_some_and(|stack| address < stack.limit(self.page))
            {
                continue;
            }
            let line = match stack.map(|stack| stack.state()) {
                Some(State::Used) => &mut self.ledger.stacks_used,
                Some(State::Idle | State::Leaving) => &mut self.ledger.stacks_idle,
                Some(State::Blank) | None => &mut self.ledger.stacks_free,
            };
            *line += self.page as u64;
        }
    }

    /// Counts the guarded blocks, whose pages were counted as metadata.
    pub(super) fn guarded(&mut self, figures: &mut Snapshot) {
        guard::for_each_live(|page, class| {
            let usable = class.bytes() as u64;
            figures.classes[class.index() - 1].blocks += 1;
            self.out.usable += usable;
            if self.resident_of(&HEAP, page, self.page) == 0 {
                return;
            }
            let whole = (self.page as u64).min(self.ledger.metadata);
            self.ledger.metadata -= whole;
            self.out.resident += usable.min(whole);
            self.ledger.sampling += whole - usable.min(whole);
        });
    }

    /// Counts the blocks in the magazines of all threads.
    pub(super) fn magazines(&mut self, figures: &mut Snapshot) {
        figures.threads = HEAP.registry.count() as u64;
        HEAP.registry.for_each(|cache| {
            if let Some(mut open) = cache.open_other() {
                Class::all().for_each(|class| self.magazine(figures, &mut open, class));
            }
        });
    }

    fn magazine(&mut self, figures: &mut Snapshot, open: &mut Opened<'_>, class: Class) {
        let figure = &mut figures.classes[class.index() - 1];
        let [refills, flushes] = open.countdown(class).refills_and_flushes();
        figure.refills += u64::from(refills);
        figure.flushes += u64::from(flushes);
        let magazine = open.magazine(class);
        figure.cached += magazine.filled() as u64;
        for block in magazine.blocks() {
            self.cached += self.resident_of(&HEAP, block, class.bytes());
        }
    }

    /// Resident bytes of the block at an address.
    fn resident_of(&self, heap: &'static Heap, block: usize, bytes: usize) -> u64 {
        let Some(place) = heap.pages.locate(block) else {
            return 0;
        };
        let offset = block % SLICE_BYTES;
        match self.residence.pages(&place) {
            Some(pages) => self.within(pages.resident, offset..offset + bytes),
            None => bytes as u64,
        }
    }

    /// Derives the ledger. It adds up even if the survey saw half of a change: `untouched` and
    /// `rounding` absorb differences.
    pub(super) fn ledger(self, figures: &Snapshot) -> Ledger {
        let Tally {
            out, mut ledger, ..
        } = self;
        ledger.magazines = self.cached.min(out.resident);
        let waiting = match HEAP.measures().has(Measures::GUARDS) {
            // All pages of the large blocks are guards meanwhile.
            true => figures.quarantine.saturating_sub(held().large_bytes as u64),
            false => figures.quarantine,
        };
        ledger.quarantine = waiting.min(out.resident - ledger.magazines);
        let resident = out.resident - ledger.magazines - ledger.quarantine;
        let usable = out
            .usable
            .saturating_sub(figures.magazines + figures.quarantine)
            .max(resident + out.swapped);
        let (requested, by) = requested(figures);
        ledger.requested = requested.min(usable);
        ledger.requested_by = by as u64;
        ledger.rounding = usable - ledger.requested;
        ledger.swapped = out.swapped;
        ledger.untouched = usable - resident - out.swapped;
        ledger.asked_kernel = u64::from(self.residence.is_known());
        ledger.resident = u64::try_from(ledger.sum()).unwrap_or(0);
        ledger
    }
}

/// Lines that a slab's pages fall to.
#[derive(Clone, Copy)]
enum Kind {
    Resident,
    /// Resident pages of a slab of sampled blocks.
    Sampled,
    Swapped,
}

/// The numbers of the set bits.
fn bits(mask: u16) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        let bit = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (bit < 16).then_some(bit)
    })
}

/// Estimates what the program asked for, of its live blocks. With sampled blocks: by their share of
/// requested in usable bytes. Without: by the mean request of each class whose requests were
/// counted, and for other classes by the middle between the smallest and largest request that they
/// serve.
fn requested(figures: &Snapshot) -> (u64, Requested) {
    let mut sum = figures.large_bytes;
    // Large blocks are rounded up to whole pages, by half a page on average.
    sum -= sum.min(figures.large_blocks * (Linux.page_bytes() as u64 / 2));
    if let Some((usable, requested)) = profile::live() {
        let share = u128::from(requested) * u128::from(figures.live) / u128::from(usable);
        return (share as u64, Requested::Sampled);
    }
    let mut by = Requested::Guessed;
    for (class, figure) in Class::all().zip(&figures.classes) {
        let guess = figure.live() * (class.least_request() + class.bytes()) as u64 / 2;
        sum += match figure.allocations {
            0 => guess,
            allocations => {
                by = Requested::Counted;
                (u128::from(figure.requested) * u128::from(figure.live()) / u128::from(allocations))
                    as u64
            }
        };
    }
    (sum, by)
}
