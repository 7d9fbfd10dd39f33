//! A program with symbols and debug information, which the region of a profile names.

use super::files::print;
use super::shared_memory::whole_region;
use crate::file::Memory;
use crate::profile::Profile;
use bytemuck::bytes_of;
use neap_shared::sites::{self, Site};
use std::sync::OnceLock;

/// Looks up addresses in an input that stands where a process has its program.
pub fn symbols(bytes: &[u8]) {
    static FILE: OnceLock<Memory> = OnceLock::new();
    let file = FILE.get_or_init(Memory::growing);
    let Some((addresses, program)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    file.set(program);
    let offsets = addresses
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let mut site = Site {
        depth: 4,
        alloc_objects: sites::PARTS,
        alloc_bytes: 64,
        alloc_usable: 64,
        live_objects: sites::PARTS,
        live_bytes: 64,
        live_usable: 64,
        ..Site::default()
    };
    for (frame, offset) in site.frames.iter_mut().zip(offsets) {
        *frame = 0x40_0000 + u64::from(offset);
    }
    let maps = format!(
        "400000-500000 r-xp 00000000 00:01 {} {}\n",
        file.inode(),
        file.path().display()
    );
    let head = [0; size_of::<sites::Head>()];
    let length = (maps.len() as u16).to_le_bytes();
    let none = Site::default();
    let region = [
        &head[..],
        &length,
        maps.as_bytes(),
        bytes_of(&none),
        bytes_of(&site),
    ];
    let profile = Profile::from_region(&whole_region(&region.concat()));
    print(&profile.expect("only the program is hostile"));
}
