//! Writes the format, and the text form of a heap profile.

use super::messages::{
    Function, Label, Line, Location, Mapping, SESSION, SWITCHED, Sample, ValueType,
};
use crate::profile::model::{self, Extent, Figures, Frame, Profile, Stack, Switched};
use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use neap_shared::pprof::{DROP_FRAMES, SHOWN, VALUES};
use prost::Message;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

/// How the samples are labelled, and which value a viewer shows first.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// These labels, the same for every sample. `None`: the mean size of the sample's objects.
    /// Agents subtract one profile from the next, sample by sample. A sample whose label changed is
    /// a new sample to them, and mean sizes change.
    pub labels: Option<&'a [(&'static str, String)]>,
    /// The first value to show, one of [`VALUES`].
    pub shown: &'static str,
}

/// The profile as a gzip-compressed file, for people.
pub fn encode(profile: &Profile) -> Vec<u8> {
    let style = Style {
        labels: None,
        shown: SHOWN,
    };
    encode_as(profile, style)
}

/// The profile as a gzip-compressed file.
pub fn encode_as(profile: &Profile, style: Style) -> Vec<u8> {
    let message = Writer::new(profile, style).message(profile);
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = out.write_all(&message.encode_to_vec());
    out.finish().unwrap_or_default()
}

/// Numbers everything that the samples refer to.
struct Writer<'a> {
    style: Style<'a>,
    mappings: &'a [model::Mapping],
    /// The first one is empty.
    strings: IndexSet<String>,
    functions: HashMap<(&'a str, &'a str), u64>,
    function: Vec<Function>,
    /// Keyed by the addresses of the frames: shared frames make the same location.
    locations: HashMap<Vec<*const Frame>, u64>,
    location: Vec<Location>,
}

impl<'a> Writer<'a> {
    fn new(profile: &'a Profile, style: Style<'a>) -> Self {
        Self {
            style,
            mappings: &profile.mappings,
            strings: IndexSet::from([String::new()]),
            functions: HashMap::new(),
            function: Vec::new(),
            locations: HashMap::new(),
            location: Vec::new(),
        }
    }

    fn message(mut self, profile: &'a Profile) -> super::messages::Profile {
        let sample_type = VALUES
            .map(|(name, unit)| self.value_type(name, unit))
            .to_vec();
        let sample = profile
            .stacks
            .iter()
            .map(|stack| self.sample(stack))
            .collect();
        let mapping = (1..)
            .zip(&profile.mappings)
            .map(|(id, mapping)| self.mapping(id, mapping));
        let mapping = mapping.collect();
        let about = format!(
            "neap profile of {}, process {}",
            profile.program, profile.pid
        );
        let session = session_comment(profile.extent);
        let switched = profile.switched.map(switched_comment);
        let comments = [Some(about), session, switched].into_iter().flatten();
        let comment = comments
            .map(|text| index_of(&mut self.strings, &text))
            .collect();
        super::messages::Profile {
            sample_type,
            sample,
            mapping,
            drop_frames: index_of(&mut self.strings, DROP_FRAMES),
            time_nanos: nanoseconds(profile.ended_ms),
            duration_nanos: nanoseconds(profile.ended_ms.saturating_sub(profile.began_ms)),
            period_type: Some(self.value_type("space", "bytes")),
            period: signed(profile.rate),
            comment,
            default_sample_type: index_of(&mut self.strings, self.style.shown),
            location: self.location,
            function: self.function,
            string_table: self.strings.into_iter().collect(),
        }
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: index_of(&mut self.strings, name),
            unit: index_of(&mut self.strings, unit),
        }
    }

    fn sample(&mut self, stack: &'a model::Stack) -> Sample {
        let figures = &stack.figures;
        let values = [
            figures.alloc_objects,
            figures.alloc_bytes,
            figures.live_objects,
            figures.live_bytes,
            figures.waste(),
        ];
        let calls = stack.frames.chunk_by(|inner, _| inner.inlined);
        Sample {
            location_id: calls.map(|call| self.location(call)).collect(),
            value: values.map(signed).to_vec(),
            label: self.labels(figures),
        }
    }

    fn labels(&mut self, figures: &Figures) -> Vec<Label> {
        let given = self.style.labels.map(|labels| {
            let label = |(name, value): &(&str, String)| Label {
                key: index_of(&mut self.strings, name),
                str: index_of(&mut self.strings, value),
                ..Label::default()
            };
            labels.iter().map(label).collect()
        });
        given.unwrap_or_else(|| {
            let label = |size| Label {
                key: index_of(&mut self.strings, "bytes"),
                num: signed(size),
                num_unit: index_of(&mut self.strings, "bytes"),
                ..Label::default()
            };
            mean(figures).map(label).into_iter().collect()
        })
    }

    fn location(&mut self, call: &'a [Arc<Frame>]) -> u64 {
        let key: Vec<_> = call.iter().map(Arc::as_ptr).collect();
        if let Some(&id) = self.locations.get(&key) {
            return id;
        }
        let id = self.location.len() as u64 + 1;
        // Like Go: an address inside the call, not its return address.
        let address = call[0].address.saturating_sub(1);
        let line = call.iter().map(|frame| self.line(frame)).collect();
        self.location.push(Location {
            id,
            mapping_id: self.mapping_of(address),
            address,
            line,
        });
        self.locations.insert(key, id);
        id
    }

    fn mapping_of(&self, address: u64) -> u64 {
        let holds = |mapping: &model::Mapping| (mapping.start..mapping.end).contains(&address);
        self.mappings
            .iter()
            .position(holds)
            .map_or(0, |index| index as u64 + 1)
    }

    fn line(&mut self, frame: &'a Frame) -> Line {
        Line {
            function_id: self.function_of(&frame.function, &frame.file),
            line: i64::from(frame.line),
        }
    }

    fn function_of(&mut self, name: &'a str, file: &'a str) -> u64 {
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            let index = index_of(&mut self.strings, name);
            self.function.push(Function {
                id,
                name: index,
                system_name: index,
                filename: index_of(&mut self.strings, file),
            });
        }
        id
    }

    /// All names are resolved here, so a viewer need not look them up.
    fn mapping(&mut self, id: u64, mapping: &model::Mapping) -> Mapping {
        Mapping {
            id,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.offset,
            filename: index_of(&mut self.strings, &mapping.path),
            build_id: index_of(&mut self.strings, &mapping.build_id),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        }
    }
}

/// A string's number, by which it is stored once.
fn index_of(strings: &mut IndexSet<String>, text: &str) -> i64 {
    strings.insert_full(text.to_owned()).0 as i64
}

/// Explains the live values of a session (`pprof -comments` shows it).
fn session_comment(extent: Extent) -> Option<String> {
    match extent {
        Extent::Whole => None,
        Extent::Session { shrunk } => Some(format!("{SESSION}{shrunk}")),
    }
}

/// Tells that another observer switched sampling.
fn switched_comment(switched: Switched) -> String {
    format!("{SWITCHED}{}, {}", switched.rate, switched.after_ms)
}

/// Mean requested bytes per object.
fn mean(figures: &Figures) -> Option<u64> {
    figures.alloc_bytes.checked_div(figures.alloc_objects)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn nanoseconds(milliseconds: u64) -> i64 {
    signed(milliseconds.saturating_mul(1_000_000))
}

/// The profile as text. Its name, unlike Go's, tells pprof that these are totals already.
pub fn legacy(profile: &Profile) -> String {
    let mut out = format!("heap profile: {} heapprofile\n", counts(&profile.total()));
    for stack in &profile.stacks {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}{}", counts(&stack.figures), addresses(stack));
        for frame in &stack.frames {
            let (address, function) = (frame.address, &frame.function);
            let _ = writeln!(
                out,
                "#\t{address:#x}\t{function}\t{}:{}",
                frame.file, frame.line
            );
        }
        out.push('\n');
    }
    out
}

fn counts(figures: &Figures) -> String {
    let live = format!("{}: {}", figures.live_objects, figures.live_bytes);
    let allocated = format!("{}: {}", figures.alloc_objects, figures.alloc_bytes);
    format!("{live} [{allocated}] @")
}

/// Inlined calls have the address of the call that contains them.
fn addresses(stack: &Stack) -> String {
    let calls = stack.frames.iter().filter(|frame| !frame.inlined);
    calls.map(|call| format!(" {:#x}", call.address)).collect()
}
