//! What a panic does in the shipped, `no_std` build: it ends the process like any other fatal
//! error.

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    neap_heap::os::process::fatal(format_args!("bug in Neap: {info}"))
}

// The unwind tables of compiler_builtins name it. No unwinding passes through this library.
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",%progbits",
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality,%function",
    "rust_eh_personality:",
    "brk #1",
    ".size rust_eh_personality,4",
    ".popsection",
);
