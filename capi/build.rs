//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Initialised before every other object, except beside an old libpthread (capi/src/start.rs).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Never unloaded: fork handlers, the end of threads and blocks in use outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The ends of the section with the heap's entry points are this library's alone.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
}
