//! Writes the profile in pprof's format, from its public description
//! (<https://github.com/google/pprof/blob/main/proto/README.md>).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};
use neap_heap::os::process;
use neap_instruments::profile::read_region;
use neap_shared::pprof::{DROP_FRAMES, SHOWN, VALUES};
use neap_shared::sites::{FRAMES, Head, MAPS_AT, MAPS_BYTES, MOST_SITES, Site};
use neap_shared::sites::{is_python, objects, sane, site_at};

/// Fields of the message `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const STRING_TABLE: u64 = 6;
    pub(super) const DROP_FRAMES: u64 = 7;
    pub(super) const TIME_NANOS: u64 = 9;
    pub(super) const DURATION_NANOS: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
    pub(super) const COMMENT: u64 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// The file; `None` if the profiler was never on.
pub(super) fn file() -> Option<Vec<u8>> {
    let head: Head = read(0)?;
    let text = maps(&head)?;
    let mut writer = Writer {
        file: Message::default(),
        mappings: text.lines().filter_map(Mapping::of).collect(),
        strings: Strings::default(),
        locations: BTreeMap::new(),
    };
    writer.values();
    // Site 0 is for samples without a place.
    for index in 0..head.sites.min(MOST_SITES as u64) as usize {
        writer.sample(&read(site_at(index))?);
    }
    Some(writer.finish(&head))
}

/// A record of the region.
fn read<T: Pod + Zeroable>(offset: usize) -> Option<T> {
    let mut record = T::zeroed();
    let words = bytemuck::cast_slice_mut(core::slice::from_mut(&mut record));
    read_region(offset, words).then_some(record)
}

/// The lines of `/proc/self/maps` that the profiler wrote down.
fn maps(head: &Head) -> Option<String> {
    let bytes = head.maps_bytes.min(MAPS_BYTES as u64) as usize;
    let mut words = vec![0; bytes.div_ceil(size_of::<u64>())];
    read_region(MAPS_AT, &mut words).then_some(())?;
    let text: &[u8] = bytemuck::cast_slice(&words);
    Some(String::from_utf8_lossy(&text[..bytes]).into_owned())
}

/// An executable mapping of a file.
struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses `start-end rights offset device inode   path`; `None` unless it maps a file.
    fn of(line: &'a str) -> Option<Self> {
        let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let mut words = rest.splitn(5, ' ').skip(1);
        let offset = hexadecimal(words.next()?)?;
        let path = words.nth(2)?.trim_start();
        path.starts_with('/').then_some(Self {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            offset,
            path: path.strip_suffix(" (deleted)").unwrap_or(path),
        })
    }
}

/// The file so far, and the numbers that its parts refer to.
struct Writer<'a> {
    file: Message,
    mappings: Vec<Mapping<'a>>,
    strings: Strings,
    /// Numbers of addresses.
    locations: BTreeMap<u64, u64>,
}

impl Writer<'_> {
    fn values(&mut self) {
        for (name, unit) in VALUES {
            let value = self.value(name, unit);
            self.file.message(profile::SAMPLE_TYPE, &value);
        }
    }

    /// `ValueType`.
    fn value(&mut self, name: &str, unit: &str) -> Message {
        let mut value = Message::default();
        value.number(1, self.strings.of(name));
        value.number(2, self.strings.of(unit));
        value
    }

    /// `Sample`: the locations, innermost first, and the values.
    fn sample(&mut self, site: &Site) {
        let (usable, live) = (sane(site.live_usable), sane(site.live_bytes));
        let values = [
            objects(site.alloc_objects),
            sane(site.alloc_bytes),
            objects(site.live_objects),
            live,
            usable.saturating_sub(live),
        ];
        if values == [0; VALUES.len()] {
            return;
        }
        let frames = &site.frames[..site.depth.min(FRAMES as u64) as usize];
        let mut sample = Message::default();
        let addresses = frames.iter().filter(|&&frame| !is_python(frame));
        sample.numbers(1, addresses.map(|&frame| self.location(frame)));
        sample.numbers(2, values.into_iter());
        self.file.message(profile::SAMPLE, &sample);
    }

    /// The number of a return address.
    fn location(&mut self, frame: u64) -> u64 {
        let next = self.locations.len() as u64 + 1;
        let id = *self.locations.entry(frame).or_insert(next);
        if id == next {
            // Like Go: an address inside the call.
            let address = frame.saturating_sub(1);
            let holds = |mapping: &Mapping| (mapping.start..mapping.end).contains(&address);
            let mapping = self.mappings.iter().position(holds);
            let mut location = Message::default();
            location.number(1, id);
            location.number(2, mapping.map_or(0, |index| index as u64 + 1));
            location.number(3, address);
            self.file.message(profile::LOCATION, &location);
        }
        id
    }

    fn finish(mut self, head: &Head) -> Vec<u8> {
        for (id, mapping) in (1..).zip(&self.mappings) {
            let path = self.strings.of(mapping.path);
            let mut message = Message::default();
            for (field, number) in (1..).zip([id, mapping.start, mapping.end, mapping.offset, path])
            {
                message.number(field, number);
            }
            self.file.message(profile::MAPPING, &message);
        }
        let now = process::time_of_day_ns();
        let period_type = self.value("space", "bytes");
        self.file.message(profile::PERIOD_TYPE, &period_type);
        let about = format!("neap profile of process {}", head.pid);
        let numbers = [
            (profile::PERIOD, head.rate),
            (profile::TIME_NANOS, now),
            (
                profile::DURATION_NANOS,
                now.saturating_sub(head.began_ms.saturating_mul(1_000_000)),
            ),
            (profile::DROP_FRAMES, self.strings.of(DROP_FRAMES)),
            (profile::COMMENT, self.strings.of(&about)),
            (profile::DEFAULT_SAMPLE_TYPE, self.strings.of(SHOWN)),
        ];
        for (field, number) in numbers {
            self.file.number(field, sane(number));
        }
        // The first string is empty.
        self.file.bytes(profile::STRING_TABLE, b"");
        for string in &self.strings.0 {
            self.file.bytes(profile::STRING_TABLE, string.as_bytes());
        }
        self.file.0
    }
}

/// The table of strings, without the empty one that it begins with.
#[derive(Default)]
struct Strings(Vec<String>);

impl Strings {
    /// The number of a string.
    fn of(&mut self, text: &str) -> u64 {
        let known = self.0.iter().position(|string| string == text);
        let index = known.unwrap_or_else(|| {
            self.0.push(text.into());
            self.0.len() - 1
        });
        index as u64 + 1
    }
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A field with a number. 0 is what a missing field means.
    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    /// A field with several numbers, packed.
    fn numbers(&mut self, field: u64, numbers: impl Iterator<Item = u64>) {
        let mut packed = Message::default();
        numbers.for_each(|number| packed.varint(number));
        self.message(field, &packed);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        let mut message = Message::default();
        message.number(1, 150);
        message.number(2, 0);
        message.numbers(2, [3, 270, 86_942].into_iter());
        message.bytes(6, b"testing");
        let expected = b"\x08\x96\x01\x12\x06\x03\x8e\x02\x9e\xa7\x05\x32\x07testing";
        assert_eq!(message.0, expected);
    }

    #[test]
    fn mappings_of_files_are_parsed() {
        let line =
            "7f0000002000-7f0000003000 r-xp 00002000 08:01 77      /usr/lib/a b.so (deleted)";
        let mapping = Mapping::of(line).unwrap();
        assert_eq!(mapping.path, "/usr/lib/a b.so");
        let numbers = [mapping.start, mapping.end, mapping.offset];
        assert_eq!(numbers, [0x7f00_0000_2000, 0x7f00_0000_3000, 0x2000]);
        assert!(Mapping::of("7f0000004000-7f0000005000 r-xp 00000000 00:00 0").is_none());
        assert!(Mapping::of("7ff0-7ff1 r-xp 00000000 00:00 0      [vdso]").is_none());
    }

    #[test]
    fn strings_are_stored_once() {
        let mut strings = Strings::default();
        let numbers = ["a", "b", "a"].map(|text| strings.of(text));
        assert_eq!(numbers, [1, 2, 1]);
    }
}
