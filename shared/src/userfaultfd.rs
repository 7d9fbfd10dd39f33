//! Write protection by userfaultfd: the numbers of `linux/userfaultfd.h` for it.
//!
//! The library makes guards by it, and the command tries whether they work. The arguments of all
//! requests are words of 64 bits, at most four. Documentation:
//! `Documentation/admin-guide/mm/userfaultfd.rst` of the kernel.

/// A flag of `userfaultfd(2)`: faults of the kernel's own are not for this descriptor (Linux 5.11).
pub const USER_MODE_ONLY: i32 = 1;

/// `UFFDIO_API`: the version and the features that are wanted; the answer has those that exist.
pub const API: u32 = 0xc018_aa3f;
/// The only version.
pub const VERSION: u64 = 0xaa;
/// `UFFD_FEATURE_SIGBUS`: a fault raises the signal.
pub const SIGBUS: u64 = 1 << 7;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`: the kernel knows write protection.
pub const KNOWS_WRITES: u64 = 1;

/// `UFFDIO_REGISTER`: a range's start and length, and how.
pub const REGISTER: u32 = 0xc020_aa00;
/// `UFFDIO_REGISTER_MODE_WP`.
pub const WRITES: u64 = 2;
/// `UFFDIO_ZEROPAGE`: a range's start and length.
pub const ZERO_PAGE: u32 = 0xc020_aa04;
/// `UFFDIO_WRITEPROTECT`: a range's start and length, and how.
pub const WRITE_PROTECT: u32 = 0xc018_aa06;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
pub const PROTECTED: u64 = 1;
