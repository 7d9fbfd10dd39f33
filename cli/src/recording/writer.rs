//! Appends lines.
//!
//! Each line is one `write` straight to the file, so it survives a crash of the program or of
//! `neap`. A line that does not fit (a full disk, a quota) is taken back, so that the file still
//! ends with a whole line. The writer counts such lines. When there is room again, the recording
//! continues and states how many lines are missing.

use super::format::{Event, Happening, Record, START};
use crate::failure::{Failure, shown};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A recording in progress.
pub struct Writer {
    file: File,
    name: PathBuf,
    /// Bytes of whole lines.
    whole: u64,
    /// Lines that did not fit, since the last one that did.
    missing: u64,
    /// Lines that did not fit, since the beginning.
    lost: u64,
    /// Why the last one did not fit.
    trouble: Option<String>,
    /// Whether the file ends with half a line that could not be taken back.
    torn: bool,
}

impl Writer {
    /// Creates the file, or truncates an existing recording.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or is not a recording; it is then unchanged.
    pub fn create(name: &Path) -> Result<Self, Failure> {
        let refused =
            |what: &dyn std::fmt::Display| failure!("cannot record to {}: {what}", shown(name));
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(name)
            .map_err(|error| crate::files::failure(name, &error))?;
        let about = file.metadata().map_err(|error| refused(&error))?;
        if !about.is_file() {
            return Err(refused(&"it is not an ordinary file"));
        }
        if about.len() > 0 && !is_recording(&file) {
            return Err(refused(
                &"the file exists and is not a recording, so it is left as it is",
            ));
        }
        file.set_len(0).map_err(|error| refused(&error))?;
        Ok(Self::over(file, name))
    }

    fn over(file: File, name: &Path) -> Self {
        Self {
            file,
            name: name.to_owned(),
            whole: 0,
            missing: 0,
            lost: 0,
            trouble: None,
            torn: false,
        }
    }

    /// Writes one line. A line that does not fit is counted and is no error, because the program
    /// must go on.
    pub fn write(&mut self, t_ms: u64, record: &Record) {
        if self.missing > 0 {
            let gap = Record::Event(Event {
                t_ms,
                pid: 0,
                what: Happening::Lost {
                    lines: self.missing,
                },
            });
            if self.line(&gap).is_ok() {
                self.missing = 0;
            }
        }
        let written = match self.missing {
            0 => self.line(record),
            _ => Err(()),
        };
        if written.is_err() {
            self.missing += 1;
            self.lost += 1;
        }
    }

    /// A message about missing lines, if there are any.
    pub fn complaint(&self) -> Option<String> {
        let why = self.trouble.as_deref()?;
        Some(format!(
            "{} lines of {} could not be written: {why}",
            self.lost,
            shown(&self.name)
        ))
    }

    /// Bytes of whole lines so far.
    pub fn bytes(&self) -> u64 {
        self.whole
    }

    fn line(&mut self, record: &Record) -> Result<(), ()> {
        if self.torn {
            return Err(());
        }
        let text = serde_json::to_vec(record).map_err(io::Error::from);
        let written = text.and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text)?;
            Ok(text.len() as u64)
        });
        match written {
            Ok(bytes) => {
                self.whole += bytes;
                Ok(())
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                self.torn = self.file.set_len(self.whole).is_err();
                Err(())
            }
        }
    }
}

fn is_recording(mut file: &File) -> bool {
    let mut start = [0; START.len()];
    file.read_exact(&mut start).is_ok() && start == START
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read;
    use crate::recording::reader::tests::{head, sample};
    use std::fs;

    #[test]
    fn a_file_that_is_something_else_is_left_as_it_is() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("program");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        let failure = Writer::create(&file).map(drop).unwrap_err();
        assert!(failure.to_string().contains("not a recording"), "{failure}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "#!/bin/sh\n");
        assert!(Writer::create(room.path()).is_err());
        assert!(Writer::create(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_recording_may_be_replaced() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("recording");
        for _ in 0..2 {
            let mut writer = Writer::create(&file).unwrap();
            writer.write(0, &head());
            writer.write(10, &sample(10));
        }
        let recording = read(&file).unwrap();
        assert_eq!(recording.samples.len(), 1);
    }

    #[test]
    fn on_a_full_disk_the_file_ends_with_a_whole_line() {
        let mut writer = Writer::over(
            OpenOptions::new().append(true).open("/dev/full").unwrap(),
            Path::new("/dev/full"),
        );
        writer.write(0, &head());
        writer.write(1, &sample(1));
        let complaint = writer.complaint().unwrap();
        assert!(complaint.starts_with("2 lines of /dev/full"), "{complaint}");
        assert_eq!(writer.bytes(), 0);
    }
}
