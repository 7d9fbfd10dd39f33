//! The statistics of paired runs, and random numbers from a seed.

/// The comparison of two allocators by paired runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The median of the pairs' ratios.
    pub median: f64,
    /// The lower and the upper quartile of the ratios.
    pub quartiles: (f64, f64),
    /// The probability of ranks at least this uneven if neither were better (two-sided, exact).
    pub p: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Comparison {
    /// The significance level of every verdict. Six pairs are the fewest that can reach it.
    pub const LEVEL: f64 = 0.05;

    /// Compares pairs of (value, base); `None` without pairs or with a value not above zero.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Comparison> {
        let positive = pairs.iter().all(|&(value, base)| value > 0.0 && base > 0.0);
        if pairs.is_empty() || !positive {
            return None;
        }
        let ratios: Vec<f64> = pairs.iter().map(|&(value, base)| value / base).collect();
        let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
        Some(Comparison {
            median: quantile(&ratios, 0.5),
            quartiles: (quantile(&ratios, 0.25), quantile(&ratios, 0.75)),
            p: signed_rank(&logs),
            pairs: pairs.len(),
        })
    }

    /// Whether the difference is significant.
    pub fn separable(&self) -> bool {
        self.p < Comparison::LEVEL
    }
}

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower and the upper quartile.
    pub quartiles: (f64, f64),
    /// The number of values.
    pub rounds: usize,
}

impl Spread {
    /// The spread of `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Spread> {
        (!values.is_empty()).then(|| Spread {
            median: quantile(values, 0.5),
            quartiles: (quantile(values, 0.25), quantile(values, 0.75)),
            rounds: values.len(),
        })
    }

    /// Half the distance of the quartiles.
    pub fn half(&self) -> f64 {
        (self.quartiles.1 - self.quartiles.0) / 2.0
    }
}

/// The `q`-quantile (0 to 1), interpolated linearly between neighbours.
///
/// # Panics
/// If `values` is empty.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The geometric mean; `None` for no values.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|v| v.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

/// Wilcoxon's signed-rank test of differences: the exact two-sided p. Differences of zero are
/// left out (Wilcoxon 1945), ties share the mean of their ranks.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let mut nonzero: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0).collect();
    nonzero.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let ranks = doubled_ranks(&nonzero);
    let positive: usize = nonzero
        .iter()
        .zip(&ranks)
        .filter(|(d, _)| **d > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    let total: usize = ranks.iter().sum();
    let chances = sum_chances(&ranks);
    let tail: f64 = chances[..=positive.min(total - positive)].iter().sum();
    (2.0 * tail).min(1.0)
}

/// Twice the rank of each of `sorted` by absolute value, so that shared ranks are whole numbers.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    let same = |a: &&f64, b: &f64| a.abs() == b.abs();
    let mut ranks = Vec::with_capacity(sorted.len());
    while ranks.len() < sorted.len() {
        let start = ranks.len();
        let ties = sorted[start..]
            .iter()
            .take_while(|d| same(d, &sorted[start]))
            .count();
        // Ranks start+1 to start+ties; twice their mean is the sum of the first and the last.
        ranks.extend(std::iter::repeat_n(2 * start + ties + 1, ties));
    }
    ranks
}

/// The probability of each sum of a random subset of `ranks`.
fn sum_chances(ranks: &[usize]) -> Vec<f64> {
    let mut chances = vec![0.0; ranks.iter().sum::<usize>() + 1];
    chances[0] = 1.0;
    for &rank in ranks {
        for sum in (0..chances.len()).rev() {
            let without = chances[sum];
            let with = if sum >= rank {
                chances[sum - rank]
            } else {
                0.0
            };
            chances[sum] = 0.5 * (without + with);
        }
    }
    chances
}

/// SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain per number; any seed is good.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always yields the same sequence for `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must be at most 2³²; the bias is below 2⁻³² times `n`.
    #[inline(always)]
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 32) as usize * n) >> 32
    }

    /// Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn five_and_six_equal_signs_have_the_known_p() {
        assert!(close(signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 32.0));
        assert!(close(
            signed_rank(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]),
            2.0 / 64.0
        ));
    }

    #[test]
    fn darwins_maize_has_the_published_p() {
        // Fifteen pairs of plants, crossed minus self-fertilised, in eighths of an inch;
        // W = 24, exact two-sided p = 0.0413 (with the tied pair of 14 sharing its ranks).
        let maize = [
            49., -67., 8., 16., 6., 23., 28., 41., 14., 29., 56., 24., 75., 60., -48.,
        ];
        assert!(
            (signed_rank(&maize) - 0.0413).abs() < 0.0005,
            "{}",
            signed_rank(&maize)
        );
    }

    #[test]
    fn ties_share_ranks_and_zeros_are_left_out() {
        assert_eq!(doubled_ranks(&[1.0, -1.0, 2.0]), [3, 3, 6]);
        assert!(close(signed_rank(&[0.0, 0.0]), 1.0));
        // Ranks 1.5, 1.5, 3 with signs +, -, +: sums 0 to 1.5 have 1/8 + 2/8.
        assert!(close(signed_rank(&[1.0, -1.0, 2.0]), 0.75));
    }

    #[test]
    fn a_comparison_of_equals_is_not_separable() {
        let pairs: Vec<(f64, f64)> = (0..10)
            .map(|i| {
                if i % 2 == 0 {
                    (10.0, 11.0)
                } else {
                    (11.0, 10.0)
                }
            })
            .collect();
        let comparison = Comparison::of(&pairs).unwrap();
        assert!(!comparison.separable(), "{comparison:?}");
        assert!((0.9..1.1).contains(&comparison.median));
    }

    #[test]
    fn a_steady_lead_is_separable() {
        let pairs: Vec<(f64, f64)> = (0..10)
            .map(|i| (8.0 + f64::from(i), 10.0 + f64::from(i)))
            .collect();
        let comparison = Comparison::of(&pairs).unwrap();
        assert!(
            comparison.separable() && comparison.median < 1.0,
            "{comparison:?}"
        );
        assert!(comparison.quartiles.0 <= comparison.median);
    }

    #[test]
    fn means_and_quantiles() {
        assert!(close(geometric_mean(&[2.0, 8.0]).unwrap(), 4.0));
        assert_eq!(geometric_mean(&[]), None);
        let spread = Spread::of(&[100.0, 300.0, 200.0]).unwrap();
        assert_eq!((spread.median, spread.quartiles), (200.0, (150.0, 250.0)));
        assert_eq!((spread.half(), spread.rounds), (50.0, 3));
        assert_eq!(Spread::of(&[]), None);
        assert!(close(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5));
        assert_eq!(Comparison::of(&[]), None);
        assert_eq!(Comparison::of(&[(0.0, 1.0)]), None);
    }

    #[test]
    fn first_numbers_are_those_of_the_reference() {
        let mut rng = Rng::new(1234567);
        assert_eq!(rng.next(), 6457827717110365317);
        assert_eq!(rng.next(), 3203168211198807973);
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(7).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut rng = Rng::new(3);
        let seen: Vec<usize> = (0..1000).map(|_| rng.below(10)).collect();
        assert_eq!((seen.iter().min(), seen.iter().max()), (Some(&0), Some(&9)));
    }
}
