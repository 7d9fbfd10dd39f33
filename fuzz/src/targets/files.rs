//! Files that people hand to the command.

use crate::choice::Choice;
use crate::classes::Histogram;
use crate::file::Memory;
use crate::profile::{self, Profile, Value, collapsed, flamegraph, json, leaks, pprof, tree};
use crate::program::chain::{EnvLine, Head};
use crate::program::elf::{self, Elf};
use crate::program::{Scope, follow};
use crate::report::Report;
use object::Endianness;
use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

/// The one file that inputs are written to.
fn file(bytes: &[u8]) -> &'static Memory {
    static FILE: OnceLock<Memory> = OnceLock::new();
    let file = FILE.get_or_init(Memory::growing);
    file.set(bytes);
    file
}

/// A profile in pprof's format, compressed or not, or the bytes of a region.
pub fn profile(bytes: &[u8]) {
    let Ok(profile) = Profile::from_file(bytes) else {
        return;
    };
    print(&profile);
    // What was read once is written such that it can be read again.
    let again = pprof::decode(&pprof::encode(&profile));
    assert!(again.is_ok() || profile.stacks.len() > 1000, "{again:?}");
}

/// Any profile that was read can be printed in every form.
pub fn print(profile: &Profile) {
    let folded = profile.folded();
    for &value in Value::ALL {
        assert!(tree(profile, value).ends_with('\n'));
        assert!(leaks(&folded, value).ends_with('\n'));
        assert!(!collapsed(profile, value).contains('\u{1b}'));
    }
    let _ = flamegraph(profile, Value::LiveSpace);
    let _ = profile::listing(profile, Value::LiveSpace, "^[a-z]");
    assert!(json(profile)["stacks"].is_array());
    assert!(pprof::legacy(profile).starts_with("heap profile: "));
    let _ = profile::gap(profile);
}

/// A recording, or a profile, as `neap report` reads it.
pub fn recording(bytes: &[u8]) {
    if let Ok(report) = Report::load(&file(bytes).path()) {
        assert!(report.text().starts_with('\n'));
        assert!(report.json().is_object());
        let page = report.html().expect("the kernel has random numbers");
        assert!(page.contains("</html>"));
        let _ = report.pid();
    }
}

/// A program or a script, as `neap run` inspects it.
pub fn program(bytes: &[u8]) {
    let file = file(bytes).path();
    let library = Elf {
        bits: 64,
        machine: 62,
        order: Endianness::Little,
        loader: None,
        needs_libraries: true,
        has_unwind_table: true,
        has_neap: true,
    };
    let words: Vec<OsString> = vec![file.clone().into(), "argument".into()];
    for scope in [Scope::Tree, Scope::Alone] {
        match follow(&words, &library).start(scope) {
            Ok(link) => assert!(!link.arguments.is_empty()),
            Err(obstacle) => assert!(!format!("{obstacle:?}").is_empty()),
        }
    }
    if let Ok(Some(elf)) = Elf::read(&file) {
        assert!(!elf.to_string().is_empty());
    }
    let _ = elf::defines(&file, "malloc");
    if let Ok(Head::Interpreter {
        argument: Some(argument),
        ..
    }) = Head::read(&file)
    {
        let _ = EnvLine::parse(&argument);
    }
}

/// A file of `neap tune --save-sizes`, or one of size classes.
pub fn sizes(bytes: &[u8]) {
    match neap_shared::classes::parse(bytes) {
        Ok(sizes) => {
            assert_eq!(sizes.list().last(), Some(&(32 << 10)));
            assert!(sizes.list().is_sorted_by(|one, next| one < next));
        }
        Err(rejected) => assert!(!rejected.to_string().is_empty()),
    }
    if let Ok(histogram) = Histogram::read(Path::new(&file(bytes).path())) {
        super::shared_memory::tune(&histogram);
    }
}
