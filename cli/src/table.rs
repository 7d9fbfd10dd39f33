//! Findings, as a table for people or as JSON for programs.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde_json::{Value, json};

/// One item of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The item's name.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What it means for the user.
    pub meaning: String,
}

/// The state of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It works, optionally with a value.
    Ok(String),
    /// It does not work, with the reason.
    Absent(String),
    /// A value that is neither good nor bad.
    Is(String),
}

impl Finding {
    /// A finding.
    pub fn new(name: &'static str, state: State, meaning: impl Into<String>) -> Self {
        Self {
            name,
            state,
            meaning: meaning.into(),
        }
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state.word(),
            "value": self.state.value(),
            "meaning": self.meaning,
        })
    }
}

impl State {
    /// The state's name in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::Absent(_) => "absent",
            Self::Is(_) => "is",
        }
    }

    fn value(&self) -> &str {
        let (Self::Ok(value) | Self::Absent(value) | Self::Is(value)) = self;
        value
    }

    fn cell(&self) -> Cell {
        match self {
            Self::Is(value) => Cell::new(value),
            Self::Ok(value) => Cell::new(with_value("OK", value)).fg(Color::Green),
            Self::Absent(value) => Cell::new(with_value("absent", value)).fg(Color::Yellow),
        }
    }
}

fn with_value(word: &str, value: &str) -> String {
    match value {
        "" => word.to_owned(),
        _ => format!("{word}: {value}"),
    }
}

/// The least width for folding; a terminal that does not know its width may report less.
const NARROWEST: u16 = 40;

/// The findings as a table with a title. Lines are folded only for a terminal.
pub fn table(title: &str, findings: &[Finding]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).enforce_styling();
    if table.width().is_some_and(|width| width >= NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for finding in findings {
        table.add_row([
            Cell::new(finding.name),
            finding.state.cell(),
            Cell::new(&finding.meaning),
        ]);
    }
    let bold = anstyle::Style::new().bold();
    let end = if findings.is_empty() { "" } else { "\n" };
    format!("{bold}{title}{bold:#}\n{}{end}", table.trim_fmt())
}
