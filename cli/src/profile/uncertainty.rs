//! How many samples the live figures of a profile rest on, and how far they may be off.

use super::calls::Place;
use super::model::{Extent, Figures, Profile};
use neap_shared::control::FINEST_SAMPLE;
use neap_shared::stats::Bytes;

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
    let or_finer = match rate > FINER {
        true => ", or use --sample 16K",
        false => "",
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
}
