//! Reads a recording.

use super::format::{Classes, Embedded, Event, FORMAT, Happening, Head, Record, Sample, VERSION};
use crate::failure::{Failure, shown};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// A whole recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The first line.
    pub head: Head,
    /// Samples, like the lists below in the order of the file.
    pub samples: Vec<Sample>,
    /// The size classes, taken at longer intervals.
    pub classes: Vec<Classes>,
    /// The events.
    pub events: Vec<Event>,
    /// The profiles.
    pub profiles: Vec<Embedded>,
    /// Bytes of an incomplete last line that was left out.
    pub left_out: u64,
}

/// Most bytes of a line. The longest ones hold profiles: that of the most stacks has two million.
/// In memory, the values of a hostile line can take sixteen times its bytes.
const LONGEST: u64 = 32 << 20;
/// Most bytes that all lines may take in memory: those of a week of samples, ten a second.
const MOST: usize = 4 << 30;

/// Reads `file`.
///
/// # Errors
///
/// The file cannot be read, is no recording, or is damaged before its last line; the message names
/// the line.
pub fn read(file: &Path) -> Result<Recording, Failure> {
    let name = shown(file);
    let open = File::open(file).map_err(|error| failure!("cannot read {name}: {error}"))?;
    parse(&mut BufReader::new(open), MOST).map_err(|trouble| failure!("{name}{trouble}"))
}

/// Like [`read`], from any input, into at most `most` bytes of memory. The text of an error
/// continues after the file's name.
fn parse(input: &mut impl BufRead, most: usize) -> Result<Recording, String> {
    let first = match line(input).map_err(|error| about(1, &error))? {
        Some(Line::Whole(record)) => match *record {
            Record::Head(head) => checked(head)?,
            _ => return Err(about(1, &"a recording begins with its head")),
        },
        Some(Line::Torn(_)) | None => {
            return Err(" ends before its first line does: the recording had not begun".to_owned());
        }
    };
    let mut recording = Recording::new(first);
    let mut left = most;
    for number in 2.. {
        match line(input).map_err(|error| damaged(number, &error))? {
            None => break,
            Some(Line::Torn(bytes)) => {
                recording.left_out = bytes;
                break;
            }
            Some(Line::Whole(record)) => match *record {
                Record::Head(_) => return Err(damaged(number, &"a second head")),
                record => {
                    left = left
                        .checked_sub(bytes_of(&record))
                        .ok_or_else(|| too_many(number, most))?;
                    recording.take(record);
                }
            },
        }
    }
    Ok(recording)
}

impl Recording {
    /// A recording with only its first line.
    pub fn new(head: Head) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Sample(sample) => self.samples.push(*sample),
            Record::Classes(classes) => self.classes.push(classes),
            Record::Event(event) => self.events.push(event),
            Record::Profile(profile) => self.profiles.push(profile),
            Record::Head(_) => unreachable!("the caller looks at heads itself"),
        }
    }
}

enum Line {
    Whole(Box<Record>),
    /// The incomplete last line, with its length in bytes.
    Torn(u64),
}

fn line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut text = Vec::new();
    let bytes = input.by_ref().take(LONGEST).read_until(b'\n', &mut text)? as u64;
    match text.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(Line::Whole(serde_json::from_slice(&text)?))),
        Some(_) if bytes == LONGEST => Err(io::Error::other("the line is too long")),
        Some(_) => Ok(Some(Line::Torn(bytes))),
    }
}

/// About what a line takes in memory.
fn bytes_of(record: &Record) -> usize {
    size_of::<Record>()
        + match record {
            Record::Sample(_) => size_of::<Sample>(),
            Record::Classes(classes) => size_of_val(&classes.classes[..]),
            Record::Event(Event {
                what: Happening::Came { program, .. },
                ..
            }) => program.len(),
            Record::Event(_) | Record::Head(_) => 0,
            Record::Profile(profile) => profile.pprof.len() + profile.program.len(),
        }
}

fn too_many(number: u64, most: usize) -> String {
    format!(
        " has more lines than fit in {} MiB of memory: `head -n {}` makes a recording of the earlier \
         ones",
        most >> 20,
        number - 1
    )
}

fn checked(head: Head) -> Result<Head, String> {
    match (head.format.as_str(), head.version) {
        (FORMAT, VERSION) => Ok(head),
        (FORMAT, version) => Err(format!(
            " is a recording of version {version}; this neap reads version {VERSION}: use the neap \
             that wrote it ({})",
            shown(&head.written_by)
        )),
        _ => Err(about(1, &"the head names another format")),
    }
}

fn about(number: u64, what: &dyn Display) -> String {
    format!(": line {number} is not a recording's: {what}")
}

fn damaged(number: u64, what: &dyn Display) -> String {
    let sound = number - 1;
    format!(
        ": line {number} is damaged ({what}); `head -n {sound}` keeps the sound lines before it"
    )
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::recording::format::{ClassRow, Frontend, Heap};
    use crate::recording::{Machine, Writer};
    use neap_shared::ledger::Ledger;

    /// A head.
    pub fn head() -> Record {
        Record::Head(Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            written_by: "neap 0.1.0".to_owned(),
            program: "tests/<b>program".to_owned(),
            arguments: vec!["a b".to_owned(), "\u{1f30a}\n".to_owned()],
            pid: 42,
            started_ms: 1_700_000_000_000,
            interval_ms: 100,
            machine: Machine::default(),
            options: [("NEAP_DECAY".to_owned(), "5".to_owned())].into(),
        })
    }

    /// A sample at `t_ms`.
    pub fn sample(t_ms: u64) -> Record {
        let ledger = Ledger {
            requested: t_ms << 10,
            resident: t_ms << 10,
            ..Ledger::default()
        };
        let sample = Sample {
            t_ms,
            pid: 42,
            rss: t_ms << 11,
            arenas_rss: (t_ms.is_multiple_of(3)).then_some(t_ms << 10),
            ..Sample::default()
        };
        let heap = Heap {
            ledger,
            ..Heap::default()
        };
        Record::Sample(Box::new(if t_ms.is_multiple_of(5) {
            sample
        } else {
            sample.with(heap)
        }))
    }

    fn lines() -> Vec<Record> {
        let class = ClassRow {
            bytes: 48,
            live: 3,
            ..ClassRow::default()
        };
        let event = |t_ms, what| {
            Record::Event(Event {
                t_ms,
                pid: 42,
                what,
            })
        };
        let program = "\"quoted\"".to_owned();
        vec![
            head(),
            event(
                1,
                Happening::Came {
                    program,
                    frontend: Frontend::Rust,
                },
            ),
            sample(10),
            sample(21),
            event(22, Happening::Purge { bytes: 1 << 20 }),
            Record::Classes(Classes {
                t_ms: 22,
                pid: 42,
                classes: vec![class],
            }),
            sample(33),
            event(40, Happening::Killed { signal: 9 }),
            Record::Profile(Embedded {
                peak_ms: Some(33),
                early_ms: None,
                pid: 42,
                program: "program".to_owned(),
                pprof: "H4sIAAAA".to_owned(),
            }),
        ]
    }

    fn text() -> Vec<u8> {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("recording");
        let mut writer = Writer::create(&file).unwrap();
        lines().iter().for_each(|line| writer.write(0, line));
        assert_eq!(writer.complaint(), None);
        std::fs::read(file).unwrap()
    }

    fn parse_bytes(bytes: &[u8]) -> Result<Recording, String> {
        parse(&mut &bytes[..], MOST)
    }

    fn expected(lines: &[Record], left_out: u64) -> Recording {
        let Some((Record::Head(head), rest)) = lines.split_first() else {
            panic!("no head");
        };
        let mut recording = Recording::new(head.clone());
        rest.iter().cloned().for_each(|line| recording.take(line));
        recording.left_out = left_out;
        recording
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(parse_bytes(&text()).unwrap(), expected(&lines(), 0));
    }

    #[test]
    fn every_truncation_reads_as_a_prefix() {
        let (text, lines) = (text(), lines());
        for cut in 0..text.len() {
            let whole = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            let start = text[..cut].iter().rposition(|byte| *byte == b'\n');
            let left_out = cut - start.map_or(0, |at| at + 1);
            match parse_bytes(&text[..cut]) {
                Ok(recording) => {
                    assert_eq!(recording, expected(&lines[..whole], left_out as u64));
                }
                Err(error) => {
                    assert_eq!(whole, 0, "cut at {cut}: {error}");
                    assert!(error.contains("had not begun"), "{error}");
                }
            }
        }
    }

    #[test]
    fn damage_is_told_with_its_line() {
        let text = text();
        let starts = std::iter::once(0).chain(
            (0..text.len() - 1)
                .filter(|at| text[*at] == b'\n')
                .map(|at| at + 1),
        );
        for (index, start) in starts.enumerate() {
            for bad in [b'\xff', b'x', 0] {
                let mut text = text.clone();
                text[start] = bad;
                let error = parse_bytes(&text).unwrap_err();
                assert!(error.contains(&format!("line {} is", index + 1)), "{error}");
            }
        }
    }

    /// Arbitrary bytes, and valid lines with some bytes changed: the reader gives a result or an
    /// error and never crashes.
    #[test]
    fn nonsense_is_survived() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let (sound, mut errors) = (text(), 0);
        for round in 0..20_000 {
            let bytes: Vec<u8> = match round % 2 {
                0 => (0..random() % 200).map(|_| random() as u8).collect(),
                _ => {
                    let mut text = sound.clone();
                    for _ in 0..=random() % 3 {
                        let at = random() as usize % text.len();
                        text[at] = random() as u8;
                    }
                    text
                }
            };
            errors += usize::from(parse_bytes(&bytes).is_err());
        }
        assert!(errors > 10_000, "{errors}");
    }

    #[test]
    fn another_version_is_named() {
        let text = String::from_utf8(text()).unwrap();
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        let error = parse_bytes(newer.as_bytes()).unwrap_err();
        assert!(error.contains("version 2"), "{error}");
        let other = text.replacen(FORMAT, "neap-sonata", 1);
        assert!(parse_bytes(other.as_bytes()).is_err());
    }

    #[test]
    fn a_recording_without_an_end_is_refused() {
        let mut lines = Vec::new();
        for record in [head(), sample(5)] {
            lines.extend(serde_json::to_vec(&record).unwrap());
            lines.push(b'\n');
        }
        let second = lines.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        lines.extend(lines[second..].repeat(10_000));
        assert!(parse(&mut &lines[..], MOST).is_ok());
        let why = parse(&mut &lines[..], 1 << 20).unwrap_err();
        assert!(why.contains("more lines than fit in 1 MiB"), "{why}");
        let long = [&lines[..second], &vec![b' '; LONGEST as usize]].concat();
        let why = parse(&mut &long[..], MOST).unwrap_err();
        assert!(why.contains("the line is too long"), "{why}");
    }
}
