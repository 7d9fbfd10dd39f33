//! Questions to the dynamic loader, its `dlopen`, and the functions that this library's functions
//! wrap ([`Next`]).
//!
//! The questions are for slow paths only, because `dlsym` takes the loader's lock and may allocate.
//!
//! `dlopen` has `RTLD_DEEPBIND` taken out. An object loaded with that flag binds its own `malloc`
//! and `free` to the C library, past a preloaded allocator; blocks then cross between two heaps.
//! Debian's PHP loads its extensions with it. The option `deepbind` keeps the flag.

use crate::imports::{IN_ARCHIVE, late_dlopen, optional, symbol};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::mem::transmute_copy;
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use neap_heap::address_of;
use neap_heap::base::sync::plain::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use neap_heap::os::loader;

/// The definition of `name` that comes after this library in the search order.
pub(crate) fn next(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: RTLD_NEXT is a handle that dlsym knows.
    NonNull::new(unsafe { symbol(libc::RTLD_NEXT, name) })
}

/// [`next`] at the process's start: it runs no code of others, and leaves no error to `dlerror`.
/// Where the library is opened late, nothing comes after it, and the first definition counts.
pub(crate) fn next_at_start(name: &CStr) -> Option<NonNull<c_void>> {
    let own = Some(optional!("_DYNAMIC").cast());
    // SAFETY: the process has one thread, or the loader's lock is held while it opens this library.
    let look = |after| unsafe { loader::find(after, name) };
    match look(own) {
        Ok(None) if !IN_ARCHIVE => {
            let is_other = |found: &NonNull<c_void>| !own_image().contains(&found.as_ptr().addr());
            listed(name).filter(is_other)
        }
        found => found.unwrap_or_else(|_| next(name)),
    }
}

/// The first definition of a function of this `name` in the process. For the process's start, as
/// [`next_at_start`].
pub(crate) fn listed(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: as in `next_at_start`.
    unsafe { loader::find(None, name) }.ok().flatten()
}

/// Whether the process's `malloc` is this library's, which another object's may come before. For
/// the archive the linker has chosen this one.
pub(crate) fn serves() -> bool {
    if IN_ARCHIVE {
        return true;
    }
    static SERVES: AtomicUsize = AtomicUsize::new(0);
    let known = SERVES.load(Ordering::Relaxed);
    if known != 0 {
        return known == 1;
    }
    // In a program that is not position-independent, the address of `malloc` may be that of a jump
    // to its definition. So definitions are looked for where the loader has a list.
    let own = Some(optional!("_DYNAMIC").cast());
    // SAFETY: as in `next_at_start`.
    let listed =
        unsafe { loader::find(own, c"malloc").and_then(|_| loader::find(None, c"malloc")) };
    let malloc = match listed {
        Ok(Some(found)) => found.as_ptr().addr(),
        _ => address_of!("malloc").addr(),
    };
    let serves = own_image().contains(&malloc);
    SERVES.store(if serves { 1 } else { 2 }, Ordering::Relaxed);
    serves
}

unsafe extern "C" {
    /// This library's first byte: the linker defines it in each object, for that object.
    static __ehdr_start: libc::Elf64_Ehdr;
}

/// Where this library is loaded. The loader is not asked, because musl's calls functions that
/// another library may have replaced by some that allocate.
fn own_image() -> Range<usize> {
    let header = &raw const __ehdr_start;
    // SAFETY: the loader maps the header of a library, and the table behind it.
    let parts = unsafe {
        let table = header.byte_add((*header).e_phoff as usize).cast();
        core::slice::from_raw_parts::<libc::Elf64_Phdr>(table, (*header).e_phnum.into())
    };
    let loaded = parts.iter().filter(|part| part.p_type == libc::PT_LOAD);
    let end = loaded.map(|part| part.p_vaddr + part.p_memsz).max();
    header.addr()..header.addr() + end.unwrap_or(0) as usize
}

/// The first definition of `name` in the global search order.
pub(crate) fn first(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: RTLD_DEFAULT is a handle that dlsym knows.
    NonNull::new(unsafe { symbol(libc::RTLD_DEFAULT, name) })
}

/// The definition of `name` in the first loaded library whose file name begins with `start`, even
/// if it is not in the global scope.
#[inline(never)]
pub(crate) fn inside(start: &[u8], name: &CStr) -> Option<NonNull<c_void>> {
    // A copy, because another thread may unload the library. A longer path is skipped, because the
    // copy would need more stack.
    let mut copy = [0; 512];
    loader::any_loaded(|object| {
        let path = object.path.to_bytes_with_nul();
        let room = copy.get_mut(..path.len());
        let room = room.filter(|_| object.file().starts_with(start));
        room.map(|room| room.copy_from_slice(path)).is_some()
    });
    let path = CStr::from_bytes_until_nul(&copy).ok()?;
    // An empty path means the program.
    if path.is_empty() {
        return None;
    }
    within(path, name)
}

/// The definition of `name` in a loaded library, which `library` names by its path or its soname.
pub(crate) fn within(library: &CStr, name: &CStr) -> Option<NonNull<c_void>> {
    let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: two C strings and a handle that was just opened. RTLD_NOLOAD loads
    // nothing; the count that it adds to the library is left, so the answer stays valid.
    unsafe {
        let handle = NonNull::new(libc::dlopen(library.as_ptr(), mode))?;
        NonNull::new(symbol(handle.as_ptr(), name))
    }
}

/// The address ranges of the loaded objects that contain one of `addresses`. A range stays empty if
/// there is no such object.
pub(crate) fn objects_of<const N: usize>(addresses: [usize; N]) -> [Range<usize>; N] {
    let mut found = [const { 0..0 }; N];
    loader::any_loaded(|object| {
        let loaded = object
            .parts
            .iter()
            .filter(|part| part.p_type == libc::PT_LOAD);
        let extent = loaded
            .map(|part| object.range(part))
            .reduce(|all, part| all.start.min(part.start)..all.end.max(part.end));
        for (address, found) in addresses.iter().zip(&mut found) {
            if let Some(extent) = extent.as_ref().filter(|extent| extent.contains(address)) {
                *found = extent.clone();
            }
        }
        false
    });
    found
}

/// The functions of the C library that a file wraps, with their types, and `look`, which looks all
/// of them up.
macro_rules! wraps {
    ($($place:ident: $name:literal, $kind:ty;)*) => {
        $(
            // SAFETY: as the C library declares the function of this name.
            static $place: $crate::loader::Next<$kind> = unsafe { $crate::loader::Next::new($name) };
        )*

        /// Looks these functions up. Before that their wrappers call the kernel, where they can.
        pub(crate) fn look() {
            $($place.symbol.look();)*
        }
    };
}
pub(crate) use wraps;

/// Defines functions under the C library's names, each with what it does around `next`. `next`
/// calls the next library's function, which the constructor found, or else the kernel. Arguments
/// behind `...` are variable in C, and come in the same registers on Neap's machines. `look` looks
/// up the next library's functions.
macro_rules! wrappers {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $kind:ty),* $(; $dots:tt $($more:ident: $other:ty),+)?)
            -> $result:ty = |$next:ident| $body:block
    )*) => {
        #[allow(non_upper_case_globals, reason = "the functions' names")]
        pub(crate) mod wrapped {
            use super::*;
            use $crate::loader::{Next, named};
            $(
                pub(super) static $name: Next<unsafe extern "C" fn($($kind),* $(, $dots)?) -> $result> =
                    // SAFETY: as the C library declares the function of this name.
                    unsafe { Next::new(named!($name)) };
            )*

            /// Looks these functions up.
            pub(crate) fn look() {
                $($name.symbol.look();)*
            }
        }

        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($argument: $kind,)* $($($more: $other),+)?
            ) -> $result {
                // SAFETY: as the C library declares the function; without one, as the kernel's call
                // of this number. The caller's promise.
                let $next = || unsafe {
                    match wrapped::$name.get() {
                        Some(next) => next($($argument,)* $($($more),+)?),
                        None => $crate::imports::result_of(
                            neap_heap::kernel!($name $(, $argument)* $($(, $more)+)?)
                        ) as _,
                    }
                };
                $body
            }
        )*
    };
}
pub(crate) use wrappers;

/// A name as a C string.
macro_rules! named {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}
pub(crate) use named;

/// A function of the next library in the search order, of the type `F`.
pub(crate) struct Next<F> {
    pub(crate) symbol: Symbol,
    kind: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// - `F` is the type of the C library's function of this name: a pointer to a function.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self {
            symbol: Symbol::new(name),
            kind: PhantomData,
        }
    }

    /// `None` until it was looked for, or if there is none.
    pub(crate) fn get(&self) -> Option<F> {
        self.of(self.symbol.get())
    }

    /// [`Next::get`], also in a call that comes before the library's constructor.
    pub(crate) fn found(&self) -> Option<F> {
        self.of(self.symbol.found())
    }

    fn of(&self, address: *mut c_void) -> Option<F> {
        // SAFETY: a function of this name, and so of this type.
        (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
    }
}

/// A name, and where it was found in the next library; null until then.
pub(crate) struct Symbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let found = AtomicPtr::new(null_mut());
        Self { name, found }
    }

    /// Looks for it, at the process's start.
    pub(crate) fn look(&self) {
        if let Some(found) = next_at_start(self.name) {
            self.found.store(found.as_ptr(), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.found.load(Ordering::Relaxed)
    }

    /// Where it was found, or what `search` finds for its name now.
    pub(crate) fn found_by(
        &self,
        search: fn(&CStr) -> Option<NonNull<c_void>>,
    ) -> Option<NonNull<c_void>> {
        NonNull::new(self.get()).or_else(|| {
            search(self.name).inspect(|found| self.found.store(found.as_ptr(), Ordering::Relaxed))
        })
    }

    /// [`Symbol::get`], after a look where that is still possible. Later the loader is asked: other
    /// threads may close libraries.
    pub(crate) fn found(&self) -> *mut c_void {
        if self.get().is_null() && !has_looked() {
            self.look();
        }
        match self.get() {
            found if !found.is_null() => found,
            _ => next(self.name).map_or(null_mut(), NonNull::as_ptr),
        }
    }
}

/// Whether all of them were looked for.
static LOOKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn has_looked() -> bool {
    LOOKED.load(Ordering::Relaxed)
}

/// From now on other threads may open and close libraries.
pub(crate) fn note_looked() {
    LOOKED.store(true, Ordering::Relaxed);
}

/// The body of a function of two words and perhaps a reference, which goes on in the function that
/// `plan` chooses, as if its own caller had called that: with the same return address, and no frame
/// of Rust between the caller and what that function throws. `plan` gets the two words, which it
/// may change, and the reference.
///
/// ```text
///   on entry:       rdi, rsi words   rdx reference   [rsp] return address
///   plan(words, reference) → rax target
///   at the jump:    rdi, rsi words                   [rsp] the same return address
/// ```
#[cfg(target_arch = "x86_64")]
macro_rules! jump_by {
    ($plan:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "mov rdi, rsp",
            "mov rsi, rdx",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {plan}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            plan = sym $plan,
        )
    };
}

/// The same: `x0` and `x1` are the words, `x2` the reference, `x30` the return address.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_by {
    ($plan:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "stp x0, x1, [sp, #16]",
            "mov x29, sp",
            "add x0, sp, #16",
            "mov x1, x2",
            "bl {plan}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_def_cfa_offset 0",
            "br x16",
            ".cfi_endproc",
            plan = sym $plan,
        )
    };
}
pub(crate) use jump_by;

/// Whether the option `deepbind` leaves the flag to the C library.
static DEEPBIND_KEPT: AtomicBool = AtomicBool::new(false);

/// Leaves `RTLD_DEEPBIND` in the flags from now on.
pub(crate) fn keep_deepbind() {
    DEEPBIND_KEPT.store(true, Ordering::Relaxed);
}

pub(crate) static DLOPEN: Symbol = Symbol::new(c"dlopen");

/// Returns the function that does the work of `dlopen`, and takes the flag out of the mode.
extern "C" fn plan_dlopen([_file, mode]: &mut [usize; 2]) -> NonNull<c_void> {
    extern "C" fn refuse(_file: *const c_char, _mode: c_int) -> *mut c_void {
        null_mut()
    }
    // The new object may take addresses that belonged to an earlier one.
    neap_instruments::unwind::forget();
    if !DEEPBIND_KEPT.load(Ordering::Relaxed) {
        *mode &= !(libc::RTLD_DEEPBIND as usize);
    }
    let found = NonNull::new(DLOPEN.found()).or_else(|| NonNull::new(late_dlopen()));
    // The process may have no other `dlopen`.
    found.unwrap_or_else(|| NonNull::new(refuse as *mut c_void).expect("a function's address"))
}

/// The loader's `dlopen` with `RTLD_DEEPBIND` taken out of `mode`. The loader resolves `$ORIGIN`,
/// `RUNPATH` and namespaces by its caller's address, so this ends in a jump.
///
/// # Safety
/// - `file` is null or a C string; loading runs the object's constructors.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    jump_by!(plan_dlopen)
}
