//! Names that not every process has, or that another object may define first.

/// The address of a name, as the loader found it in the process.
macro_rules! address_of {
    ($name:literal $(, $directive:expr)?) => {{
        let address: *const core::ffi::c_void;
        // SAFETY: reads the word that the linker or the loader filled.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                $($directive,)?
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                $($directive,)?
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// The same of a name that not every process has; null where there is none.
macro_rules! optional {
    ($name:literal) => {
        $crate::optional::address_of!($name, concat!(".weak ", $name))
    };
}

pub(crate) use {address_of, optional};
