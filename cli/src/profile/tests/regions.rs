//! Regions: their contents, and the names of real code.

use super::{own_maps, region, site};
use crate::profile::Profile;
use crate::profile::region::Region;
use neap_shared::sites::{PARTS, Site};
use object::elf::PT_GNU_EH_FRAME;
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Code with an unmangled name: a Rust name here would begin with `neap::`, like the allocator's.
/// Its body is unique, so that the linker does not merge it with another function.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn a_place_that_allocates(number: u64) -> u64 {
    black_box(number).wrapping_mul(0x1234_5678_9abc) ^ black_box(7)
}

/// An address in it that could be a return address.
fn known() -> u64 {
    black_box(a_place_that_allocates(1));
    a_place_that_allocates as extern "C" fn(u64) -> u64 as usize as u64 + 4
}

#[test]
fn code_of_this_process_has_its_name_and_line() {
    let bytes = region(&own_maps(), &[Site::default(), site(&[known()], 3, 24, 32)]);
    let profile = Profile::from_region(&bytes).unwrap();
    let [stack] = profile.stacks.as_slice() else {
        panic!("{:?}", profile.stacks)
    };
    let frame = stack.frames.last().unwrap();
    assert!(frame.function == "a_place_that_allocates", "{frame:?}");
    assert!(
        frame.file.ends_with("profile/tests/regions.rs"),
        "{frame:?}"
    );
    assert!((10..20).contains(&frame.line), "{frame:?}");
    assert_eq!((frame.address, frame.inlined), (known(), false));
    let own = std::env::current_exe().unwrap();
    assert_eq!(frame.module, own.to_str().unwrap());
    assert_eq!(profile.program, own.file_name().unwrap().to_str().unwrap());
    assert_eq!((stack.figures.live_objects, stack.figures.waste()), (3, 24));
    let mapping = profile
        .mappings
        .iter()
        .find(|mapping| mapping.path == frame.module);
    assert!(!mapping.unwrap().path.is_empty());
}

/// The names of the first stack.
fn functions(profile: &Profile) -> Vec<&str> {
    let frames = profile.stacks[0].frames.iter();
    frames.map(|frame| &*frame.function).collect()
}

#[test]
fn a_module_that_is_gone_gives_offsets() {
    let maps = "\
00400000-00500000 r-xp 00001000 08:01 12 /no/such/libgone.so.1 (deleted)
00500000-00600000 r-xp 00001000 08:01 12 /no/such/\u{1b}[31mred
";
    let addresses = [0x40_0235, 0x50_0011, 0x90_0000];
    let bytes = region(maps, &[Site::default(), site(&addresses, 1, 8, 8)]);
    let profile = Profile::from_region(&bytes).unwrap();
    assert_eq!(
        functions(&profile),
        ["libgone.so.1+0x1234", "\u{fffd}[31mred+0x1010", "0x900000"]
    );
    assert_eq!(profile.program, "libgone.so.1");
    assert_eq!(profile.mappings[0].build_id, "");
}

#[test]
fn the_allocator_s_own_frames_are_dropped() {
    let maps = "00400000-00500000 r-xp 00000000 08:01 12 /no/such/libneap.so\n\
                00500000-00600000 r-xp 00000000 08:01 12 /no/such/program\n";
    let addresses = [0x40_0100, 0x40_0200, 0x50_0001, 0x40_0300];
    let bytes = region(maps, &[Site::default(), site(&addresses, 1, 8, 8)]);
    let profile = Profile::from_region(&bytes).unwrap();
    assert_eq!(functions(&profile), ["program+0x0", "libneap.so+0x2ff"]);
}

#[test]
fn objects_are_counted_in_parts() {
    let mut third = site(&[1], 0, 0, 0);
    third.alloc_objects = PARTS * 10 / 3;
    third.live_objects = 1;
    third.live_bytes = 5;
    let bytes = region("", &[Site::default(), third]);
    let figures = Region::parse(&bytes).unwrap().sites[0].figures;
    assert_eq!((figures.alloc_objects, figures.live_objects), (3, 1));
}

#[test]
fn what_had_no_room_is_one_place_and_what_is_not_written_is_none() {
    let mut other = site(&[], 2, 100, 112);
    // Read between an addition and a subtraction.
    other.live_bytes = u64::MAX;
    let bytes = region("", &[other, site(&[], 9, 9, 9), site(&[1], 0, 0, 0)]);
    let profile = Profile::from_region(&bytes).unwrap();
    let [stack] = profile.stacks.as_slice() else {
        panic!("{:?}", profile.stacks)
    };
    assert!(stack.frames[0].function.contains("had no room"));
    assert_eq!(
        (stack.figures.alloc_bytes, stack.figures.live_bytes),
        (200, 0)
    );
}

/// The mappings of this program's copy at `file`, whose table for unwinding is no longer listed.
fn without_table(file: &Path) -> String {
    let mut bytes = fs::read("/proc/self/exe").unwrap();
    let number = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]) as usize;
    let (first, size, count) = (number(&bytes, 32), number(&bytes, 54), number(&bytes, 56));
    for header in (0..count).map(|index| first + index * size) {
        if bytes[header..header + 4] == PT_GNU_EH_FRAME.0.to_ne_bytes() {
            bytes[header..header + 4].fill(0);
        }
    }
    fs::write(file, bytes).unwrap();
    let inode = fs::metadata(file).unwrap().ino();
    format!(
        "00400000-00500000 r-xp 00000000 08:01 {inode} {}\n",
        file.display()
    )
}

#[test]
fn a_program_that_cannot_be_unwound_is_told_so() {
    let room = tempfile::tempdir().unwrap();
    let maps = without_table(&room.path().join("copy"));
    let lost = Site {
        alloc_bytes: 64,
        ..site(&[], 1, 64, 64)
    };
    for (maps, why) in [(maps, "no table"), (own_maps(), "had no room")] {
        let profile = Profile::from_region(&region(&maps, &[lost])).unwrap();
        assert!(functions(&profile)[0].contains(why), "{profile:?}");
    }
}

#[test]
fn times_and_rates_are_taken_over() {
    let mut bytes = region("", &[Site::default()]);
    let running = Profile::from_region(&bytes).unwrap();
    assert_eq!((running.rate, running.began_ms), (1 << 19, 1000));
    assert!(running.ended_ms > 3000);
    let rate = std::mem::offset_of!(neap_shared::sites::Head, rate);
    bytes[rate..rate + 8].fill(0);
    assert_eq!(Profile::from_region(&bytes).unwrap().ended_ms, 3000);
}
