//! Judges the sites of the profile.

use super::heap::{
    FLOOR, Finding, GROWTH, Growth, percent, share, stands_out, stands_out_in_small, text,
};
use crate::profile::{Extent, Figures, Profile, grouped};
use crate::recording::format::Classes;
use crate::report::date::seconds;
use crate::report::sites::{Site, sites, with_error};
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
/// A site holds the program's data if it has not grown since a profile from at least this long
/// after the start, in ms.
const LEAST_STEADY_MS: u64 = 1_000;
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
    if growth.is_some() {
        add_others(&mut found, growing(subject, profile, most));
    }
    found.extend(rounding(subject, profile.extent, &sites, &total));
    found.extend(largest(&sites, |site| large(site, held, subject)));
    add_others(&mut found, at_peak(subject, &sites));
    found
}

/// Adds the findings about sites that none of `found` is about.
fn add_others(found: &mut Vec<Finding>, mut others: Vec<Finding>) {
    others.retain(|finding| !found.iter().any(|known| known.site == finding.site));
    found.append(&mut others);
}

/// The sites that hold much more than early in the program's time. Compares with the end, or with
/// the time when the program held most if it has freed that.
fn growing(subject: &Subject, at_end: &Profile, most: u64) -> Vec<Finding> {
    let end = (subject.duration_ms(), at_end);
    let peak = subject.at_peak.map(|(ms, profile)| (*ms, profile));
    let ends = peak.into_iter().chain([end]);
    let late = ends.max_by_key(|(_, profile)| profile.total().live_bytes);
    let (late_ms, late) = late.unwrap_or(end);
    let Some(since) = Since::early(subject, late_ms) else {
        return Vec::new();
    };
    let before = since.sites.iter().map(|site| site.figures.live_bytes);
    let whole = late
        .total()
        .live_bytes
        .saturating_sub(before.fold(0, u64::saturating_add));
    largest(&sites(late), |site| {
        let grown = since.grown(site)?;
        let is_much = stands_out(grown, whole, 0.25) || stands_out_in_small(grown, whole, most);
        let (name, live, when) = (site.name(), site.live(), seconds(late_ms));
        let texts = [
            format!("{name} grew by {}.", since.amount(site)),
            format!("It held {live} at {when}.{}", path(site)),
            text("grown"),
        ];
        let finding = at(site, GROWTH, grown, (whole, "all that was added"), texts);
        is_much.then_some(Finding { grown, ..finding })
    })
}

/// A time from which on growth is known.
struct Since {
    from_ms: u64,
    until_ms: u64,
    sites: Vec<Site>,
}

impl Since {
    /// From the early profile on; `None` if there is none, or if it is later.
    fn early(subject: &Subject, until_ms: u64) -> Option<Self> {
        let (from_ms, profile) = subject.early?;
        (*from_ms < until_ms).then(|| Self {
            from_ms: *from_ms,
            until_ms,
            sites: sites(profile),
        })
    }

    /// By how many bytes a site grew; `None` if it stayed the same, as far as samples tell.
    fn grown(&self, site: &Site) -> Option<u64> {
        let (bytes, error) = site.grown(&self.sites);
        (bytes > error.max(site.figures.live_bytes / 10)).then_some(bytes)
    }

    /// Whether a site held half as much or more at that time.
    fn had(&self, site: &Site) -> bool {
        site.grown(&self.sites).0 <= site.figures.live_bytes / 2
    }

    /// `10.0 MiB ± 5 % from 1.0 s to 3.0 s: 5.0 MiB a second`.
    fn amount(&self, site: &Site) -> String {
        let (bytes, error) = site.grown(&self.sites);
        let in_ms = self.until_ms - self.from_ms;
        let (unit_ms, unit) = match in_ms {
            ..120_000 => (1_000, "second"),
            120_000..7_200_000 => (60_000, "minute"),
            _ => (3_600_000, "hour"),
        };
        let each = Bytes((u128::from(bytes) * unit_ms / u128::from(in_ms)) as u64);
        let (from, until) = (seconds(self.from_ms), seconds(self.until_ms));
        let grown = with_error(bytes, error);
        format!("{grown} from {from} to {until}: {each} a {unit}")
    }
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

/// The sites that held much when the program held most, and how much of it they hold at the end.
fn at_peak(subject: &Subject, at_end: &[Site]) -> Vec<Finding> {
    let Some((peak_ms, profile)) = subject.at_peak else {
        return Vec::new();
    };
    let whole = profile.total().live_bytes;
    largest(&sites(profile), |site| {
        let live_bytes = site.figures.live_bytes;
        let left = at_end.iter().find(|other| other.is_at(site));
        let left = left.map_or(0, |other| other.figures.live_bytes);
        let texts = || {
            let (bytes, part, name) = (site.live(), percent(live_bytes, whole), site.name());
            let stayed = left >= live_bytes / 2;
            [
                format!(
                    "When the program held nearly the most, at {}, {bytes} ({part}) were held by \
                     {name}.",
                    seconds(*peak_ms)
                ),
                format!(
                    "{} objects. At the end, {} of this place were live.{}",
                    grouped(site.figures.live_objects),
                    Bytes(left),
                    path(site)
                ),
                text(if stayed { "stayed" } else { "peak" }),
            ]
        };
        let of = (whole, "what was live then");
        stands_out(live_bytes, whole, 0.25).then(|| at(site, "peak", live_bytes, of, texts()))
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

fn largest(sites: &[Site], judge: impl Fn(&Site) -> Option<Finding>) -> Vec<Finding> {
    let mut found: Vec<_> = sites.iter().filter_map(judge).collect();
    found.sort_by_key(Finding::rank);
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
    let (live_bytes, live_objects) = (site.figures.live_bytes, grouped(site.figures.live_objects));
    let (bytes, name) = (site.live(), site.name());
    let early = Since::early(subject, subject.duration_ms());
    let since = early.filter(|since| since.grown(site).is_some() || since.had(site));
    let grown = since.as_ref().and_then(|since| since.grown(site));
    let began_ms = subject.samples.first().map_or(0, |sample| sample.t_ms);
    let trend = match &since {
        None => String::new(),
        Some(since) if grown.is_some() => format!("; the place grew by {}", since.amount(site)),
        Some(since) if since.from_ms.saturating_sub(began_ms) >= LEAST_STEADY_MS => return None,
        Some(since) => format!(
            "; the place held about as much at {}",
            seconds(since.from_ms)
        ),
    };
    let (part, path) = (percent(live_bytes, site.figures.alloc_bytes), path(site));
    let (of, headline, detail, remedy) = match extent {
        Extent::Whole => (
            "what was live",
            format!(
                "{bytes} in {live_objects} objects from {name} {}{trend}.",
                still(subject)
            ),
            format!(
                "{part} of all that was allocated there had not been freed by then.{path}{}",
                growth.map_or_else(String::new, Growth::remark)
            ),
            "stayed",
        ),
        Extent::Session { .. } => (
            "the growth of what is live",
            format!("From {name}, {bytes} in {live_objects} more objects are live than before."),
            format!("That is {part} of all that was allocated there in that time.{path}"),
            "session",
        ),
    };
    let texts = [headline, detail, text(remedy)];
    Some(Finding {
        grown: grown.unwrap_or(0),
        ..at(site, LEAK, live_bytes, (total.live_bytes, of), texts)
    })
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

/// At the end, or when the program held most if no rounding is left at the end.
fn rounding(subject: &Subject, extent: Extent, at_end: &[Site], total: &Figures) -> Vec<Finding> {
    let when = match extent {
        Extent::Whole => "live at the end",
        Extent::Session { .. } => "more than were live before",
    };
    let found = largest(at_end, |site| waste(site, total, when, subject.classes));
    match (found.as_slice(), subject.at_peak) {
        ([], Some((_, peak))) => {
            let total = peak.total();
            let when = "live when the program held most";
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
            format!(
                "Of {} objects {when}, {asked} were requested and {used} used.{path}",
                grouped(objects)
            ),
            text(fitting(site.block(classes))),
        ];
        at(site, WASTE, bytes, (usable, "the site's blocks"), texts)
    })
}

/// Up to this many bytes, every multiple of 16 is a class, and C programs cannot get another.
const FINE_BYTES: u64 = 128;

/// The name of the remedy for objects that do not fit their class of `block` bytes.
fn fitting(block: Option<u64>) -> &'static str {
    match block {
        None => "mixed",
        Some(..=FINE_BYTES) => "fine",
        Some(_) => "coarse",
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
            text("large"),
        ];
        at(site, LARGE, mean, (held, of), texts)
    })
}

fn blocks(objects: u64) -> String {
    match objects {
        0 | 1 => "a single block".to_owned(),
        many => format!("{} blocks", grouped(many)),
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
    let names = site.callers.iter();
    let names: Vec<_> = names
        .map(|name| format!("`{}`", name.replace('`', "'")))
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" Called by {}.", names.join(" ← ")),
    }
}
