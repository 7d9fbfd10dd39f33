//! How large the machine is.

use super::errno::keep_errno;
use super::sandbox;
use core::mem::MaybeUninit;

/// A machine, as far as this process may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of RAM.
    pub bytes: usize,
    /// Processors that the process may run on.
    pub processors: usize,
}

/// What the kernel says; `None` if it must not be asked, or refuses.
pub fn size() -> Option<Machine> {
    if !sandbox::allows_more() {
        return None;
    }
    keep_errno(|| {
        Some(Machine {
            bytes: memory()?,
            processors: processors()?,
        })
    })
}

fn memory() -> Option<usize> {
    let mut info = MaybeUninit::<libc::sysinfo>::uninit();
    // SAFETY: a buffer of the right size, which is filled when the call returns 0.
    let info = unsafe { (libc::sysinfo(info.as_mut_ptr()) == 0).then(|| info.assume_init())? };
    (info.totalram as usize).checked_mul(info.mem_unit as usize)
}

fn processors() -> Option<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: a buffer of that size, all of which was zeroed, which is valid.
    let set = unsafe {
        let failed = libc::sched_getaffinity(0, bytes, set.as_mut_ptr());
        (failed == 0).then(|| set.assume_init())?
    };
    // SAFETY: counts the bits of the set.
    usize::try_from(unsafe { libc::CPU_COUNT(&set) }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_processors() {
        let machine = size().expect("no sandbox here");
        assert!(machine.bytes > 64 << 20);
        assert!((1..=4096).contains(&machine.processors));
    }
}
