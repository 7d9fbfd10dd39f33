//! The allocator, and the proof that it is the one in use.

#[cfg(feature = "neap")]
mod chosen {
    pub const NAME: &str = "neap";

    #[global_allocator]
    static ALLOCATOR: neap::Neap = neap::Neap;

    pub fn begin() {
        neap::purge::enable_thread();
    }

    pub fn owns(_block: &[u8; 1000]) -> bool {
        neap::stats::snapshot().live >= 1000
    }
}

#[cfg(feature = "mimalloc")]
mod chosen {
    pub const NAME: &str = "mimalloc";

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    pub fn begin() {}

    pub fn owns(block: &[u8; 1000]) -> bool {
        // SAFETY: any address will do.
        unsafe { libmimalloc_sys::mi_is_in_heap_region(block.as_ptr().cast()) }
    }
}

#[cfg(feature = "jemalloc")]
mod chosen {
    pub const NAME: &str = "jemalloc";

    #[global_allocator]
    static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

    pub fn begin() {}

    pub fn owns(_block: &[u8; 1000]) -> bool {
        let (mut bytes, mut room) = (0_u64, size_of::<u64>());
        // SAFETY: a name, and room for the number that it has.
        let failed = unsafe {
            tikv_jemalloc_sys::mallctl(
                c"thread.allocated".as_ptr(),
                (&raw mut bytes).cast(),
                &mut room,
                std::ptr::null_mut(),
                0,
            )
        };
        failed == 0 && bytes >= 1000
    }
}

#[cfg(not(any(feature = "neap", feature = "mimalloc", feature = "jemalloc")))]
mod chosen {
    use std::ffi::c_void;

    pub const NAME: &str = "musl";

    unsafe extern "C" {
        fn malloc_usable_size(block: *const c_void) -> usize;
    }

    pub fn begin() {}

    /// musl's function ends the process if the block is not its own.
    pub fn owns(block: &[u8; 1000]) -> bool {
        // SAFETY: a live block of the system's allocator, which is musl's.
        unsafe { malloc_usable_size(block.as_ptr().cast()) >= 1000 }
    }
}

pub use chosen::NAME;

/// Prepares the allocator, and checks that it is in use.
pub fn begin() {
    assert!(cfg!(target_env = "musl"), "this is not a program of musl's");
    chosen::begin();
    let block = std::hint::black_box(Box::new([1; 1000]));
    assert!(chosen::owns(&block), "the allocator is not {NAME}");
}
