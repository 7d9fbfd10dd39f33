//! Hostile bytes: each leads to an error message and to nothing worse.

use super::{own_maps, planted, region, site};
use crate::choice::Choice;
use crate::profile::{Profile, Value, collapsed, json, leaks, listing, pprof, tree};
use flate2::Compression;
use flate2::write::GzEncoder;
use neap_shared::sites::{self, Head, Site};
use proptest::prelude::*;
use std::io::Write;
use std::mem::offset_of;
use std::sync::Arc;

fn why(bytes: &[u8]) -> String {
    Profile::from_file(bytes).unwrap_err().to_string()
}

fn with_word(at: usize, word: u64) -> Vec<u8> {
    let mut bytes = region(&own_maps(), &[Site::default(), site(&[1, 2], 1, 8, 8)]);
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    bytes
}

#[test]
fn damaged_heads_of_regions_are_named() {
    let site_at = sites::site_at(1);
    for (at, word, expected) in [
        (offset_of!(Head, version), 9, "version 9"),
        (offset_of!(Head, sites), u64::MAX, "sites"),
        (offset_of!(Head, sites), 3, "cut short"),
        (offset_of!(Head, pid), u64::MAX, "process number"),
        (offset_of!(Head, maps_bytes), u64::MAX, "mappings"),
        (site_at + offset_of!(Site, depth), 65, "65 frames"),
    ] {
        let said = why(&with_word(at, word));
        assert!(said.contains(expected), "{said}");
    }
    let magic = u64::from_le_bytes(*b"NeapProx");
    assert!(Profile::from_region(&with_word(0, magic)).is_err());
}

#[test]
fn regions_cut_anywhere_are_errors() {
    let whole = region(&own_maps(), &[Site::default(), site(&[1, 2], 1, 8, 8)]);
    for length in [
        8,
        80,
        4096,
        sites::SITES_AT - 1,
        sites::SITES_AT,
        whole.len() - 1,
    ] {
        assert!(why(&whole[..length]).contains("cut short"), "{length}");
    }
    assert!(Profile::from_file(&whole).is_ok());
}

#[test]
fn a_mapping_may_begin_at_any_offset_of_its_file() {
    let maps = "00400000-00500000 r-xp ffffffffffffffff 08:01 12 /no/such/file\n";
    let bytes = region(maps, &[Site::default(), site(&[0x40_1000], 1, 8, 8)]);
    let profile = Profile::from_region(&bytes).unwrap();
    let [frame] = &profile.stacks[0].frames[..] else {
        panic!("{:?}", profile.stacks);
    };
    assert_eq!(frame.function, "file+0xffffffffffffffff");
}

#[test]
fn files_of_proc_are_no_sources() {
    let mut profile = planted();
    for frame in profile
        .stacks
        .iter_mut()
        .flat_map(|stack| &mut stack.frames)
    {
        Arc::make_mut(frame).file = "/proc/self/maps".to_owned();
    }
    let text = listing(&profile, Value::LiveSpace, "main").unwrap();
    assert!(text.contains("main in /proc/self/maps"), "{text}");
    assert!(!text.contains("--p "), "{text}");
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(bytes).unwrap();
    zip.finish().unwrap()
}

#[test]
fn files_that_are_no_profiles_are_named() {
    for (bytes, expected) in [
        (&b""[..], "empty"),
        (b"%!PS-Adobe", "not a pprof profile"),
        (&[0x1f, 0x8b, 8, 0, 0], "cut short"),
        (&[0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], "damaged"),
        (&zipped(b""), "empty"),
        (&zipped(&vec![0; pprof::MOST + 1]), "64 MiB"),
        // A field that claims to be longer than the file, one cut within its number, a group.
        (&[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f], "cut short"),
        (&[0x12, 0xff], "not a pprof profile"),
        (&[0x0b], "groups"),
    ] {
        let said = why(bytes);
        assert!(said.contains(expected), "{said}");
    }
}

/// A field of bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![tag << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend(bytes);
    field
}

/// A file with one value, `inuse_space`, and the given rest.
fn file(rest: &[u8]) -> Vec<u8> {
    let names = ["", "inuse_space", "cpu"].map(|name| field(6, name.as_bytes()));
    [&names.concat(), &field(1, &[0x08, 1]), rest].concat()
}

#[test]
fn references_to_nothing_are_named() {
    let absurd = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for (rest, expected) in [
        (field(1, &absurd), "there is no string"),
        (field(2, &[0x08, 9, 0x10, 1]), "there is no location 9"),
        (
            field(4, &[0x08, 1, 0x22, 2, 0x08, 5]),
            "there is no function 5",
        ),
        (field(2, &[0x10, 1, 0x10, 2]), "2 values instead of 1"),
        (
            field(2, &[&[0x10], &[0xff; 9][..], &[0x01]].concat()),
            "difference of two profiles",
        ),
    ] {
        let said = why(&file(&rest));
        assert!(said.contains(expected), "{said}");
    }
    assert!(Profile::from_file(&file(&[])).is_ok());
}

#[test]
fn profiles_of_something_else_are_named() {
    let names = ["", "cpu"].map(|name| field(6, name.as_bytes())).concat();
    let said = why(&[&names, &field(1, &[0x08, 1])[..]].concat());
    assert!(
        said.contains("not a heap profile") && said.contains("cpu"),
        "{said}"
    );
}

/// Small files that would take gigabytes of memory.
#[test]
fn files_that_blow_up_are_refused() {
    let empty_samples = [0x12, 0].repeat(30 << 20);
    assert!(why(&zipped(&file(&empty_samples))).contains("more entries"));

    let name = field(6, &[b'x'; 1 << 20]);
    let function = field(5, &[0x08, 1, 0x10, 3]);
    let lines = [0x22, 2, 0x08, 1].repeat(200_000);
    let location = field(4, &[&[0x08, 1], &lines[..]].concat());
    assert!(why(&file(&[name, function, location].concat())).contains("more text"));

    let function = field(5, &[0x08, 1, 0x10, 1]);
    let lines = [0x22, 2, 0x08, 1].repeat(10_000);
    let location = field(4, &[&[0x08, 1], &lines[..]].concat());
    let sample = field(2, &[&[0x10, 1][..], &[0x08, 1].repeat(2000)].concat());
    assert!(why(&file(&[function, location, sample].concat())).contains("more frames"));

    let sample = field(2, &[0x1a, 0].repeat(1 << 20));
    assert!(why(&file(&sample)).contains("a part of it has"));
}

/// Any profile that was read can be printed.
fn print(profile: &Profile) {
    for &value in Value::ALL {
        assert!(tree(profile, value).ends_with('\n'));
        assert!(leaks(profile, value).ends_with('\n'));
        assert!(!collapsed(profile, value).contains('\u{1b}'));
    }
    assert!(json(profile)["stacks"].is_array());
}

fn read(bytes: &[u8]) {
    match Profile::from_file(bytes) {
        Ok(profile) => print(&profile),
        Err(failure) => assert!(!failure.to_string().is_empty()),
    }
}

/// A file with some of its bytes changed.
fn spoilt(mut bytes: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    let length = bytes.len();
    for &(at, byte) in changes {
        bytes[at % length] = byte;
    }
    bytes
}

fn plain() -> Vec<u8> {
    let mut plain = Vec::new();
    let zipped = pprof::encode(&planted());
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&zipped[..]), &mut plain).unwrap();
    plain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_a_profile_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read(&bytes);
        read(&zipped(&bytes));
    }

    #[test]
    fn spoilt_files_are_read_or_refused(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let spoilt_file = spoilt(plain(), &changes);
        read(&spoilt_file);
        read(&spoilt_file[..cut.index(spoilt_file.len())]);
        let mut zip = pprof::encode(&planted());
        read(&zip[..cut.index(zip.len())]);
        zip = spoilt(zip, &changes);
        read(&zip);
    }

    #[test]
    fn spoilt_regions_are_read_or_refused(
        head in prop::collection::vec((0..size_of::<Head>(), any::<u8>()), 0..3),
        rest in prop::collection::vec((any::<usize>(), any::<u8>()), 0..64),
        words in prop::collection::vec(any::<u64>(), 72),
    ) {
        let noise: Site = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words));
        let noise = Site { depth: noise.depth % 70, ..noise };
        let maps = "00400000-7f0000000000 r-xp 00001000 08:01 12 /no/such/file\n";
        let whole = region(maps, &[Site::default(), site(&[1, u64::MAX, 0], 1, 8, 8), noise]);
        read(&spoilt(spoilt(whole, &rest), &head));
    }
}
