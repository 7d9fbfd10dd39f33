//! Profiles made by tests.

mod hostile;
mod regions;
mod roundtrip;
mod session;
mod texts;

use super::model::{Extent, Figures, Frame, Mapping, Profile, Stack};
use bytemuck::bytes_of;
use neap_shared::sites::{self, Head, Site};
use std::sync::Arc;

/// A region as a process writes it, with these sites; the first is site 0.
pub fn region(maps: &str, sites: &[Site]) -> Vec<u8> {
    let mut bytes = vec![0; sites::site_at(sites.len())];
    let head = Head {
        magic: sites::MAGIC,
        version: sites::VERSION,
        bytes: sites::BYTES as u64,
        pid: u64::from(std::process::id()),
        rate: 1 << 19,
        sites: sites.len() as u64,
        maps_bytes: maps.len() as u64,
        began_ms: 1000,
        changed_ms: 3000,
        ..Head::default()
    };
    bytes[..size_of::<Head>()].copy_from_slice(bytes_of(&head));
    bytes[sites::MAPS_AT..sites::MAPS_AT + maps.len()].copy_from_slice(maps.as_bytes());
    for (index, site) in sites.iter().enumerate() {
        let at = sites::site_at(index);
        bytes[at..at + size_of::<Site>()].copy_from_slice(bytes_of(site));
    }
    bytes
}

/// A site with this number of objects of one size in a class, all live.
pub fn site(addresses: &[u64], objects: u64, size: u64, class: u64) -> Site {
    let mut site = Site {
        depth: addresses.len() as u64,
        alloc_objects: objects * sites::PARTS,
        alloc_bytes: objects * size,
        alloc_usable: objects * class,
        live_objects: objects * sites::PARTS,
        live_bytes: objects * size,
        live_usable: objects * class,
        ..Site::default()
    };
    site.frames[..addresses.len()].copy_from_slice(addresses);
    site
}

/// The executable mappings of this process.
pub fn own_maps() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let executable = maps.lines().filter(|line| line.contains(" r-xp "));
    executable.map(|line| format!("{line}\n")).collect()
}

fn frame(function: &str, line: u32, address: u64) -> Arc<Frame> {
    Arc::new(Frame {
        function: function.to_owned(),
        file: "/src/planted.c".to_owned(),
        line,
        module: "/bin/planted".to_owned(),
        address,
        inlined: false,
    })
}

fn live(objects: u64, size: u64, class: u64) -> Figures {
    Figures {
        alloc_objects: objects,
        alloc_bytes: objects * size,
        alloc_usable: objects * class,
        live_objects: objects,
        live_bytes: objects * size,
        live_usable: objects * class,
    }
}

/// A 100 MiB buffer, nodes of 24 bytes in blocks of 32, a leak in a recursive function, and freed
/// memory.
pub fn planted() -> Profile {
    let main = |line| frame("main", line, 0x1000 + u64::from(line));
    let inlined = Arc::new(Frame {
        inlined: true,
        ..(*frame("fresh_node", 20, 0x1200)).clone()
    });
    let walk = || frame("walk", 30, 0x1300);
    let stack = |frames: Vec<Arc<Frame>>, figures| Stack { frames, figures };
    let freed = Figures {
        live_objects: 0,
        live_bytes: 0,
        live_usable: 0,
        ..live(7, 1 << 20, 1 << 20)
    };
    let mapping = Mapping {
        start: 0x1000,
        end: 0x2000,
        offset: 0,
        path: "/bin/planted".to_owned(),
        build_id: "c0ffee".to_owned(),
    };
    Profile {
        pid: 77,
        program: "planted".to_owned(),
        rate: 1 << 19,
        began_ms: 10_000,
        ended_ms: 12_500,
        extent: Extent::Whole,
        switched: None,
        stacks: vec![
            stack(
                vec![frame("download", 10, 0x1100), main(1)],
                live(1, 100 << 20, 100 << 20),
            ),
            stack(
                vec![inlined, frame("add_node", 25, 0x1200), main(2)],
                live(1 << 20, 24, 32),
            ),
            stack(
                vec![frame("keep", 40, 0x1400), walk(), walk(), walk(), main(3)],
                live(1000, 4096, 4096),
            ),
            stack(vec![frame("scratch", 50, 0x1500), main(4)], freed),
        ],
        mappings: vec![mapping],
    }
}
