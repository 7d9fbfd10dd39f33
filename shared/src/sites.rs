//! Plain data: the region that holds a heap profile, as other processes read it.
//!
//! It is a memory file of the process, whose size is sealed. A reader that has it open can read it
//! even after the process has died. All fields are 64-bit words, so any bytes are a valid value,
//! and none may be trusted.
//!
//! ```text
//!   0          Head
//!   MAPS_AT    lines of /proc/self/maps, executable mappings only, as text; Head::maps_bytes of them
//!   SITES_AT   Site 0 (allocations without room for a site), Site 1, ... Site Head::sites - 1
//! ```
//!
//! A frame is a return address, or a [`PYTHON`] frame: the key of a site that has no samples and
//! names a line of a Python function ([`Site::frames`]). Older readers show the frame as a number.

use bytemuck::{Pod, Zeroable};

/// What the memory file is called: `/memfd:neap-profile (deleted)` in `/proc/PID/fd`.
pub const NAME: &core::ffi::CStr = c"neap-profile";
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NeapProf");
/// The layout's number: changes with every change that older readers would misread.
pub const VERSION: u64 = 1;
/// Frames of a site, the innermost first.
pub const FRAMES: usize = 64;
/// The upper 16 bits of a Python function's frame. No address has them.
pub const PYTHON: u64 = 0x5059 << 48;
/// Most frames of a site that are Python functions'.
pub const PYTHON_FRAMES: usize = 40;
/// Where the words of a site that names a Python function hold the function's name.
pub const FUNCTION_AT: usize = 3;
/// Where they hold its file's.
pub const FILE_AT: usize = 23;
/// Sites of a region.
pub const MOST_SITES: usize = 32 << 10;
/// Where the text of mappings starts.
pub const MAPS_AT: usize = 4096;
/// Room for it, in bytes.
pub const MAPS_BYTES: usize = SITES_AT - MAPS_AT;
/// Where the sites start.
pub const SITES_AT: usize = 256 << 10;
/// Bytes of the whole region.
pub const BYTES: usize = (SITES_AT + MOST_SITES * size_of::<Site>()).next_multiple_of(64 << 10);
/// Objects are counted in parts of this size: one sample represents a number of objects that is not
/// whole.
pub const PARTS: u64 = 1 << 16;

/// The head of the region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u64,
    /// [`BYTES`].
    pub bytes: u64,
    /// The process.
    pub pid: u64,
    /// Mean bytes between two samples; 0: switched off (what was sampled before stays).
    pub rate: u64,
    /// Sites in use, site 0 included.
    pub sites: u64,
    /// Samples so far.
    pub samples: u64,
    /// Samples that found no room for their site.
    pub dropped: u64,
    /// Bytes of text of mappings.
    pub maps_bytes: u64,
    /// When sampling began, in ms of `CLOCK_REALTIME`.
    pub began_ms: u64,
    /// The last time that sampling was switched on or off, in ms of `CLOCK_REALTIME`.
    pub changed_ms: u64,
}

/// One place in the program that allocates: a stack of calls, and estimates of what it allocated.
/// Bytes are what samples represent, not what was sampled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Frames in use; 0: not written yet, or the name of a [`PYTHON`] frame.
    pub depth: u64,
    /// A hash of the frames, or the frame that this names.
    pub hash: u64,
    /// Objects allocated so far, in [`PARTS`].
    pub alloc_objects: u64,
    /// Bytes asked for so far.
    pub alloc_bytes: u64,
    /// Usable bytes of all of these.
    pub alloc_usable: u64,
    /// Objects live now, in [`PARTS`].
    pub live_objects: u64,
    /// Bytes asked for that are live now.
    pub live_bytes: u64,
    /// Usable bytes of these.
    pub live_usable: u64,
    /// Python functions, innermost first, then return addresses, innermost first; the rest is 0.
    /// Or what a [`PYTHON`] frame stands for: the line, the forms of the function's name and of its
    /// file's (8 times the number of characters, plus the bytes of each), from [`FUNCTION_AT`] on
    /// the function's name, from [`FILE_AT`] on the file's. Longer names are cut.
    pub frames: [u64; FRAMES],
}

impl Default for Site {
    fn default() -> Site {
        Site::zeroed()
    }
}

// SAFETY: 64-bit words only, no padding; zero is a value.
unsafe impl Zeroable for Head {}
// SAFETY: as above, and any bits are a value.
unsafe impl Pod for Head {}
// SAFETY: as above.
unsafe impl Zeroable for Site {}
// SAFETY: as above.
unsafe impl Pod for Site {}
/// Converts [`PARTS`] of objects to objects. A place with a sample has at least one.
#[must_use]
pub fn objects(parts: u64) -> u64 {
    match sane(parts) {
        0 => 0,
        parts => (parts.saturating_add(PARTS / 2) / PARTS).max(1),
    }
}

/// A number from the region. The process changes the words of a site one by one. Read between two
/// changes, a difference can be negative.
#[must_use]
pub fn sane(word: u64) -> u64 {
    match i64::try_from(word) {
        Ok(_) => word,
        Err(_) => 0,
    }
}

impl Site {
    /// The Python function that this names: its frame, its name and its file's, the line.
    pub fn function(&self) -> Option<(u64, [impl Iterator<Item = char>; 2], u32)> {
        let names = [
            text(self.frames[1], &self.frames[FUNCTION_AT..FILE_AT]),
            text(self.frames[2], &self.frames[FILE_AT..]),
        ];
        let is_name = self.depth == 0 && is_python(self.hash);
        is_name.then_some((self.hash, names, self.frames[0] as u32))
    }
}

/// The characters of a text of this form.
fn text(form: u64, words: &[u64]) -> impl Iterator<Item = char> {
    let (bytes, length) = ((form & 7) as usize, (form >> 3) as usize);
    let characters = bytemuck::cast_slice(words).chunks_exact(bytes.max(1));
    characters.take(length).map(|bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        let code = bytes.fold(0, |code, &byte| code << 8 | u32::from(byte));
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}

/// Whether a frame is a [`PYTHON`] frame.
#[must_use]
pub const fn is_python(frame: u64) -> bool {
    frame >> 48 == PYTHON >> 48
}

/// Where site `index` starts in the region.
#[must_use]
pub const fn site_at(index: usize) -> usize {
    SITES_AT + index * size_of::<Site>()
}

const _: () = assert!(size_of::<Site>() == 576 && size_of::<Head>() <= MAPS_AT);
