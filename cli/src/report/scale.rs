//! The axes of the timeline.

use neap_shared::stats::Bytes;

/// In the picture's own units.
pub const WIDTH: f64 = 1000.0;
/// See [`WIDTH`].
pub const HEIGHT: f64 = 300.0;
/// A labelled position on an axis.
#[derive(Debug)]
pub struct Tick {
    /// In the picture's units.
    pub at: f64,
    /// The same in percent of the axis.
    pub percent: f64,
    /// Its label.
    pub text: String,
}

/// From times and bytes to places in the picture.
pub struct Scale {
    /// The first moment, in ms.
    pub first: u64,
    /// The last moment, in ms.
    pub last: u64,
    /// The bytes at the top.
    pub top: f64,
}

impl Scale {
    /// The place of a moment.
    pub fn x(&self, time: u64) -> f64 {
        let span = (self.last - self.first) as f64;
        (time.saturating_sub(self.first) as f64 / span).min(1.0) * WIDTH
    }

    /// The height of a number of bytes.
    pub fn y(&self, bytes: f64) -> f64 {
        HEIGHT - (bytes / self.top).clamp(0.0, 1.0) * HEIGHT
    }

    /// Horizontal lines with labels.
    pub fn grid(&self) -> Vec<Tick> {
        let line = |part: u32| {
            let bytes = self.top * f64::from(part) / 4.0;
            let at = self.y(bytes);
            Tick {
                at,
                percent: at / HEIGHT * 100.0,
                text: Bytes(bytes as u64).to_string(),
            }
        };
        (1..=4).map(line).collect()
    }

    /// Marks on the time axis.
    pub fn times(&self) -> Vec<Tick> {
        let (first, last) = (self.first as f64 / 1e3, self.last as f64 / 1e3);
        let step = step((last - first) / 4.0);
        let begin = (first / step).ceil();
        let mark = |index: i32| {
            let time = (begin + f64::from(index)) * step;
            let share = (time - first) / (last - first);
            (share <= 1.0).then(|| Tick {
                at: share * WIDTH,
                percent: share * 100.0,
                text: seconds(time, step),
            })
        };
        (0..8).map_while(mark).collect()
    }
}

fn seconds(time: f64, step: f64) -> String {
    match step {
        ..0.01 => format!("{time:.3} s"),
        ..1.0 => format!("{time:.2} s"),
        _ => format!("{time:.0} s"),
    }
}

/// The least of 1, 2 or 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-3).log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// The least of 1, 1.5, 2, 3, 4 or 6 times a power of two that is above `bytes`.
pub fn nice(bytes: f64) -> f64 {
    let power = 2f64.powf(bytes.log2().floor());
    let factor = [1.0, 1.25, 1.5, 1.75]
        .into_iter()
        .find(|factor| factor * power >= bytes);
    factor.unwrap_or(2.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(step(0.3), 0.5);
        assert_eq!(step(7.0), 10.0);
        assert_eq!(nice(1000.0), 1024.0);
        assert_eq!(nice(1025.0), 1280.0);
    }
}
