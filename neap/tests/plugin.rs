//! A library with Neap inside that its host closes: what runs in it later is still there.

#[path = "../../ci/skips.rs"]
mod skips;

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

/// The example `plugin`, if it was built.
fn plugin() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap().parent().unwrap();
    let library = built.join("examples/libplugin.so");
    if !library.exists() {
        skips::skipped("build the library: cargo build -p neap --example plugin");
        return None;
    }
    Some(library)
}

/// An open plugin.
struct Plugin(*mut c_void);

impl Plugin {
    fn open(library: &CStr) -> Self {
        // SAFETY: a C string. The library's constructors are Rust's and Neap's.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{library:?}");
        Self(handle)
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle of `dlopen`'s, and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    fn work(&self, count: usize) -> usize {
        // SAFETY: the function of this name has this type.
        let work =
            unsafe { transmute::<*mut c_void, extern "C" fn(usize) -> usize>(self.find(c"work")) };
        work(count)
    }

    fn purge(&self) {
        // SAFETY: the function of this name has this type.
        let purge = unsafe { transmute::<*mut c_void, extern "C" fn()>(self.find(c"purge")) };
        purge();
    }

    fn close(self) {
        // SAFETY: the handle is open, and nothing of the host's uses what it found in it any more.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// Threads that allocated in the library end after it was closed, and so does its purge thread.
#[test]
fn what_runs_in_a_library_outlives_its_close() {
    let Some(library) = plugin() else { return };
    let library = CString::new(library.into_os_string().into_encoded_bytes()).unwrap();
    for with_purges in [false, true] {
        let plugin = Plugin::open(&library);
        let (worked, closed) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            let plugins = [(); 2].map(|()| Plugin::open(&library));
            for plugin in plugins {
                let work = plugin.find(c"work") as usize;
                plugin.close();
                let (worked, closed) = (&worked, &closed);
                scope.spawn(move || {
                    // SAFETY: the function of this name has this type; the library is open.
                    let work: extern "C" fn(usize) -> usize = unsafe { transmute(work) };
                    assert_eq!(work(1000), 2890);
                    worked.wait();
                    closed.wait();
                });
            }
            worked.wait();
            assert_eq!(plugin.work(10), 10);
            if with_purges {
                plugin.purge();
            }
            plugin.close();
            closed.wait();
        });
    }
    // SAFETY: the child ends at once.
    match unsafe { libc::fork() } {
        // SAFETY: it ends the child.
        0 => unsafe { libc::_exit(0) },
        child => {
            let mut status = -1;
            // SAFETY: a child of ours, and a number.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the handlers of a fork");
        }
    }
}
