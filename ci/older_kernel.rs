//! Lets a program run as on an older kernel, which lacks some ways to guard a page. The tests of
//! all crates share this file.

#![allow(dead_code)]

#[path = "../cli/src/probe/write_guard.rs"]
mod write_guard;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Everything that this machine's has.
    Own,
    /// Guards by write protection and by mappings, as from Linux 5.7 on.
    WithoutAdvice,
    /// Guards by mappings, as in a container whose filter refuses `userfaultfd`.
    WithoutUserfaultfd,
    /// Guards by mappings, as in a sandbox that kills for `userfaultfd`.
    InSandbox,
}

/// Whether guards by advice work in this process.
pub fn has_advice() -> bool {
    on_own_memory(|at, bytes| {
        // SAFETY: no code uses the memory.
        unsafe { libc::madvise(at, bytes, MADV_GUARD_INSTALL as i32) == 0 }
    })
}

/// The signal that a write to a guard raises on this kernel.
pub fn guard_signal() -> i32 {
    match !has_advice() && has_write_guards() {
        true => libc::SIGBUS,
        false => libc::SIGSEGV,
    }
}

/// Whether guards by write protection work in this process.
pub fn has_write_guards() -> bool {
    on_own_memory(|at, bytes| {
        // SAFETY: readable and writable, and no other code uses it.
        unsafe { write_guard::guards_writes(at.cast(), bytes) }.is_ok()
    })
}

/// Calls `probe` with a range of memory that no code uses, a page or more.
fn on_own_memory(probe: impl FnOnce(*mut libc::c_void, usize) -> bool) -> bool {
    const BYTES: usize = 1 << 16;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping replaces no other one, and it is unmapped when nothing refers to it.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), BYTES, access, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let answer = probe(at, BYTES);
        libc::munmap(at, BYTES);
        answer
    }
}

const MADV_GUARD_INSTALL: u32 = 102;

/// `command` and its children find a system call filter, which is in force before they start, and
/// which they cannot see, except in a sandbox.
pub fn run_on(command: &mut Command, kernel: Kernel) {
    if kernel == Kernel::Own {
        return;
    }
    // SAFETY: only system calls.
    unsafe { command.pre_exec(move || refuse(kernel)) };
}

fn refuse(kernel: Kernel) -> io::Result<()> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let error = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let no_call = -1;
    let (second, answer) = match kernel {
        Kernel::WithoutUserfaultfd => (libc::SYS_userfaultfd, error(libc::EPERM)),
        Kernel::InSandbox => (libc::SYS_userfaultfd, libc::SECCOMP_RET_KILL_PROCESS),
        Kernel::Own | Kernel::WithoutAdvice => (no_call, 0),
    };
    let hidden = match kernel {
        Kernel::InSandbox => no_call,
        _ => libc::SYS_prctl,
    };
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, second as u32, 0, 1),
        step(RETURN, answer, 0, 0),
        step(IF_EQUAL, libc::SYS_madvise as u32, 0, 3),
        // The low half of the third argument.
        step(LOAD, 32, 0, 0),
        step(IF_EQUAL, MADV_GUARD_INSTALL, 0, 5),
        step(RETURN, error(libc::EINVAL), 0, 0),
        // The answer to the question about filters is 0: there is none.
        step(IF_EQUAL, hidden as u32, 0, 3),
        step(LOAD, 16, 0, 0),
        step(IF_EQUAL, libc::PR_GET_SECCOMP as u32, 0, 1),
        step(RETURN, error(0), 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: plain numbers, and a filter that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}
