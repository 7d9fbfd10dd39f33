//! The Python functions that the calling thread executes, as CPython 3.11 to 3.14 records them.
//!
//! CPython keeps a record of each call: the function's code object, the instruction, and the
//! caller's record. A thread's records begin in its state, which a function of CPython's finds
//! without a lock. While Python runs, no other thread changes or frees the records or what they
//! refer to, so reading them does not need the GIL. At its end it frees those of daemon threads,
//! and such a thread may read what is no longer a record.
//!
//! CPython does not document the records, but within a minor release their layout does not change.
//! Nothing here relies on that: their words are read through [`crate::peek`], and a record counts
//! only if it refers to an object whose type is that of code. Nothing here allocates, takes a lock
//! or changes `errno`.

use super::table::hash_of;
use crate::peek::Peek;
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::{self, NonNull, null_mut};
use neap_heap::base::sync::plain::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};
use neap_heap::os::loader;
use neap_shared::sites::{FILE_AT, FRAMES, FUNCTION_AT, PYTHON, PYTHON_FRAMES};

/// Where a minor release of CPython keeps what is read here, as offsets in bytes.
struct Layout {
    /// The release, as in `Py_Version`.
    release: u16,
    /// In a thread's state: a structure with the current record, if it is not in the state itself.
    current_in: Option<u8>,
    /// There: the current record.
    current: u8,
    /// In a record: the caller's.
    caller: u8,
    /// In a record: the code object.
    code: u8,
    /// In a record: a byte that says what owns it. From [`FOREIGN`] on, no Python function does.
    owner: u8,
    /// In a code object: the line of the function's first instruction.
    first_line: u8,
    /// In a code object: the first instruction.
    start: u8,
    /// In a string: its characters, if all are ASCII, and if not.
    characters: [u8; 2],
}

static LAYOUTS: [Layout; 4] = [
    Layout {
        release: 0x30B,
        current: 8,
        caller: 48,
        code: 32,
        owner: 69,
        first_line: 72,
        start: 184,
        characters: [48, 72],
        ..V3_12
    },
    V3_12,
    V3_13,
    Layout {
        release: 0x30E,
        owner: 74,
        start: 208,
        ..V3_13
    },
];

const V3_12: Layout = Layout {
    release: 0x30C,
    current_in: Some(56),
    current: 0,
    caller: 8,
    code: 0,
    owner: 70,
    first_line: 68,
    start: 192,
    characters: [40, 56],
};

const V3_13: Layout = Layout {
    release: 0x30D,
    current_in: None,
    current: 72,
    start: 200,
    ..V3_12
};

// The same in all of them. In a record: the instruction. In a code object: the names of its file
// and of the function, and the table of lines.
const INSTRUCTION: u8 = 56;
const FILE: u8 = 112;
const FUNCTION: u8 = 128;
const LINES: u8 = 136;
// In any object: its type; the length of a string or of bytes. The form of a string; the first byte
// of bytes.
const TYPE: u8 = 8;
const LENGTH: u8 = 16;
const FORM: u8 = 32;
const BYTES: usize = 32;

/// Bits of a string's form: the characters follow the object; all are ASCII.
const COMPACT: usize = 1 << 5;
const ASCII: usize = 1 << 6;

/// See [`Layout::owner`].
const FOREIGN: usize = 3;
/// Most records read.
const MOST_RECORDS: usize = 4 * PYTHON_FRAMES;
/// Most bytes read of a table of lines.
const LONGEST_TABLE: usize = 64 << 10;

/// `PyGILState_GetThisThreadState`, null where there is no Python. Written last.
static THIS_THREAD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// `PyCode_Type`.
static CODE_TYPE: AtomicUsize = AtomicUsize::new(0);
/// The layout.
static LAYOUT: AtomicPtr<Layout> = AtomicPtr::new(null_mut());

type ThisThread = unsafe extern "C" fn() -> *mut c_void;

/// CPython's minor release, as in `Py_Version`; 0 before 3.11, or without Python.
#[unsafe(link_section = "neap_fork")]
static RELEASE: AtomicU16 = AtomicU16::new(0);

/// See [`RELEASE`].
pub fn python_release() -> u16 {
    RELEASE.load(Ordering::Relaxed)
}

/// Looks for Python in the program and its libraries. Called in a constructor only.
pub(crate) fn find_python() {
    _ = look_up();
}

fn look_up() -> Option<()> {
    // SAFETY: the process has one thread, or the loader's lock is held, as in a constructor.
    let find = |name: &CStr| unsafe { loader::find(None, name) }.ok().flatten();
    let version = find(c"Py_Version")?;
    // SAFETY: a constant of this type in CPython, and readable in whatever defines the name.
    let release = (unsafe { version.cast::<u64>().read_unaligned() } >> 16) as u16;
    RELEASE.store(release, Ordering::Relaxed);
    let layout = LAYOUTS.iter().find(|layout| layout.release == release)?;
    LAYOUT.store(ptr::from_ref(layout).cast_mut(), Ordering::Relaxed);
    let code_type = find(c"PyCode_Type")?;
    CODE_TYPE.store(code_type.addr().get(), Ordering::Relaxed);
    let this_thread = find(c"PyGILState_GetThisThreadState")?;
    THIS_THREAD.store(this_thread.as_ptr(), Ordering::Release);
    Some(())
}

/// Writes the Python functions that the thread executes to `frames`, innermost first, and returns
/// how many.
pub(super) fn capture(frames: &mut [u64; FRAMES]) -> usize {
    let (mut calls, mut count) = (calls(), 0);
    while count < PYTHON_FRAMES
        && let Some(call) = calls.next()
    {
        frames[count] = call.frame;
        count += 1;
    }
    count
}

/// The thread's calls of Python functions, innermost first. None for a thread without Python.
pub(super) fn calls() -> Calls {
    let mut calls = Calls {
        layout: &LAYOUTS[0],
        record: 0,
        records: Reader(Peek::beside(&0)),
        objects: Reader(Peek::beside(&0)),
        left: MOST_RECORDS,
    };
    _ = calls.begin();
    calls
}

/// See [`calls`].
pub(super) struct Calls {
    layout: &'static Layout,
    /// The next record.
    record: usize,
    /// Two readers, because each remembers one page.
    records: Reader,
    objects: Reader,
    left: usize,
}

/// A call of a Python function.
pub(super) struct Call {
    /// The site's frame.
    pub(super) frame: u64,
    layout: &'static Layout,
    code: usize,
    /// Where its instruction is, in bytes from the first one.
    instruction: usize,
}

impl Calls {
    /// Finds the first record.
    fn begin(&mut self) -> Option<()> {
        let this_thread = NonNull::new(THIS_THREAD.load(Ordering::Acquire))?;
        // SAFETY: null, or one of `LAYOUTS`.
        self.layout = unsafe { LAYOUT.load(Ordering::Relaxed).as_ref() }?;
        // SAFETY: CPython's function of this type, which may be called at any time in any thread.
        // It reads a word of the thread's own.
        let state = unsafe { transmute::<NonNull<c_void>, ThisThread>(this_thread)() }.addr();
        if state == 0 {
            return None;
        }
        let holder = match self.layout.current_in {
            Some(offset) => self.records.word(state, offset),
            None => state,
        };
        self.record = self.records.word(holder, self.layout.current);
        Some(())
    }

    /// The next call.
    pub(super) fn next(&mut self) -> Option<Call> {
        while self.record != 0 && self.left > 0 {
            self.left -= 1;
            let record = self.record;
            self.record = self.records.word(record, self.layout.caller);
            let owner = record.wrapping_add(self.layout.owner.into());
            if self.records.small(owner, 1) < FOREIGN {
                return self.call(record);
            }
        }
        None
    }

    fn call(&mut self, record: usize) -> Option<Call> {
        let layout = self.layout;
        // From 3.14 on, the lowest bit tells whether the record owns the code object.
        let code = self.records.word(record, layout.code) & !1;
        let instruction = self.records.word(record, INSTRUCTION);
        // Another code object at the address of one that was freed rarely agrees in all of these.
        let places = [TYPE, FUNCTION, LINES, FILE, layout.first_line & !7];
        let [kind, name, lines, file, first] = places.map(|at| self.objects.word(code, at));
        let words = [code, instruction, name, lines, file, first];
        let hash = hash_of(&words.map(|word| word as u64));
        (kind == CODE_TYPE.load(Ordering::Relaxed)).then_some(Call {
            frame: PYTHON | hash >> 16,
            layout,
            code,
            instruction: instruction.wrapping_sub(code.wrapping_add(layout.start.into())),
        })
    }
}

impl Call {
    /// What its frame stands for, as [`neap_shared::sites::Site::frames`] has it.
    pub(super) fn name(&self) -> [u64; FRAMES] {
        let (mut words, mut reader) = ([0; FRAMES], Reader(Peek::beside(self)));
        words[0] = self.line(&mut reader).into();
        words[1] = self.text(&mut reader, FUNCTION, &mut words[FUNCTION_AT..FILE_AT]);
        words[2] = self.text(&mut reader, FILE, &mut words[FILE_AT..]);
        words
    }

    /// Copies a string's characters, as far as there is room. Returns its form, as there.
    #[inline(never)]
    fn text(&self, reader: &mut Reader, offset: u8, room: &mut [u64]) -> u64 {
        let string = reader.word(self.code, offset);
        let (length, form) = (reader.word(string, LENGTH), reader.word(string, FORM));
        let bytes = form >> 2 & 7;
        if form & COMPACT == 0 {
            return 0;
        }
        let start = self.layout.characters[usize::from(form & ASCII == 0)];
        let mut at = string.wrapping_add(start.into());
        for place in room.iter_mut().take(length.wrapping_mul(bytes).div_ceil(8)) {
            *place = reader.word(at, 0) as u64;
            at = at.wrapping_add(8);
        }
        (length << 3 | bytes) as u64
    }

    /// The line of the instruction. Each entry of the table begins with a byte whose highest bit is
    /// set: the entry's kind, and how many instructions it covers. The others are below 128.
    /// CPython describes it in `Objects/locations.md` (3.11) and `InternalDocs/code_objects.md`
    /// (3.13).
    fn line(&self, reader: &mut Reader) -> u32 {
        let table = reader.word(self.code, LINES);
        let length = reader.word(table, LENGTH).min(LONGEST_TABLE);
        let first_line = self.code.wrapping_add(self.layout.first_line.into());
        let mut line = reader.small(first_line, 4) as u32;
        let mut left = self.instruction as isize / 2;
        let (mut number, mut shift) = (0_u32, NO_NUMBER);
        for index in 0..length {
            let byte = reader.small(table.wrapping_add(BYTES + index), 1) as u32;
            if byte < 0x80 {
                // The first number of some kinds is signed, of six bits a byte. Its lowest bit is
                // the sign.
                if shift < NO_NUMBER {
                    number |= (byte & 63) << shift;
                    shift += 6;
                    if byte & 64 == 0 {
                        let size = number >> 1;
                        line = match number & 1 {
                            0 => line.wrapping_add(size),
                            _ => line.wrapping_sub(size),
                        };
                        (number, shift) = (0, NO_NUMBER);
                    }
                }
                continue;
            }
            if left < 0 {
                break;
            }
            left -= (byte & 7) as isize + 1;
            match byte >> 3 & 15 {
                13 | 14 => shift = 0,
                kind @ 10..13 => line = line.wrapping_add(kind - 10),
                _ => {}
            }
        }
        line
    }
}

/// No shift of a number of 32 bits.
const NO_NUMBER: u32 = 32;

/// Reads words and parts of them. What cannot be read is 0.
struct Reader(Peek);

impl Reader {
    #[inline(never)]
    fn word(&mut self, base: usize, offset: u8) -> usize {
        self.0.near(base.wrapping_add(offset.into())).unwrap_or(0)
    }

    /// The number of 1 or 4 bytes at an address that is a multiple of that.
    #[inline(never)]
    fn small(&mut self, address: usize, bytes: usize) -> usize {
        let word = self.word(address & !7, 0);
        word >> (8 * (address & 7)) & (usize::MAX >> (64 - 8 * bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::sites::Site;
    use std::borrow::ToOwned;
    use std::string::String;
    use std::vec::Vec;

    /// Words at the offsets of an object.
    fn object(words: &[(u8, usize)]) -> Vec<usize> {
        let mut object = std::vec![0; 64];
        for &(offset, word) in words {
            object[usize::from(offset) / 8] = word;
        }
        object
    }

    fn calls_from(record: usize) -> Calls {
        CODE_TYPE.store(7, Ordering::Relaxed);
        Calls {
            layout: &LAYOUTS[2],
            record,
            records: Reader(Peek::beside(&0)),
            objects: Reader(Peek::beside(&0)),
            left: MOST_RECORDS,
        }
    }

    fn address(object: &[usize]) -> usize {
        object.as_ptr().expose_provenance()
    }

    fn named(words: [u64; FRAMES]) -> (String, String, u32) {
        let site = Site {
            hash: PYTHON,
            frames: words,
            ..Site::default()
        };
        let (_, [function, file], line) = site.function().unwrap();
        (function.collect(), file.collect(), line)
    }

    #[test]
    fn a_call_has_the_name_and_the_line_of_its_instruction() {
        let ascii = object(&[(16, 3), (32, 1 << 2 | COMPACT | ASCII), (40, 0x79_2e61)]);
        let wide = object(&[(16, 2), (32, 2 << 2 | COMPACT), (56, 0x4e2d_00e9)]);
        // Two instructions on the first line, two on the next, one 70 lines earlier, one 3 later.
        let table = [0x81, 0, 0xd9, 0, 5, 0xe8, 0x4d, 2, 0xf0, 6, 0, 0, 0];
        let mut lines = object(&[(16, table.len())]);
        for (index, byte) in table.into_iter().enumerate() {
            lines[4 + index / 8] |= byte << (8 * (index % 8));
        }
        for (instruction, line) in [(0, 100), (2, 100), (4, 101), (6, 101), (8, 31), (10, 34)] {
            let code = object(&[
                (8, 7),
                (64, 100 << 32),
                (112, address(&ascii)),
                (128, address(&wide)),
                (136, address(&lines)),
            ]);
            let record = object(&[
                (0, address(&code)),
                (56, address(&code) + 200 + instruction),
            ]);
            let call = calls_from(address(&record)).next().unwrap();
            let expected = ("é中".to_owned(), "a.y".to_owned(), line);
            assert_eq!(named(call.name()), expected, "{instruction}");
        }
    }

    #[test]
    fn garbage_ends_the_calls() {
        let code = object(&[(8, 7)]);
        let broken = object(&[(8, 6)]);
        let mut circle = object(&[(0, address(&code))]);
        circle[1] = address(&circle);
        for (record, count) in [
            (0, 0),
            (1 << 63, 0),
            (address(&code) + 1, 0),
            (address(&object(&[(0, address(&broken))])), 0),
            (address(&object(&[(0, 0xdead_0000)])), 0),
            (address(&circle), MOST_RECORDS),
        ] {
            let mut calls = calls_from(record);
            let all = core::iter::from_fn(|| calls.next().map(|call| named(call.name())));
            assert_eq!(all.count(), count, "{record:#x}");
        }
    }
}
