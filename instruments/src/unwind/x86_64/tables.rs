//! The unwind tables of a loaded object: finds the entry of an address.
//!
//! Finds the tables through `.eh_frame_hdr`, and reads them only within the segment that contains
//! it.

use crate::objects::{self, Object};
use crate::peek::Peek;
use bytemuck::{Pod, Zeroable};
use core::slice;
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    NativeEndian, Pointer, UnwindSection,
};

/// Bytes of a section.
pub(super) type Bytes = EndianSlice<'static, NativeEndian>;

/// An entry and its section.
pub(super) struct Fde {
    pub(super) entry: FrameDescriptionEntry<Bytes>,
    pub(super) section: EhFrame<Bytes>,
    pub(super) bases: BaseAddresses,
}

/// The entry of the code at `address`.
#[cold]
#[inline(never)]
pub(super) fn entry_of(address: usize) -> Option<Fde> {
    let object = &objects::object_at(address)?;
    let segment = segment_of(object)?;
    let header = EhFrameHdr::new(segment.from(object.eh_frame_hdr)?, NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(object.eh_frame_hdr as u64);
    let header = header.parse(&bases, 8).ok()?;
    let start = direct(header.eh_frame_ptr())?;
    let found = header.table()?.lookup(address as u64, &bases).ok()?;
    let offset = direct(found)?.checked_sub(start)?;
    let section = EhFrame::new(segment.from(start)?, NativeEndian);
    let bases = bases.set_eh_frame(start as u64);
    let entry = section
        .fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
        .ok()?;
    entry.contains(address as u64).then_some(Fde {
        entry,
        section,
        bases,
    })
}

fn direct(pointer: Pointer) -> Option<usize> {
    usize::try_from(pointer.direct().ok()?).ok()
}

/// A range of readable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: usize,
    end: usize,
}

impl Segment {
    /// Its bytes from `address` on.
    fn from(self, address: usize) -> Option<&'static [u8]> {
        if !(self.start..self.end).contains(&address) {
            return None;
        }
        // SAFETY: within a segment that the loader mapped for reading. Its object stays while a
        // frame of it is on the stack, and the bytes are read before this room returns.
        Some(unsafe {
            slice::from_raw_parts(
                core::ptr::with_exposed_provenance(address),
                self.end - address,
            )
        })
    }
}

/// The start of an ELF file (`Elf64_Ehdr`).
#[repr(C)]
#[derive(Clone, Copy)]
struct FileHead {
    magic: [u8; 4],
    class: u8,
    rest: [u8; 11],
    kind_machine_version: u64,
    entry: u64,
    segments_at: u64,
    sections_at: u64,
    flags: u32,
    own_bytes: u16,
    segment_bytes: u16,
    segments: u16,
    sections: [u16; 3],
}

/// An entry of its table of segments (`Elf64_Phdr`).
#[repr(C)]
#[derive(Clone, Copy)]
struct SegmentHead {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

// SAFETY: numbers only, without padding; zero is a value.
unsafe impl Zeroable for FileHead {}
// SAFETY: as above, and any bits are a value.
unsafe impl Pod for FileHead {}
// SAFETY: as above.
unsafe impl Zeroable for SegmentHead {}
// SAFETY: as above.
unsafe impl Pod for SegmentHead {}

/// `PT_LOAD`.
const LOADED: u32 = 1;
/// `PF_R`.
const READABLE: u32 = 4;
/// `ELFCLASS64`.
const OF_64_BITS: u8 = 2;
/// The file's head and table of segments must lie in its first page.
const FIRST_PAGE: usize = 4096;

/// The readable segment that contains the object's `.eh_frame_hdr`.
fn segment_of(object: &Object) -> Option<Segment> {
    let mut segments = segments_of(object.start)?.filter(|segment| segment.kind == LOADED);
    let first = segments.clone().next()?;
    let bias = object
        .start
        .wrapping_sub(first.address as usize & !(FIRST_PAGE - 1));
    segments.find_map(|segment| {
        let start = bias.wrapping_add(segment.address as usize);
        let end = start.checked_add(usize::try_from(segment.file_bytes).ok()?)?;
        let holds = (start..end).contains(&object.eh_frame_hdr) && end <= object.end;
        (holds && segment.flags & READABLE != 0).then_some(Segment { start, end })
    })
}

/// The table of segments of the object whose file is mapped at `start`.
fn segments_of(start: usize) -> Option<impl Iterator<Item = SegmentHead> + Clone> {
    // A segment that begins a file may be unreadable.
    Peek::beside(&start).near(start)?;
    let page = Segment {
        start,
        end: start.checked_add(FIRST_PAGE)?,
    };
    let page = page.from(start)?;
    let head: FileHead = bytemuck::pod_read_unaligned(page.get(..size_of::<FileHead>())?);
    let is_ours = head.magic == *b"\x7fELF" && head.class == OF_64_BITS;
    if !is_ours || usize::from(head.segment_bytes) != size_of::<SegmentHead>() {
        return None;
    }
    let at = usize::try_from(head.segments_at).ok()?;
    let bytes = usize::from(head.segments) * size_of::<SegmentHead>();
    let table = page.get(at..at.checked_add(bytes)?)?;
    Some(
        table
            .chunks_exact(size_of::<SegmentHead>())
            .map(bytemuck::pod_read_unaligned),
    )
}

const _: () = assert!(size_of::<FileHead>() == 64 && size_of::<SegmentHead>() == 56);
