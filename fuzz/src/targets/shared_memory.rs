//! What a process writes for the command to read: its status page, and the region of its profile.
//! Large parts of both are zeros, so an input has only the beginnings of their parts.

use crate::attach::StatusPage;
use crate::attach::kernel::KernelView;
use crate::attach::{Silence, Whereabouts};
use crate::classes::{Comparison, Histogram};
use crate::file::Memory;
use crate::profile::{Base, Profile};
use crate::targets::files::print;
use crate::view::{State, View, json, metrics, text};
use bytemuck::{bytes_of, bytes_of_mut};
use neap_shared::sites::{self, Site};
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{self, Arenas, Coarse, Served, SizeFigure};
use std::sync::OnceLock;

/// The parts of a status page that an input fills, one after the other. The head comes first: the
/// input changes a sound one by exclusive or.
pub const PARTS: [(usize, usize); 5] = [
    (status_page::SERVED_AT, size_of::<Served>()),
    (status_page::ARENAS_AT, size_of::<Arenas>()),
    (status_page::COARSE_AT, size_of::<Coarse>()),
    (status_page::FIGURES_AT, 8 + size_of::<Snapshot>()),
    (
        status_page::SIZES_AT,
        status_page::SIZES * size_of::<SizeFigure>(),
    ),
];

/// Reads a status page, and writes what it says in every form.
pub fn status_page(bytes: &[u8]) {
    static FILE: OnceLock<Memory> = OnceLock::new();
    let file = FILE.get_or_init(|| Memory::sealed(status_page::NAME, status_page::BYTES));
    file.put(0, &page(bytes));
    let Ok(page) = StatusPage::of_descriptor(file.descriptor()) else {
        return;
    };
    show(&view(&page));
    let mut histogram = Histogram::new("fuzzed");
    histogram.add(&page.sizes());
    tune(&histogram);
}

/// What `neap tune` says about sizes. It leaves out the search for the best table, whose steps do
/// not depend on the numbers, because that takes a second.
pub fn tune(histogram: &Histogram) {
    let sizes: Vec<u16> = (1..=64).map(|index| index * 512).collect();
    let comparison = Comparison::new(histogram, &sizes);
    let text = crate::classes::file(&sizes, &histogram.program);
    neap_shared::classes::parse(text.as_bytes()).expect("the library reads what neap tune writes");
    assert!(!comparison.to_string().is_empty());
    assert!(crate::classes::json(&comparison, &sizes).is_object());
}

/// The whole of a status page.
fn page(bytes: &[u8]) -> Vec<u8> {
    let mut page = vec![0; status_page::BYTES];
    let head = status_page::Head {
        magic: status_page::MAGIC,
        version: status_page::VERSION,
        bytes: status_page::BYTES as u64,
        pid: u64::from(std::process::id()),
        page_bytes: 4096,
        frontend: 1,
        made_ms: 1,
    };
    let rest = overlay(&mut page, bytes_of(&head), bytes);
    PARTS.iter().fold(rest, |rest, &(at, length)| {
        let (part, rest) = rest.split_at(length.min(rest.len()));
        page[at..at + part.len()].copy_from_slice(part);
        rest
    });
    // While a number is odd, a reader waits for its writer, up to 100 ms.
    page[status_page::COARSE_AT] &= !1;
    page[status_page::FIGURES_AT] &= !1;
    page
}

/// Writes `head`, changed by the beginning of `bytes`, and returns the rest of `bytes`.
fn overlay<'a>(whole: &mut [u8], head: &[u8], bytes: &'a [u8]) -> &'a [u8] {
    let (changes, rest) = bytes.split_at(head.len().min(bytes.len()));
    whole[..head.len()].copy_from_slice(head);
    let words = whole.iter_mut().zip(changes);
    words.for_each(|(byte, change)| *byte ^= change);
    rest
}

fn view(page: &StatusPage) -> View {
    let arenas = page.arenas();
    assert!(arenas.len() <= status_page::MOST_ARENAS);
    View {
        pid: 7,
        program: page.title(),
        place: Whereabouts::default(),
        state: match page.is_own_heap() {
            true => State::Fresh,
            false => State::Pending,
        },
        figures: page.figures(),
        coarse: page.coarse(),
        kernel: KernelView::default(),
        served: page.served(),
        silence: page.silence(),
        hint: crate::view::guarded::hint(page, KernelView::default()),
        taken_ms: crate::attach::now_ms(),
    }
}

fn show(view: &View) {
    for detail in [text::Detail::Verdict, text::Detail::All] {
        assert!(text::page(view, "wait\n", detail).contains("(7)"));
    }
    assert!(json::object(view).is_object());
    let page = metrics::page(std::slice::from_ref(view));
    for line in page.lines() {
        assert!(
            line.starts_with("# ") || line.starts_with("neap_"),
            "{line:?}"
        );
    }
    assert!(!view.title().is_empty());
    let _ = view.age_ms();
}

/// The profile in a region.
pub fn region(bytes: &[u8]) {
    if let Ok(profile) = Profile::from_region(&whole_region(bytes)) {
        print(&profile);
    }
}

/// The differences of two readings of a region.
pub fn regions(bytes: &[u8]) {
    let Some((&[low, high], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let middle = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (earlier, later) = rest.split_at(middle);
    let (earlier, later) = (whole_region(earlier), whole_region(later));
    if let Ok(base) = Base::of(&earlier) {
        let _ = base.beginning_after(1);
        if let Ok(profile) = base.profile(later.clone(), 1) {
            print(&profile);
        }
    }
    let profile = |bytes: &[u8]| Profile::from_region_of(bytes, 1);
    if let (Ok(earlier), Ok(later)) = (profile(&earlier), profile(&later))
        && let Ok(more) = later.since(&earlier)
    {
        print(&more);
    }
}

/// A region: changes to a sound head, two bytes with the length of the mappings' text, that text,
/// and sites.
pub fn whole_region(bytes: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; sites::SITES_AT];
    let head = sites::Head {
        magic: sites::MAGIC,
        version: sites::VERSION,
        bytes: sites::BYTES as u64,
        pid: u64::from(u32::MAX),
        rate: 1 << 19,
        samples: 1,
        began_ms: 1000,
        changed_ms: 3000,
        ..sites::Head::default()
    };
    let rest = overlay(&mut whole, bytes_of(&head), bytes);
    let (length, rest) = match rest.split_first_chunk::<2>() {
        Some((&length, rest)) => (usize::from(u16::from_le_bytes(length)), rest),
        None => (0, rest),
    };
    let (maps, rest) = rest.split_at(length.min(rest.len()));
    whole[sites::MAPS_AT..sites::MAPS_AT + maps.len()].copy_from_slice(maps);
    whole.extend_from_slice(rest);
    // The numbers that follow from the rest; the input changes them like the others.
    let mut head: sites::Head = bytemuck::pod_read_unaligned(&whole[..size_of::<sites::Head>()]);
    head.maps_bytes ^= maps.len() as u64;
    head.sites ^= (rest.len() / size_of::<Site>()) as u64;
    whole[..size_of::<sites::Head>()].copy_from_slice(bytes_of_mut(&mut head));
    whole
}
