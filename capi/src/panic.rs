//! What a panic does in the shipped, `no_std` build: it ends the process like any other fatal
//! error.

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    neap_heap::os::abort::fatal(format_args!("bug in Neap: {info}"))
}
