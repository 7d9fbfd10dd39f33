//! A figure: a named number, or a short text, with its unit.

/// A figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in millions.
    Bytes,
    /// Units of 1,024 bytes, as the kernel counts, shown in MiB.
    Kib,
    /// Bytes of a block, shown as they are.
    BlockBytes,
    /// A part of a whole, or a ratio, shown in percent.
    Share,
    /// A fractional number without a unit.
    Number,
    /// A count, shown as it is.
    Count,
    /// A time, shown in a suitable unit.
    Nanoseconds,
    /// A moment since the process began.
    Milliseconds,
    /// A long time.
    Seconds,
    /// A text.
    Text,
}

impl Unit {
    const ALL: [Unit; 10] = [
        Unit::Bytes,
        Unit::Kib,
        Unit::BlockBytes,
        Unit::Share,
        Unit::Number,
        Unit::Count,
        Unit::Nanoseconds,
        Unit::Milliseconds,
        Unit::Seconds,
        Unit::Text,
    ];

    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Kib => "KiB",
            Unit::BlockBytes => "block bytes",
            Unit::Share => "share",
            Unit::Number => "number",
            Unit::Count => "count",
            Unit::Nanoseconds => "ns",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Text => "text",
        }
    }

    /// The unit with that name in a record.
    pub fn find(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

/// A figure's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A text, such as the reason why there is no number.
    Text(String),
}

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, without commas.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value; some differences are negative.
    pub value: Value,
}

impl Figure {
    /// A number in `unit`.
    pub fn new(name: impl Into<String>, unit: Unit, value: f64) -> Figure {
        let (name, value) = (name.into(), Value::Number(value));
        Figure { name, unit, value }
    }

    /// A number of bytes.
    pub fn bytes(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Bytes, value)
    }

    /// A number of KiB.
    pub fn kib(name: impl Into<String>, value: u64) -> Figure {
        Figure::new(name, Unit::Kib, value as f64)
    }

    /// A number of bytes of a block.
    pub fn block_bytes(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::BlockBytes, value)
    }

    /// A part of a whole; 1 is all of it.
    pub fn share(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Share, value)
    }

    /// A number without a unit.
    pub fn number(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Number, value)
    }

    /// A count.
    pub fn count(name: impl Into<String>, value: u64) -> Figure {
        Figure::new(name, Unit::Count, value as f64)
    }

    /// A time.
    pub fn nanoseconds(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Nanoseconds, value)
    }

    /// A text.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Figure {
        let (name, value) = (name.into(), Value::Text(text.into()));
        Figure {
            name,
            unit: Unit::Text,
            value,
        }
    }

    /// Its number; `None` for a text.
    pub fn as_number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Text(_) => None,
        }
    }

    /// Its text; `None` for a number.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_found_by_its_name() {
        for unit in Unit::ALL {
            assert_eq!(Unit::find(unit.name()), Some(unit));
        }
        assert_eq!(Unit::find("miles"), None);
    }
}
