//! Prometheus' text format, version 0.0.4. (The prometheus-client crate writes OpenMetrics, which
//! declares counters without their `_total`.)

use std::fmt::Write;

/// The media type.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values, in order.
    pub labels: Vec<(&'static str, String)>,
    /// The value in the metric's unit.
    pub value: f64,
}

/// Appends a metric with all its samples, or nothing if it has none. A name that ends with `_total`
/// is a counter, which only rises until the process ends; others are gauges.
pub fn write(out: &mut String, name: &str, help: &str, samples: &[Sample]) {
    if samples.is_empty() {
        return;
    }
    let kind = match name.ends_with("_total") {
        true => "counter",
        false => "gauge",
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for sample in samples {
        let labels: Vec<String> = sample
            .labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let _ = writeln!(out, "{name}{{{}}} {}", labels.join(","), sample.value);
    }
}

/// Escapes a label's value as the format requires. Other control characters are made visible, so
/// that they cannot control a terminal.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => out += "\\\\",
            '"' => out += "\\\"",
            '\n' => out += "\\n",
            _ if letter.is_control() => out.extend(letter.escape_default().flat_map(|letter| {
                let twice = (letter == '\\').then_some('\\');
                twice.into_iter().chain([letter])
            })),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_cannot_break_out_of_their_quotes() {
        let labels = vec![("pid", "1".into()), ("program", "a\"b\\c\nd\x1b[".into())];
        let mut out = String::new();
        let sample = Sample {
            labels,
            value: 1e21,
        };
        write(&mut out, "neap_x_bytes", "What it is.", &[sample]);
        let expected = "# HELP neap_x_bytes What it is.\n# TYPE neap_x_bytes gauge\n\
             neap_x_bytes{pid=\"1\",program=\"a\\\"b\\\\c\\nd\\\\u{1b}[\"} \
             1000000000000000000000\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn nothing_is_declared_without_samples() {
        let mut out = String::new();
        write(&mut out, "neap_x", "x", &[]);
        assert_eq!(out, "");
    }
}
