//! The library is in the program and not in the command.

use crate::stage::{Stage, clean, copy_program, neap, printed, room, said};
use object::{Object, ObjectSymbol};
use std::fs;
use std::path::Path;

#[test]
fn the_command_does_not_have_our_malloc() {
    let data = fs::read(env!("CARGO_BIN_EXE_neap")).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let defined: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    assert!(defined.contains(&"main"), "the symbols can be read");
    for name in ["malloc", "free", "calloc", "realloc", "posix_memalign"] {
        assert!(!defined.contains(&name), "{name} is defined in the command");
    }
}

#[test]
fn the_program_maps_the_library_that_cargo_built() {
    let maps = printed(neap().args(["run", "--", "cat", "/proc/self/maps"]));
    let library = Path::new(env!("CARGO_BIN_EXE_neap"))
        .with_file_name("deps")
        .join("libneap_c.so");
    let library = library.canonicalize().unwrap();
    assert!(maps.contains(library.to_str().unwrap()), "{maps}");
}

#[test]
fn children_map_it_too() {
    let maps = printed(neap().args(["run", "sh", "-c", "sh -c 'cat /proc/self/maps'; true"]));
    assert!(maps.contains("libneap_c.so"), "{maps}");
}

#[test]
fn the_installed_library_is_found() {
    let room = room();
    let (bin, lib) = (room.path().join("bin"), room.path().join("lib"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&lib).unwrap();
    copy_program(env!("CARGO_BIN_EXE_neap"), &bin.join("neap"));
    fs::rename(Stage::new().library(), lib.join("libneap.so")).unwrap();
    let maps = printed(clean(&bin.join("neap")).args(["run", "--", "cat", "/proc/self/maps"]));
    assert!(
        maps.contains(
            lib.join("libneap.so")
                .canonicalize()
                .unwrap()
                .to_str()
                .unwrap()
        ),
        "{maps}"
    );
}

#[test]
fn a_missing_library_is_an_error_that_says_where_it_was_looked_for() {
    let room = room();
    let alone = room.path().join("neap");
    copy_program(env!("CARGO_BIN_EXE_neap"), &alone);
    let output = clean(&alone)
        .args(["run", "--", "echo", "ran"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(output.stdout, b"");
    for place in ["/libneap.so", "/deps/libneap_c.so", "/../lib/libneap.so"] {
        assert!(said(&output).contains(place), "{}", said(&output));
    }
}

#[test]
fn a_path_that_the_loader_would_split_works_for_children_too() {
    for name in ["with space", "with:colon", "with$ORIGIN"] {
        let stage = Stage::named(name);
        let maps = printed(
            stage
                .neap()
                .args(["run", "sh", "-c", "cat /proc/self/maps; true"]),
        );
        assert!(
            maps.contains(stage.library().to_str().unwrap()),
            "{name}: {maps}"
        );
    }
}

#[test]
fn what_was_preloaded_stays_behind_the_library() {
    let (stage, other) = (Stage::plain("bin"), Stage::plain("bin"));
    let before = format!(
        "{} {}",
        other.library().display(),
        stage.library().display()
    );
    let list = printed(stage.neap().env("LD_PRELOAD", before).args([
        "run",
        "sh",
        "-c",
        "echo $LD_PRELOAD",
    ]));
    assert_eq!(
        list,
        format!(
            "{}:{}\n",
            stage.library().display(),
            other.library().display()
        )
    );
}
