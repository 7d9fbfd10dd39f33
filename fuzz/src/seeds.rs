//! The first inputs of each target, made by the project's own writers. `ci/fuzz.sh seeds` writes
//! them to `fuzz/seeds`.

use crate::profile::{Extent, Figures, Frame, Profile, Stack, pprof};
use crate::recording::format::{Classes, Embedded, Event, Happening, Heap, Record, Sample};
use crate::recording::{Head, Machine, Writer};
use crate::targets::shared_memory::PARTS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytemuck::{Zeroable, bytes_of};
use flate2::read::GzDecoder;
use neap_instruments::survey::snapshot;
use neap_shared::sites::{self, Site};
use neap_shared::status_page::{self, Arenas, Coarse, Served, SizeFigure};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Writes all of them below `folder`, one folder per target.
pub fn write(folder: &Path) {
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = folder.join(target);
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(folder.join(name), bytes).expect("the seed can be written");
    };
    put("status-page", "figures", &status_page());
    put("region", "two-sites", &region(1));
    let (earlier, later) = (region(1), region(5));
    let length = (earlier.len() as u16).to_le_bytes();
    put(
        "regions",
        "growth",
        &[&length[..], &earlier, &later].concat(),
    );
    let zipped = pprof::encode(&planted());
    let mut plain = Vec::new();
    GzDecoder::new(&zipped[..])
        .read_to_end(&mut plain)
        .expect("just written");
    put("profile", "zipped", &zipped);
    put("profile", "plain", &plain);
    put("recording", "zipped", &zipped);
    put("recording", "run", &recording(&zipped));
    for (target, name, text) in TEXTS {
        put(target, name, text.as_bytes());
    }
    for (name, calls) in CALLS {
        put("heap", name, calls);
    }
}

/// Seeds that are texts.
const TEXTS: &[(&str, &str, &str)] = &[
    ("program", "env", "#!/usr/bin/env -S python3 -u\nprint(1)\n"),
    ("program", "sh", "#!/bin/sh -e\necho\n"),
    ("program", "text", "echo\n"),
    ("program", "itself", "#!/proc/self/fd/3 x\n"),
    (
        "sizes",
        "classes",
        "neap classes 1\n# of a program\n8\n16\n48\n512\n1024\n32768\n",
    ),
    (
        "sizes",
        "sizes",
        "neap sizes 1\nprogram x\n8 5 40\n24 7 160\n4096 1 4090\nlarge 2 99999\n",
    ),
    (
        "texts",
        "jit",
        "\02000 10 late *x.js:1\n1000 20 early\n0x3000 zz broken\n",
    ),
    (
        "texts",
        "smaps",
        "\u{1}00001000-00005000 rw-p 00000000 00:00 0 \nRss:      16 kB\nSwap:      4 kB\n",
    ),
    (
        "texts",
        "groups",
        "\u{2}5:cpu,memory:/job\n0::/a/b\n\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
         33 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    ),
    (
        "texts",
        "place",
        "\u{3}0::/kubepods/burstable/pod74c13223-5a00-11e9-b385-42010a80018d/\
         34dc0b5e626f2c5c4c5170e34b10e7654ce36f0fcd532739f4445baabea03376\n\
         1:name=systemd:/system.slice/redis-server.service (deleted)\n",
    ),
    ("texts", "bracketed", "\u{4}always [madvise] never"),
    (
        "options",
        "all",
        "NEAP_DECAY=2s\nNEAP_LIMIT=64MiB\nNEAP_CHECK=1\nNEAP_PURGE_THREAD=always\n\
         NEAP_THP=never\nNEAP_STATS_FILE=/tmp/x\nNEAP_DECYA=1\nNEAP_CACHE=18446744073709551615T\n",
    ),
    (
        "http",
        "heap",
        "GET /debug/pprof/heap?pid=7&seconds=5&program=c%2B%2B+x HTTP/1.1\r\nHost: [::1]:9464\r\n\
         Sec-Fetch-Site: cross-site\r\n\r\n",
    ),
    (
        "http",
        "url",
        "HEAD http://b:2/metrics?debug=1 HTTP/1.0\r\nhost: localhost\r\n\r\n",
    ),
];

/// Seeds of calls: see `targets/heap`.
const CALLS: &[(&str, &[u8])] = &[
    (
        "small",
        b"\x00\x40\x00\x01\x04\x80\x00\x02\x0a\x00\x10\x00\x20\x01\x0c\x00\x19",
    ),
    (
        "large",
        b"\x00\xff\xf3\x01\x05\xff\xe1\x02\x11\x00\x80\xf1\x17\x19\x0a\x01",
    ),
    (
        "aligned",
        b"\x07\x40\x00\x0c\x01\x08\x41\x00\x0a\x02\x09\x42\x20\x10\x03\x0d\x00\x0d\x00",
    ),
    (
        "stacks",
        b"\x14\x10\x14\x20\x16\x00\x08\x15\x00\x14\x10\x17\x19\x15\x01\x15\x00",
    ),
    (
        "threads",
        b"\x1b\x40\x00\x01\x1c\x00\x1d\x80\x00\x20\x1e\x99\x10\x05\x19",
    ),
    ("fork", b"\x00\x40\x00\x01\x05\xff\xa0\x02\x1a\x0a\x00\x19"),
    (
        "limits",
        b"\x18\x00\x08\x00\xff\xf5\x01\x00\x40\x00\x02\x18\x03\x00\x1f\x00\x00\x17",
    ),
];

fn status_page() -> Vec<u8> {
    let served = Served {
        ask: 3,
        written: 3,
        thread: 1,
        ..Served::default()
    };
    let mut arenas = Arenas::zeroed();
    arenas.count = 1;
    arenas.ranges[0] = [0x7f00_0000_0000, 1 << 30];
    let coarse = Coarse {
        sequence: 2,
        large_bytes: 1 << 20,
        committed: 4 << 20,
        ..Coarse::default()
    };
    // Something for the figures to count.
    let block = neap_heap::malloc::allocate(1000);
    let figures = snapshot();
    // SAFETY: just allocated.
    unsafe { neap_heap::free::free(block) };
    let sizes = [SizeFigure {
        count: 3,
        bytes: 20,
    }; 4];
    let parts: [&[u8]; PARTS.len()] = [
        bytes_of(&served),
        bytes_of(&arenas),
        bytes_of(&coarse),
        &[&2_u64.to_le_bytes(), bytes_of(&figures)].concat(),
        bytemuck::cast_slice(&sizes),
    ];
    let head = [0; size_of::<status_page::Head>()];
    [&head[..], &parts.concat()].concat()
}

/// A region as [`crate::targets::shared_memory::whole_region`] takes it.
fn region(objects: u64) -> Vec<u8> {
    let maps = "00400000-00500000 r-xp 00001000 08:01 12 /no/such/program\n\
                7f0000000000-7f0000100000 r-xp 00000000 08:01 13 /no/such/lib.so (deleted)\n";
    let mut site = Site {
        depth: 3,
        alloc_objects: objects * sites::PARTS,
        alloc_bytes: objects * 100,
        alloc_usable: objects * 112,
        live_objects: objects * sites::PARTS,
        live_bytes: objects * 100,
        live_usable: objects * 112,
        ..Site::default()
    };
    site.frames[..3].copy_from_slice(&[0x40_1000, 0x7f00_0000_1000, 0x10]);
    let length = (maps.len() as u16).to_le_bytes();
    let head = [0; size_of::<sites::Head>()];
    let sites = [Site::default(), site];
    [
        &head[..],
        &length,
        maps.as_bytes(),
        bytemuck::cast_slice(&sites),
    ]
    .concat()
}

/// A leak in a recursive function, and freed memory.
fn planted() -> Profile {
    let frame = |function: &str, line| {
        Arc::new(Frame {
            function: function.to_owned(),
            file: "/src/planted.c".to_owned(),
            line,
            module: "/bin/planted".to_owned(),
            address: 0x1000 + u64::from(line),
            inlined: false,
        })
    };
    let figures = Figures {
        alloc_objects: 1000,
        alloc_bytes: 100_000,
        alloc_usable: 112_000,
        live_objects: 10,
        live_bytes: 1000,
        live_usable: 1120,
    };
    let names = [&["keep", "walk", "walk", "main"][..], &["scratch", "main"]];
    let stack = |names: &&[&str]| Stack {
        frames: (1..)
            .zip(*names)
            .map(|(line, name)| frame(name, line))
            .collect(),
        figures,
    };
    Profile {
        pid: 77,
        program: "planted".to_owned(),
        rate: 1 << 19,
        began_ms: 10_000,
        ended_ms: 12_500,
        extent: Extent::Session { shrunk: 9 },
        stacks: names.iter().map(stack).collect(),
        ..Profile::default()
    }
}

/// A recording with a line of every kind.
fn recording(profile: &[u8]) -> Vec<u8> {
    let file = std::env::temp_dir().join(format!("neap-seed-{}", std::process::id()));
    let mut writer = Writer::create(&file).expect("the folder for temporary files is writable");
    let head = Head {
        format: crate::recording::format::FORMAT.to_owned(),
        version: crate::recording::format::VERSION,
        written_by: "neap".to_owned(),
        program: "planted".to_owned(),
        pid: 77,
        started_ms: 1_700_000_000_000,
        interval_ms: 100,
        machine: Machine::default(),
        options: BTreeMap::from([("NEAP_DECAY".to_owned(), "2s".to_owned())]),
        ..Head::default()
    };
    let figures = snapshot();
    let sample = |t_ms| {
        let sample = Sample {
            t_ms,
            pid: 77,
            rss: 5 << 20,
            arenas_rss: Some(4 << 20),
            ..Sample::default()
        };
        Record::Sample(Box::new(sample.with(Heap::new(&figures, 5))))
    };
    let event = |t_ms, what| {
        Record::Event(Event {
            t_ms,
            pid: 77,
            what,
        })
    };
    let came = Happening::Came {
        program: "planted".to_owned(),
        frontend: Default::default(),
    };
    let embedded = Embedded {
        peak_ms: None,
        early_ms: None,
        pid: 77,
        program: "planted".to_owned(),
        pprof: STANDARD.encode(profile),
    };
    let records = [
        Record::Head(head),
        event(0, came),
        sample(100),
        Record::Classes(Classes::new(100, 77, &figures)),
        event(150, Happening::Purge { bytes: 4096 }),
        sample(200),
        Record::Profile(embedded),
        event(300, Happening::Exited { status: 0 }),
    ];
    for record in &records {
        writer.write(0, record);
    }
    drop(writer);
    let bytes = fs::read(&file).expect("just written");
    let _ = fs::remove_file(&file);
    bytes
}
