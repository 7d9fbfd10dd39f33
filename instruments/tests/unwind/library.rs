//! `frames.c`, built with the system's compiler and loaded.

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute_copy;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the callback on top of the frames is.
pub type Top = extern "C" fn();

/// How the library is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// As distributions do: tables, no frame pointers.
    Tables,
    /// Both.
    Both,
    /// Frame pointers only.
    Pointers,
}

impl Build {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Build::Tables => &["-fomit-frame-pointer"],
            Build::Both => &["-fno-omit-frame-pointer"],
            Build::Pointers => &[
                "-fno-omit-frame-pointer",
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ],
        }
    }
}

/// The library, loaded for good.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

impl Library {
    /// Builds and loads it; `None`, and a word on stderr, where there is no compiler.
    pub fn new(build: Build) -> Option<Library> {
        let path = compile(build)?;
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        std::fs::remove_file(path).unwrap();
        neap_instruments::unwind::prepare();
        neap_instruments::unwind::forget();
        Some(Library(handle))
    }

    /// A function's address, as a pointer to it of type `F`.
    pub fn symbol<F: Copy>(self, name: &CStr) -> F {
        // SAFETY: the handle is open for good.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is not there");
        // SAFETY: the callers below name the type that `frames.c` gives it.
        unsafe { transmute_copy(&address) }
    }

    /// A frame of each kind, and `top`.
    pub fn climb(self, kinds: &[u8], top: Top) {
        self.symbol::<extern "C" fn(*const u8, usize, Top)>(c"climb")(
            kinds.as_ptr(),
            kinds.len(),
            top,
        );
    }

    /// `depth + 1` frames of one function, and `top`.
    pub fn descend(self, depth: u32, top: Top) {
        self.symbol::<extern "C" fn(u32, Top)>(c"descend")(depth, top);
    }

    /// One of the functions in assembly: `top` and a word.
    pub fn special(self, name: &CStr, top: Top, word: usize) {
        self.symbol::<extern "C" fn(Top, usize)>(name)(top, word);
    }

    /// Whether `address` is in the function `name` or close behind its start.
    pub fn is_in(self, address: u64, name: &CStr) -> bool {
        let start = self.symbol::<usize>(name) as u64;
        (start..start + 200).contains(&address)
    }
}

fn compile(build: Build) -> Option<PathBuf> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    if Command::new("cc").arg("--version").output().is_err() {
        crate::skips::skipped("no `cc` here (Debian: apt install gcc)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwind/frames.c");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("frames-{}-{number}.so", std::process::id());
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
        ])
        .args(build.flags())
        .args([Path::new("-o"), &made, &source])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(made)
}
