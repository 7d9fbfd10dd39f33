//! The first paragraph of every text: how much, which place allocates most, which loses most to
//! rounding, and how far sampled figures may be off.

use super::calls::{Grouping, Place, places};
use super::frames::{is_start, own};
use super::model::{Extent, Figures, Frame, Profile, Stack, Value, base};
use askama::Template;
use neap_shared::control::FINEST_SAMPLE;
use neap_shared::stats::Bytes;
use num_format::{Buffer, Locale};

/// What the first paragraph is made of.
#[derive(Template)]
#[template(path = "summary.txt")]
struct Summary<'a> {
    profile: &'a Profile,
    value: Value,
    total: Figures,
    largest: Option<Place<'a>>,
    /// Where size classes add most.
    loosest: Option<Place<'a>>,
}

/// The first paragraph, one sentence per line.
pub fn summary(profile: &Profile, value: Value) -> String {
    let first = |value| places(profile, value, Grouping::Own).into_iter().next();
    let summary = Summary {
        profile,
        value,
        total: profile.total(),
        largest: first(value),
        loosest: first(Value::Waste).filter(|_| value != Value::Waste),
    };
    // Writing to a string does not fail.
    summary.render().unwrap_or_default()
}

impl Summary<'_> {
    fn phrase(&self) -> &'static str {
        phrase(self.profile, self.value)
    }

    fn missing(&self) -> Option<String> {
        let is_live = matches!(self.value, Value::LiveSpace | Value::LiveObjects);
        is_live.then(|| missing(self.profile)).flatten()
    }

    fn part(&self, place: &Place<'_>) -> String {
        let value = |figures| self.value.of(figures);
        percent(value(&place.figures), value(&self.total))
    }
}

/// What a session allocated and how live memory changed, in words. The text names the process
/// before.
pub fn session_words(profile: &Profile, shrunk: u64) -> String {
    let total = profile.total();
    let time = match profile.began_ms == profile.ended_ms {
        true => "more than in the other run, at the places that grew".to_owned(),
        false => format!("in {:.1} s", seconds(profile)),
    };
    format!(
        "{} in {} allocated {time}{}; {}",
        Bytes(total.alloc_bytes),
        objects(total.alloc_objects),
        sampled(profile.rate),
        growth(total.live_bytes, total.live_objects, shrunk)
    )
}

fn sampled(rate: u64) -> String {
    match rate {
        0 => String::new(),
        rate => format!(" (sampled every {} on average)", Bytes(rate)),
    }
}

/// A sentence if sampling did not continue as the session began it.
pub fn gap(profile: &Profile) -> Option<String> {
    let switched = profile.switched?;
    let rate = match switched.rate {
        0 => "off".to_owned(),
        rate => format!("to every {} on average", Bytes(rate)),
    };
    Some(format!(
        "Sampling was switched {rate} by another neap {:.1} s after this session began, so \
         allocations can be missing.",
        switched.after_ms as f64 / 1000.0
    ))
}

/// The change in live memory.
fn growth(bytes: u64, count: u64, shrunk: u64) -> String {
    let more = objects(count).replacen(' ', " more ", 1);
    let grown = format!("{} in {more} are live than before", Bytes(bytes));
    match (bytes, shrunk) {
        (0, 0) => "no place holds more live bytes than before".to_owned(),
        (0, shrunk) => format!(
            "no place holds more live bytes than before, and some {} less",
            Bytes(shrunk)
        ),
        (_, 0) => grown,
        (_, shrunk) => format!(
            "{grown}, at the places that grew (the others hold {} less)",
            Bytes(shrunk)
        ),
    }
}

fn whose(profile: &Profile) -> String {
    match (profile.program.as_str(), profile.pid) {
        ("", 0) => "Heap profile".to_owned(),
        ("", pid) => format!("Process {pid}"),
        (program, 0) => program.to_owned(),
        (program, pid) => format!("{program}, process {pid}"),
    }
}

/// The noun phrase for what the value counts in this profile.
pub fn phrase(profile: &Profile, value: Value) -> &'static str {
    value.phrase(profile.extent)
}

/// The covered time.
fn seconds(profile: &Profile) -> f64 {
    profile.ended_ms.saturating_sub(profile.began_ms) as f64 / 1000.0
}

/// Where else to look if the profile has none of this value.
pub fn elsewhere(profile: &Profile) -> &'static str {
    match profile.total().alloc_bytes {
        0 => "",
        _ => ": --value alloc_space shows what was allocated",
    }
}

/// The place's allocations in words.
fn of_what(value: Value, figures: &Figures, extent: Extent) -> String {
    let (count, bytes) = match value {
        Value::AllocSpace | Value::AllocObjects => (figures.alloc_objects, figures.alloc_bytes),
        Value::Waste => return rounding(figures, extent),
        Value::LiveSpace | Value::LiveObjects if extent != Extent::Whole => return live(figures),
        Value::LiveSpace | Value::LiveObjects => (figures.live_objects, figures.live_bytes),
    };
    format!(
        "{} of {}",
        objects(count),
        Bytes(rounded(bytes, count.max(1)))
    )
}

/// Live bytes and live objects. In a session, both are growth, and their quotient is no object's
/// size: objects may have become fewer and larger, or more and smaller.
pub fn live(figures: &Figures) -> String {
    let objects = match figures.live_objects {
        0 => "no more objects".to_owned(),
        count => objects(count),
    };
    format!("{} in {objects}", Bytes(figures.live_bytes))
}

/// `on average 24 bytes asked for, 32 usable, in 1,000 objects`.
pub fn rounding(figures: &Figures, extent: Extent) -> String {
    if extent != Extent::Whole {
        return live(figures);
    }
    let count = figures.live_objects.max(1);
    format!(
        "on average {} bytes asked for, {} usable, in {}",
        grouped(rounded(figures.live_bytes, count)),
        grouped(rounded(figures.live_usable, count)),
        objects(figures.live_objects)
    )
}

fn rounded(sum: u64, count: u64) -> u64 {
    sum.saturating_add(count / 2) / count
}

/// The call in the program's own code, and the next one that leads there.
fn way(place: &Place<'_>) -> String {
    let Some((first, callers)) = place.frames.split_first() else {
        return "nowhere that is known".to_owned();
    };
    match callers.get(own(callers)).filter(|caller| !is_start(caller)) {
        None => described(first),
        Some(caller) => format!("{}, called by {}", described(first), described(caller)),
    }
}

/// `make (node.c:12)`, or the module if the line is unknown.
pub fn described(frame: &Frame) -> String {
    match source(frame).or_else(|| module(frame)) {
        None => frame.function.clone(),
        Some(place) => format!("{} ({place})", frame.function),
    }
}

/// `node.c:12`.
pub fn source(frame: &Frame) -> Option<String> {
    match (base(&frame.file), frame.line) {
        ("", _) => None,
        (file, 0) => Some(file.to_owned()),
        (file, line) => Some(format!("{file}:{line}")),
    }
}

/// `in libc.so.6`.
fn module(frame: &Frame) -> Option<String> {
    let name = base(&frame.module);
    (!name.is_empty()).then(|| format!("in {name}"))
}

/// A value in a readable form.
pub fn amount(value: Value, amount: u64) -> String {
    match value {
        Value::LiveObjects | Value::AllocObjects => grouped(amount),
        Value::LiveSpace | Value::AllocSpace | Value::Waste => Bytes(amount).to_string(),
    }
}

/// `1 object`, `12,345 objects`.
pub fn objects(count: u64) -> String {
    match count {
        1 => "1 object".to_owned(),
        _ => format!("{} objects", grouped(count)),
    }
}

/// `12,345`.
pub fn grouped(number: u64) -> String {
    let mut text = Buffer::new();
    text.write_formatted(&number, &Locale::en);
    text.to_string()
}

/// `95.9 %`.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// The variance of the live bytes of one stack trace, sampled at `rate`. 0 if the rate is unknown.
pub fn variance(figures: &Figures, rate: u64) -> f64 {
    match rate {
        0 => 0.0,
        rate => Estimate::of(figures, rate).variance,
    }
}

/// Scales the live figures down to `usable` bytes, if they exceed that by at most three standard
/// errors. A larger excess is memory that came after `usable` was counted.
pub fn bounded(mut profile: Profile, usable: u64) -> Profile {
    let total = profile.total().live_usable;
    let stacks = profile.stacks.iter();
    let variances = stacks.map(|stack| variance(&stack.figures, profile.rate));
    let error = 3.0 * variances.sum::<f64>().sqrt();
    if total > usable && (total - usable) as f64 <= error {
        let part = |live: u64| (u128::from(live) * u128::from(usable) / u128::from(total)) as u64;
        for Stack { figures, .. } in &mut profile.stacks {
            figures.live_objects = part(figures.live_objects);
            figures.live_bytes = part(figures.live_bytes);
            figures.live_usable = part(figures.live_usable);
        }
    }
    profile
}

/// Samples, and the variance of the bytes that they represent.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    samples: f64,
    bytes: f64,
    variance: f64,
}

impl Estimate {
    /// Of the live objects of one stack. A block of `size` usable bytes is sampled with probability
    /// `p`, and a sample represents `1 / p` blocks.
    fn of(figures: &Figures, rate: u64) -> Self {
        let objects = figures.live_objects as f64;
        if objects == 0.0 {
            return Self::default();
        }
        let size = figures.live_usable as f64 / objects;
        let p = -(-size / rate as f64).exp_m1();
        let samples = (objects * p).max(1.0);
        let bytes = figures.live_bytes as f64;
        Self {
            samples,
            bytes,
            variance: bytes * bytes * (1.0 - p) / samples,
        }
    }

    fn of_all(profile: &Profile) -> Self {
        let stacks = profile.stacks.iter();
        let all = stacks.map(|stack| Self::of(&stack.figures, profile.rate));
        all.fold(Self::default(), Self::and)
    }

    fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            bytes: self.bytes + other.bytes,
            variance: self.variance + other.variance,
        }
    }

    /// The standard error as a share of the bytes.
    fn error(self) -> String {
        match 100.0 * self.variance.sqrt() / self.bytes.max(1.0) {
            ..0.5 => "under 1 %".to_owned(),
            percent => format!("{percent:.0} %"),
        }
    }
}

/// Why there is no profile of `what`, which was sampled at `rate`. `finer` says how to sample more
/// finely, where that is possible.
pub fn no_sample(what: &str, rate: u64, finer: &str) -> String {
    let finer = match rate {
        0..=FINEST_SAMPLE => String::new(),
        _ => format!("; {finer}"),
    };
    format!(
        "{what} was sampled every {} on average, and allocated so little that no sample \
         fell{finer}",
        Bytes(rate)
    )
}

/// A sentence on the live bytes of a profile and of its first place; `None` if the rate is not
/// known, or the figures are differences.
pub fn sentence(profile: &Profile, first: &Place<'_>) -> Option<String> {
    if profile.rate == 0 || profile.extent != Extent::Whole {
        return None;
    }
    let all = Estimate::of_all(profile);
    let first = Estimate::of(&first.figures, profile.rate);
    Some(format!(
        "The live bytes rest on {} (standard error {}), those of the first place on {} ({}).\n",
        counted(all.samples),
        all.error(),
        counted(first.samples),
        first.error()
    ))
}

/// Fewer live samples than this may hide a leak.
const FEW: f64 = 10.0;
/// The rate to advise, in bytes.
const FINER: u64 = 16 << 10;

/// A sentence on what a profile of so few live samples may not show. Of three times the rate, no
/// sample falls in one case in twenty.
pub fn missing(profile: &Profile) -> Option<String> {
    let rate = profile.rate;
    let was_sampled = rate > 0 && profile.total().alloc_bytes > 0;
    let is_few = was_sampled && Estimate::of_all(profile).samples < FEW;
    let or_finer = match rate {
        ..=FINER => "",
        _ => ", or use --sample 16K",
    };
    is_few.then(|| {
        format!(
            "At one sample in {}, growth of less than about {} can be missing: sample for \
             longer{or_finer}.\n",
            Bytes(rate),
            Bytes(rate.saturating_mul(3))
        )
    })
}

fn counted(samples: f64) -> String {
    match samples.round() {
        1.0 => "1 sample".to_owned(),
        samples => format!("{samples:.0} samples"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::Switched;

    #[test]
    fn growth_in_words() {
        assert_eq!(
            growth(0, 0, 0),
            "no place holds more live bytes than before"
        );
        assert_eq!(
            growth(0, 0, 2048),
            "no place holds more live bytes than before, and some 2.0 KiB less"
        );
        assert_eq!(
            growth(4096, 1, 0),
            "4.0 KiB in 1 more object are live than before"
        );
    }

    #[test]
    fn growth_of_bytes_and_of_objects_has_no_mean() {
        let session = Extent::Session { shrunk: 0 };
        let figures = Figures {
            live_objects: 3,
            live_bytes: 4096,
            live_usable: 4104,
            ..Figures::default()
        };
        for value in [Value::LiveSpace, Value::LiveObjects, Value::Waste] {
            assert_eq!(of_what(value, &figures, session), "4.0 KiB in 3 objects");
        }
    }

    #[test]
    fn what_was_allocated_in_a_session_has_a_size() {
        let figures = Figures {
            alloc_objects: 2,
            alloc_bytes: 48,
            ..Figures::default()
        };
        let words = of_what(Value::AllocSpace, &figures, Extent::Session { shrunk: 0 });
        assert_eq!(words, "2 objects of 24 B");
    }

    #[test]
    fn a_mean_is_rounded_as_elsewhere() {
        let figures = Figures {
            live_objects: 3,
            live_bytes: 599,
            live_usable: 599,
            ..Figures::default()
        };
        let words = of_what(Value::LiveSpace, &figures, Extent::Whole);
        assert_eq!(words, "3 objects of 200 B");
        let words = of_what(Value::Waste, &figures, Extent::Whole);
        assert!(words.starts_with("on average 200 bytes"), "{words}");
    }

    #[test]
    fn who_switches_sampling_meanwhile_is_told_of() {
        let told = |rate, after_ms| {
            let profile = Profile {
                rate: 65536,
                switched: Some(Switched { rate, after_ms }),
                ..Profile::default()
            };
            gap(&profile).unwrap()
        };
        assert_eq!(gap(&Profile::default()), None);
        assert!(told(0, 812).starts_with("Sampling was switched off by another neap 0.8 s after"));
        assert!(told(1 << 20, 1500).contains("to every 1.0 MiB on average by another neap 1.5 s"));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1234), "1,234");
        assert_eq!(grouped(123_456_789), "123,456,789");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(objects(1), "1 object");
    }

    fn live(objects: u64, size: u64) -> Figures {
        Figures {
            live_objects: objects,
            live_bytes: objects * size,
            live_usable: objects * size,
            ..Figures::default()
        }
    }

    #[test]
    fn small_objects_err_by_the_root_of_their_samples() {
        // 100 samples of 16 bytes at 512 KiB represent 3,276,850 objects.
        let estimate = Estimate::of(&live(3_276_850, 16), 512 << 10);
        assert_eq!(counted(estimate.samples), "100 samples");
        assert_eq!(estimate.error(), "10 %");
        let both = estimate.and(estimate);
        assert_eq!(
            (counted(both.samples), both.error()),
            ("200 samples".to_owned(), "7 %".to_owned())
        );
    }

    #[test]
    fn an_object_far_above_the_rate_is_exact() {
        let estimate = Estimate::of(&live(1, 100 << 20), 512 << 10);
        assert_eq!(counted(estimate.samples), "1 sample");
        assert_eq!(estimate.error(), "under 1 %");
    }

    #[test]
    fn nothing_live_is_no_sample() {
        assert_eq!(counted(Estimate::of(&live(0, 0), 1).samples), "0 samples");
    }

    #[test]
    fn an_estimate_is_bounded_by_what_was_counted_within_its_error() {
        let figures = live(1000, 1024);
        let profile = Profile {
            rate: 1024,
            stacks: vec![Stack {
                figures,
                ..Stack::default()
            }],
            ..Profile::default()
        };
        let bounded = |usable| bounded(profile.clone(), usable).total().live_bytes;
        assert_eq!(bounded(1_000_000), 1_000_000);
        assert_eq!(bounded(2_000_000), 1_024_000);
        // An excess of half is no error of the estimate. The rest came later.
        assert_eq!(bounded(500_000), 1_024_000);
    }
}
