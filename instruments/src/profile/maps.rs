//! The process's executable mappings, as text for the tool that later names the frames.

use neap_heap::os::file;
use neap_shared::sites::is_python;

/// Most ranges noted.
const RANGES: usize = 512;
/// Bytes read at once, and so the longest line understood.
const CHUNK: usize = 4096;

/// The text so far, and the addresses that it covers.
pub(super) struct Maps {
    known: Known,
    /// The last bytes read. Not on the stack, because the stack of a sampled allocation may be
    /// short.
    chunk: [u8; CHUNK],
}

struct Known {
    ranges: [(u64, u64); RANGES],
    count: usize,
    /// Bytes of text.
    written: usize,
}

impl Maps {
    /// An empty text.
    pub(super) const fn new() -> Self {
        Maps {
            known: Known {
                ranges: [(0, 0); RANGES],
                count: 0,
                written: 0,
            },
            chunk: [0; CHUNK],
        }
    }

    /// Whether the mapping that holds an address was written down, or cannot be found. A Python
    /// function's frame needs none.
    pub(super) fn covers(&self, address: u64) -> bool {
        self.known.covers(address)
    }

    /// Bytes of text so far.
    pub(super) fn written(&self) -> usize {
        self.known.written
    }

    /// Appends the new executable mappings to the text in `room`. Returns the text's length in
    /// bytes. The caller holds a lock that a fork takes; else the fork's child would inherit the
    /// open file.
    pub(super) fn read(&mut self, room: &mut [u8]) -> usize {
        let Maps { known, chunk } = self;
        let Some(file) = file::open_read(c"/proc/self/maps") else {
            return known.written;
        };
        let mut held = 0;
        while let Some(got @ 1..) = file::read_some(file, &mut chunk[held..]) {
            let end = held + got;
            let whole = chunk[..end].iter().rposition(|&byte| byte == b'\n');
            let whole = whole.map_or(0, |last| last + 1);
            for line in chunk[..whole].split_inclusive(|&byte| byte == b'\n') {
                known.line(line, room);
            }
            chunk.copy_within(whole..end, 0);
            held = end - whole;
            if held == CHUNK {
                break;
            }
        }
        file::close(file);
        known.written
    }

    /// Stops looking for the mapping of an address that no mapping holds.
    pub(super) fn give_up(&mut self, address: u64) {
        if !self.covers(address) {
            let page = address & !0xFFF;
            self.known.add((page, page + 0x1000));
        }
    }
}

impl Known {
    fn covers(&self, address: u64) -> bool {
        let holds = |&(from, to): &(u64, u64)| (from..to).contains(&address);
        // Once all ranges are taken, do not read the maps again.
        self.count == RANGES || is_python(address) || self.ranges[..self.count].iter().any(holds)
    }

    fn add(&mut self, range: (u64, u64)) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = range;
            self.count += 1;
        }
    }

    fn line(&mut self, line: &[u8], room: &mut [u8]) {
        let Some(range) = executable(line) else {
            return;
        };
        let Some(place) = room.get_mut(self.written..self.written + line.len()) else {
            return;
        };
        if !self.ranges[..self.count].contains(&range) {
            place.copy_from_slice(line);
            self.written += line.len();
            self.add(range);
        }
    }
}

/// The range of a line `from-to r-xp …`, if it is executable.
fn executable(line: &[u8]) -> Option<(u64, u64)> {
    let dash = line.iter().position(|&byte| byte == b'-')?;
    let space = line.iter().position(|&byte| byte == b' ')?;
    let from = hexadecimal(&line[..dash])?;
    let to = hexadecimal(line.get(dash + 1..space)?)?;
    (line.get(space + 3) == Some(&b'x')).then_some((from, to))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_lines_are_kept_once() {
        let line = b"55d0c6e00000-55d0c6e01000 r-xp 00001000 fe:01 1234 /usr/bin/cat\n";
        assert_eq!(executable(line), Some((0x55d0_c6e0_0000, 0x55d0_c6e0_1000)));
        assert_eq!(executable(b"1000-2000 rw-p 0 0 0\n"), None);
        assert_eq!(executable(b"nonsense\n"), None);
        let (mut maps, mut room) = (Maps::new(), [0; 100]);
        maps.known.line(line, &mut room);
        maps.known.line(line, &mut room);
        assert_eq!(maps.written(), line.len());
        assert!(maps.covers(0x55d0_c6e0_0fff) && !maps.covers(0x55d0_c6e0_1000));
        maps.give_up(0x10);
        assert!(maps.covers(0x20));
    }

    #[test]
    fn the_process_itself_is_covered() {
        let (mut maps, mut room) = (Maps::new(), std::vec![0; 64 << 10]);
        let bytes = maps.read(&mut room);
        assert!(bytes > 0 && maps.covers(executable as fn(&[u8]) -> _ as usize as u64));
        assert_eq!(maps.read(&mut room), bytes);
    }
}
