//! Judges the sites of the profile.

use super::heap::{FLOOR, Finding, Growth, percent, share, stands_out, stands_out_in_small};
use crate::profile::{Extent, Figures, Profile};
use crate::recording::format::Classes;
use crate::report::date::seconds;
use crate::report::sites::{Site, sites};
use crate::report::subject::Subject;
use neap_shared::stats::Bytes;

/// See [`Finding::kind`].
pub const LEAK: &str = "leak";
/// See [`Finding::kind`].
pub const WASTE: &str = "waste";
/// See [`Finding::kind`].
pub const LARGE: &str = "large_blocks";

/// Most findings of each kind.
const MOST: usize = 3;
/// Fewer live objects are not a leak but the program's few large tables.
const LEAST_OBJECTS: u64 = 64;

/// The findings about sites.
pub fn findings(subject: &Subject, growth: Option<&Growth>) -> Vec<Finding> {
    let Some(profile) = subject.profile else {
        return Vec::new();
    };
    let (sites, total) = (sites(profile), profile.total());
    let held = held(profile, subject);
    let most = subject.history().most();
    let whole = (&total, profile.extent);
    let mut found = largest(&sites, |site| leak(site, whole, subject, growth, most));
    found.extend(rounding(subject, profile.extent, &sites, &total));
    found.extend(largest(&sites, |site| large(site, held, subject)));
    let told: Vec<_> = found
        .iter()
        .filter_map(|finding| finding.site.clone())
        .collect();
    found.extend(
        at_peak(subject, &sites)
            .into_iter()
            .filter(|finding| !told.iter().any(|site| finding.site.as_ref() == Some(site))),
    );
    found
}

/// The whole that single blocks are compared with: its bytes and its name.
fn held(profile: &Profile, subject: &Subject) -> (u64, &'static str) {
    let total = profile.total();
    match profile.extent {
        Extent::Whole => (
            total.live_bytes.max(subject.history().most()),
            "the most that was held",
        ),
        // Live memory is unknown; only its growth is known.
        Extent::Session { .. } => (total.alloc_bytes, "what was allocated in that time"),
    }
}

/// The sites that held much at the peak, and how much of it the same sites hold at the end.
fn at_peak(subject: &Subject, at_end: &[Site]) -> Vec<Finding> {
    let Some((peak_ms, profile)) = subject.at_peak else {
        return Vec::new();
    };
    let whole = profile.total().live_bytes;
    largest(&sites(profile), |site| {
        let (live_bytes, live_objects) = (site.figures.live_bytes, site.figures.live_objects);
        let left = at_end.iter().find(|other| other.is_at(site));
        let left = left.map_or(0, |other| other.figures.live_bytes);
        let texts = || {
            let (bytes, part, name) = (Bytes(live_bytes), percent(live_bytes, whole), site.name());
            let remedy = if left >= live_bytes / 2 {
                STAYED
            } else {
                "This is what decides how much memory the program needs: work in smaller pieces \
                 there, or free a part before the next is made."
            };
            [
                format!("Near the peak, {bytes} ({part}) were held by {name}."),
                format!(
                    "{live_objects} objects, {} after the start. At the end, {} of this place were \
                     live.{}",
                    seconds(*peak_ms),
                    Bytes(left),
                    path(site)
                ),
                remedy.to_owned(),
            ]
        };
        let is_much = stands_out(live_bytes, whole, 0.25);
        is_much.then(|| {
            at(
                site,
                "peak",
                live_bytes,
                (whole, "what was live then"),
                texts(),
            )
        })
    })
}

/// A finding about a site.
fn at(
    site: &Site,
    kind: &'static str,
    bytes: u64,
    whole: (u64, &'static str),
    texts: [String; 3],
) -> Finding {
    Finding {
        site: Some(site.function.clone()),
        ..Finding::new(kind, bytes, whole, texts)
    }
}

/// The remedy for what is live at the end.
const STAYED: &str = "If it should be gone by then, look for the missing free on the paths that \
                      leave this function's callers, or for a container that only grows. If it is \
                      the program's data, it is what the memory is for.";

fn largest(sites: &[Site], judge: impl Fn(&Site) -> Option<Finding>) -> Vec<Finding> {
    let mut found: Vec<_> = sites.iter().filter_map(judge).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.bytes));
    found.truncate(MOST);
    found
}

/// What stays: in a session, what is live more than before.
fn leak(
    site: &Site,
    (total, extent): (&Figures, Extent),
    subject: &Subject,
    growth: Option<&Growth>,
    most: u64,
) -> Option<Finding> {
    if !stays(&site.figures, total, most) {
        return None;
    }
    let (live_bytes, live_objects) = (site.figures.live_bytes, site.figures.live_objects);
    let (bytes, name) = (Bytes(live_bytes), site.name());
    let (part, path) = (percent(live_bytes, site.figures.alloc_bytes), path(site));
    let (of, headline, detail, remedy) = match extent {
        Extent::Whole => (
            "what was live",
            format!(
                "{bytes} in {live_objects} objects from {name} {}.",
                still(subject)
            ),
            format!(
                "{part} of all that was allocated there had not been freed by then.{path}{}",
                growth.map_or_else(String::new, Growth::remark)
            ),
            STAYED,
        ),
        Extent::Session { .. } => (
            "the growth of what is live",
            format!("From {name}, {bytes} in {live_objects} more objects are live than before."),
            format!("That is {part} of all that was allocated there in that time.{path}"),
            "Take another session later: what grows each time is a missing free on the paths that \
             leave this function's callers, or a container that only grows. If it grows once, it \
             is the program's data.",
        ),
    };
    let texts = [headline, detail, remedy.to_owned()];
    Some(at(site, LEAK, live_bytes, (total.live_bytes, of), texts))
}

/// Whether many objects stayed and are much of the whole: a quarter of what was allocated there, or
/// half of all that is live, because a leak may take one object in a thousand. `most` is the
/// process's highest resident count; 0: unknown.
fn stays(figures: &Figures, total: &Figures, most: u64) -> bool {
    let many = figures.live_objects >= LEAST_OBJECTS;
    let bytes = figures.live_bytes;
    let stayed = share(bytes, figures.alloc_bytes) >= 0.25 || share(bytes, total.live_bytes) >= 0.5;
    many && stayed
        && (stands_out(bytes, total.live_bytes, 0.10)
            || stands_out_in_small(bytes, total.live_bytes, most))
}

fn still(subject: &Subject) -> &'static str {
    match subject.ending() {
        Some(_) => "were still live when the program ended",
        None => "were live when the profile was taken",
    }
}

/// At the end, or at the peak if no rounding is left at the end.
fn rounding(subject: &Subject, extent: Extent, at_end: &[Site], total: &Figures) -> Vec<Finding> {
    let when = match extent {
        Extent::Whole => "live at the end",
        Extent::Session { .. } => "more than were live before",
    };
    let found = largest(at_end, |site| waste(site, total, when, subject.classes));
    match (found.as_slice(), subject.at_peak) {
        ([], Some((_, peak))) => {
            let total = peak.total();
            let when = "live at the peak";
            largest(&sites(peak), |site| {
                waste(site, &total, when, subject.classes)
            })
        }
        _ => found,
    }
}

/// A large part of the blocks' usable bytes was not requested.
fn waste(site: &Site, total: &Figures, when: &str, classes: Option<&Classes>) -> Option<Finding> {
    let (objects, usable) = (site.figures.live_objects, site.figures.live_usable);
    let bytes = site.waste();
    // In a session, bytes may have grown at a site without more objects; the size of an object is
    // then unknown.
    let loose = objects > 0 && share(bytes, usable) >= 0.15;
    (loose && stands_out(bytes, total.live_usable, 0.05)).then(|| {
        let (lost, part, name) = (Bytes(bytes), percent(bytes, usable), site.name());
        let (asked, used) = (Bytes(site.figures.live_bytes), Bytes(usable));
        let path = path(site);
        let sizes = sizes(&site.figures);
        let texts = [
            format!("Rounding wastes {lost} ({part}) of the blocks from {name}: {sizes}."),
            format!("Of {objects} objects {when}, {asked} were requested and {used} used.{path}"),
            fitting(site.block(classes)).to_owned(),
        ];
        at(site, WASTE, bytes, (usable, "the site's blocks"), texts)
    })
}

/// Up to this many bytes, every multiple of 16 is a class, and C programs cannot get another.
const FINE_BYTES: u64 = 128;

/// The remedy for objects that do not fit their class of `block` bytes.
fn fitting(block: Option<u64>) -> &'static str {
    match block {
        None => {
            "The blocks have several sizes, so no one size fits them: `neap tune -- PROGRAM` \
             shows which classes waste most."
        }
        Some(..=FINE_BYTES) => {
            "Shrink the object to a multiple of 16 bytes, use the remaining bytes, or put several \
         objects into one block: a C program gets blocks in multiples of 16 bytes. A Rust program \
         with Neap as its own allocator states the alignment, and gets a class every 8 bytes."
        }
        Some(_) => {
            "Shrink the object to the class below or fill it up to the class above, put several into \
         one block, or let `neap tune -- PROGRAM` make a class for this size."
        }
    }
}

/// The mean requested and usable bytes of an object.
fn sizes(figures: &Figures) -> String {
    let mean = |bytes: u64| (bytes as f64 / figures.live_objects.max(1) as f64).round();
    format!(
        "on average {} bytes in blocks of {}",
        mean(figures.live_bytes),
        mean(figures.live_usable)
    )
}

/// Blocks that are large individually.
fn large(site: &Site, (held, of): (u64, &'static str), subject: &Subject) -> Option<Finding> {
    let alloc_objects = site.figures.alloc_objects;
    let mean = site.figures.alloc_bytes / alloc_objects.max(1);
    stands_out(mean, held, 0.10).then(|| {
        let untouched = untouched(subject, mean);
        let (name, blocks, bytes) = (site.name(), blocks(alloc_objects), Bytes(mean));
        let note = match untouched {
            Some(_) => ", and most of that is never touched",
            None => "",
        };
        let texts = [
            format!("{name} allocates {blocks} of {bytes}{note}."),
            (untouched.unwrap_or_default() + &path(site))
                .trim_start()
                .to_owned(),
            "Allocate what is used: read into a buffer of 64 KiB and let it grow, reuse one \
             buffer, or map the file."
                .to_owned(),
        ];
        at(site, LARGE, mean, (held, of), texts)
    })
}

fn blocks(objects: u64) -> String {
    match objects {
        0 | 1 => "a single block".to_owned(),
        many => format!("{many} blocks"),
    }
}

/// A sentence, if most of such a block was untouched at some time.
fn untouched(subject: &Subject, block: u64) -> Option<String> {
    let history = subject.history();
    let untouched = history.told.iter().map(|told| told.heap.ledger.untouched);
    let bytes = untouched.max()?;
    (bytes >= FLOOR && bytes >= block / 2).then(|| {
        format!(
            "At one time {} of the blocks that the program held had never been touched.",
            Bytes(bytes)
        )
    })
}

fn path(site: &Site) -> String {
    match site.callers.as_slice() {
        [] => String::new(),
        callers => {
            let names: Vec<_> = callers
                .iter()
                .map(|name| format!("`{}`", name.replace('`', "'")))
                .collect();
            format!(" Called by {}.", names.join(" ← "))
        }
    }
}
