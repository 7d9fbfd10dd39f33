//! Sets `cfg(fuzzing)`, under which the command's modules open the parsers that they keep private.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=fuzzing");
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
}
