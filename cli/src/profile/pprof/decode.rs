//! Reads the format as Neap, Go and others that count objects and bytes write it.
//!
//! A file may be hostile: a few bytes can refer to the same large object repeatedly, and decoded at
//! once, a file of empty fields would take thirty times its size. So the outermost level is read
//! field by field, and [`Budget`] limits what is kept.

use super::messages::{Function, Location, Mapping, SESSION, SWITCHED, Sample, ValueType};
use crate::failure::Failure;
use crate::profile::model::{self, Extent, Figures, Frame, Profile, Stack, Switched};
use crate::profile::symbols::clean;
use flate2::read::MultiGzDecoder;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

/// The profile in a file, compressed or not.
///
/// The format has no field for `alloc_usable`, so it is 0, unknown.
///
/// # Errors
/// The bytes are in another format, are damaged, claim an absurd size, are not a memory profile, or
/// are the difference of two profiles.
pub fn decode(bytes: &[u8]) -> Result<Profile, Failure> {
    let plain = unzip(bytes)?;
    let mut budget = Budget::default();
    let tables = Tables::read(&plain, &mut budget)?;
    tables.profile(&mut budget)
}

/// Most bytes of a sample, location or other part.
const MOST_OF_ONE: usize = 1 << 20;
/// Most bytes read of a name.
const LONGEST: usize = 16 << 10;

/// The file's tables, which refer to each other by number.
#[derive(Default)]
struct Tables<'a> {
    value_types: Vec<ValueType>,
    /// Each a [`Sample`], not decoded yet.
    samples: Vec<&'a [u8]>,
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    functions: HashMap<u64, Function>,
    strings: Vec<&'a [u8]>,
    period_type: ValueType,
    period: u64,
    time_nanos: u64,
    duration_nanos: u64,
    comment: Vec<u64>,
}

impl<'a> Tables<'a> {
    fn read(mut bytes: &'a [u8], budget: &mut Budget) -> Result<Self, Failure> {
        let mut tables = Self::default();
        while !bytes.is_empty() {
            budget.entries.spend(1)?;
            match field(&mut bytes)? {
                (tag, Field::Bytes(part)) => tables.part(tag, part, budget)?,
                (9, Field::Number(number)) => tables.time_nanos = number,
                (10, Field::Number(number)) => tables.duration_nanos = number,
                (12, Field::Number(number)) => tables.period = number,
                (13, Field::Number(number)) => tables.comment.push(number),
                _ => {}
            }
        }
        Ok(tables)
    }

    fn part(&mut self, tag: u32, part: &'a [u8], budget: &mut Budget) -> Result<(), Failure> {
        match tag {
            1 => self.value_types.push(message(part)?),
            2 => self.samples.push(part),
            3 => self.mappings.push(message(part)?),
            4 => {
                let location: Location = message(part)?;
                budget.entries.spend(location.line.len())?;
                self.locations.push(location);
            }
            5 => {
                let function: Function = message(part)?;
                self.functions.insert(function.id, function);
            }
            6 => self.strings.push(part),
            11 => self.period_type = message(part)?,
            13 => {
                let comments = numbers(part);
                budget.entries.spend(comments.len())?;
                self.comment.extend(comments);
            }
            _ => {}
        }
        Ok(())
    }

    fn profile(&self, budget: &mut Budget) -> Result<Profile, Failure> {
        let columns = Columns::of(&self.names(budget)?)?;
        let locations = self.calls(budget)?;
        let samples = self.samples.iter();
        let stacks = samples.map(|sample| stack(&message(sample)?, &columns, &locations, budget));
        let ended_ms = self.time_nanos / 1_000_000;
        let (program, pid) = self.about();
        Ok(Profile {
            pid,
            program,
            rate: self.rate(),
            began_ms: ended_ms.saturating_sub(self.duration_nanos / 1_000_000),
            ended_ms,
            extent: self.extent(),
            switched: self.switched(),
            stacks: stacks.collect::<Result<_, _>>()?,
            mappings: self.places(budget)?,
        })
    }

    fn names(&self, budget: &mut Budget) -> Result<Vec<String>, Failure> {
        let types = self.value_types.iter();
        types.map(|value| self.kept(value.r#type, budget)).collect()
    }

    /// A copied string, charged to the budget: all parts may refer to the same one.
    fn kept(&self, index: i64, budget: &mut Budget) -> Result<String, Failure> {
        let text = self.text(index)?;
        budget.text.spend(text.len())?;
        Ok(text)
    }

    fn text(&self, index: i64) -> Result<String, Failure> {
        let found = usize::try_from(index)
            .ok()
            .and_then(|index| self.strings.get(index));
        let bytes = found.ok_or_else(|| damaged(format_args!("there is no string {index}")))?;
        Ok(clean(&String::from_utf8_lossy(
            &bytes[..bytes.len().min(LONGEST)],
        )))
    }

    fn rate(&self) -> u64 {
        match self.text(self.period_type.r#type).as_deref() {
            Ok("space") => self.period,
            _ => 0,
        }
    }

    /// The program and its PID: from Neap's comment, else from the first mapping, which is the
    /// program's.
    fn about(&self) -> (String, u32) {
        let ours = self.comments().find_map(|comment| {
            let (program, pid) = comment
                .strip_prefix("neap profile of ")?
                .rsplit_once(", process ")?;
            Some((program.to_owned(), pid.parse().ok()?))
        });
        ours.unwrap_or_else(|| {
            let first = self.mappings.first();
            let path = first.and_then(|mapping| self.text(mapping.filename).ok());
            let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
            (path.map(name).unwrap_or_default(), 0)
        })
    }

    fn comments(&self) -> impl Iterator<Item = String> {
        let indices = self.comment.iter();
        indices.filter_map(|&index| self.text(index as i64).ok())
    }

    /// Only Neap's files state that they are of a session.
    fn extent(&self) -> Extent {
        let shrunk = self
            .comments()
            .find_map(|comment| comment.strip_prefix(SESSION)?.parse().ok());
        shrunk.map_or(Extent::Whole, |shrunk| Extent::Session { shrunk })
    }

    /// Only Neap's files state that another observer switched sampling.
    fn switched(&self) -> Option<Switched> {
        self.comments().find_map(|comment| {
            let (rate, after_ms) = comment.strip_prefix(SWITCHED)?.split_once(", ")?;
            Some(Switched {
                rate: rate.parse().ok()?,
                after_ms: after_ms.parse().ok()?,
            })
        })
    }

    fn places(&self, budget: &mut Budget) -> Result<Vec<model::Mapping>, Failure> {
        let places = self.mappings.iter().map(|mapping| {
            Ok(model::Mapping {
                start: mapping.memory_start,
                end: mapping.memory_limit,
                offset: mapping.file_offset,
                path: self.kept(mapping.filename, budget)?,
                build_id: self.kept(mapping.build_id, budget)?,
            })
        });
        places.collect()
    }

    /// The frames of each location.
    fn calls(&self, budget: &mut Budget) -> Result<Calls, Failure> {
        let mut modules = HashMap::new();
        for mapping in &self.mappings {
            modules.insert(mapping.id, self.kept(mapping.filename, budget)?);
        }
        let mut calls = Calls::new();
        for location in &self.locations {
            let module = modules.get(&location.mapping_id).map_or("", String::as_str);
            calls.insert(location.id, self.frames(location, module, budget)?);
        }
        Ok(calls)
    }

    fn frames(
        &self,
        location: &Location,
        module: &str,
        budget: &mut Budget,
    ) -> Result<Vec<Arc<Frame>>, Failure> {
        let count = location.line.len();
        let mut frames = Vec::with_capacity(count.max(1));
        budget
            .text
            .spend(module.len().saturating_mul(count.max(1)))?;
        let nameless = Frame {
            function: format!("{:#x}", location.address),
            module: module.to_owned(),
            address: returns_to(location.address),
            ..Frame::default()
        };
        for (index, line) in location.line.iter().enumerate() {
            let id = line.function_id;
            let function = self.functions.get(&id);
            let function =
                function.ok_or_else(|| damaged(format_args!("there is no function {id}")))?;
            frames.push(Arc::new(Frame {
                function: self.kept(function.name, budget)?,
                file: self.kept(function.filename, budget)?,
                line: u32::try_from(line.line).unwrap_or(0),
                inlined: index + 1 < count,
                ..nameless.clone()
            }));
        }
        if frames.is_empty() {
            frames.push(Arc::new(nameless));
        }
        Ok(frames)
    }
}

/// The return address of a call, from the address inside the call that the file holds; 0: unknown.
fn returns_to(address: u64) -> u64 {
    match address {
        0 => 0,
        address => address.saturating_add(1),
    }
}

/// Frames by location number.
type Calls = HashMap<u64, Vec<Arc<Frame>>>;

fn stack(
    sample: &Sample,
    columns: &Columns,
    calls: &Calls,
    budget: &mut Budget,
) -> Result<Stack, Failure> {
    let mut frames = Vec::new();
    for id in &sample.location_id {
        let found = calls.get(id);
        let found = found.ok_or_else(|| damaged(format_args!("there is no location {id}")))?;
        budget.frames.spend(found.len())?;
        frames.extend(found.iter().cloned());
    }
    Ok(Stack {
        frames,
        figures: columns.figures(&sample.value)?,
    })
}

/// The meaning of a sample's values.
struct Columns {
    count: usize,
    /// `alloc_objects`, `alloc_space`, `inuse_objects`, `inuse_space`, `waste_space`.
    at: [Option<usize>; 5],
}

impl Columns {
    fn of(names: &[String]) -> Result<Self, Failure> {
        let named = |name: &str| names.iter().position(|found| found == name);
        // Other allocators use these names for live objects.
        let at = [
            named("alloc_objects"),
            named("alloc_space"),
            named("inuse_objects").or_else(|| named("objects")),
            named("inuse_space").or_else(|| named("space")),
            named("waste_space"),
        ];
        match at {
            [_, None, _, None, _] => Err(failure!(
                "this is not a heap profile: its values are called {}",
                names.join(", ")
            )),
            _ => Ok(Self {
                count: names.len(),
                at,
            }),
        }
    }

    fn figures(&self, values: &[i64]) -> Result<Figures, Failure> {
        if values.len() != self.count {
            return Err(damaged(format_args!(
                "a sample has {} values instead of {}",
                values.len(),
                self.count
            )));
        }
        let [alloc_objects, alloc_bytes, live_objects, live_bytes, waste] =
            self.at.map(|at| at.map_or(0, |at| values[at]));
        let counted = |value: i64| {
            u64::try_from(value).map_err(|_| {
                failure!(
                    "this is the difference of two profiles: open it with pprof, or give \
                              neap one of the two"
                )
            })
        };
        let live_bytes = counted(live_bytes)?;
        Ok(Figures {
            alloc_objects: counted(alloc_objects)?,
            alloc_bytes: counted(alloc_bytes)?,
            alloc_usable: 0,
            live_objects: counted(live_objects)?,
            live_bytes,
            live_usable: live_bytes.saturating_add(counted(waste)?),
        })
    }
}

fn message<M: Message + Default>(part: &[u8]) -> Result<M, Failure> {
    match part.len() {
        0..=MOST_OF_ONE => M::decode(part).map_err(damaged),
        length => Err(damaged(format_args!("a part of it has {length} bytes"))),
    }
}

/// Reads packed numbers, up to the first damaged one.
fn numbers(mut part: &[u8]) -> Vec<u64> {
    let next = || prost::encoding::decode_varint(&mut part).ok();
    std::iter::from_fn(next).take(MOST_OF_ONE).collect()
}

/// One field.
enum Field<'a> {
    /// A number.
    Number(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// Takes the next field of a message, with its number.
fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Field<'a>), Failure> {
    let (tag, wire_type) = decode_key(rest).map_err(damaged)?;
    let length = match wire_type {
        WireType::Varint => {
            let number = decode_varint(rest).map_err(damaged)?;
            return Ok((tag, Field::Number(number)));
        }
        WireType::LengthDelimited => decode_varint(rest).map_err(damaged)?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::StartGroup | WireType::EndGroup => return Err(damaged("it has groups")),
    };
    let cut = rest.split_at_checked(usize::try_from(length).unwrap_or(usize::MAX));
    let (bytes, after) = cut.ok_or_else(|| damaged("it is cut short"))?;
    *rest = after;
    Ok((tag, Field::Bytes(bytes)))
}

/// An error for a malformed file.
pub fn damaged(why: impl std::fmt::Display) -> Failure {
    failure!(
        "this is not a pprof profile (neap run --profile and neap profile --format pprof write \
         them), or it is damaged: {why}"
    )
}

/// Most bytes of an unpacked file; the profile of 32,768 stacks has about six million.
pub const MOST: usize = 64 << 20;

pub const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The unpacked bytes of a file, which may be compressed or not.
pub fn unzip(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Failure> {
    if !bytes.starts_with(&GZIP) {
        return within(bytes.len()).map(|()| Cow::Borrowed(bytes));
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(MOST as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|error| failure!("the profile is damaged or cut short: {error}"))?;
    within(plain.len()).map(|()| Cow::Owned(plain))
}

fn within(length: usize) -> Result<(), Failure> {
    match length {
        0 => Err(failure!("the profile is empty")),
        1..=MOST => Ok(()),
        _ => Err(failure!(
            "the profile has over {} MiB once unpacked: neap reads no larger ones",
            MOST >> 20
        )),
    }
}

/// The remaining budget.
pub struct Budget {
    /// Samples, locations, lines, functions, strings and mappings.
    pub entries: Allowance,
    /// Bytes of names.
    pub text: Allowance,
    /// Frames of all stacks.
    pub frames: Allowance,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            entries: Allowance(4 << 20, "entries"),
            text: Allowance(256 << 20, "text"),
            frames: Allowance(16 << 20, "frames"),
        }
    }
}

/// How many are left, and of what.
pub struct Allowance(usize, &'static str);

impl Allowance {
    /// Spends some of them.
    pub fn spend(&mut self, count: usize) -> Result<(), Failure> {
        let Self(left, what) = self;
        *left = left.checked_sub(count).ok_or_else(|| {
            failure!(
                "the profile has more {what} than neap reads: it is damaged, or meant to do harm"
            )
        })?;
        Ok(())
    }
}
