//! What the library's and the command's pprof files have in common.

/// A sample's values, in this order: Go's four, and the waste of size classes. Each has a name and
/// a unit.
pub const VALUES: [(&str, &str); 5] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("waste_space", "bytes"),
];

/// The value that viewers show first.
pub const SHOWN: &str = "inuse_space";

/// The allocator's own frames, as a regular expression: viewers drop what it matches, with all that
/// it calls.
pub const DROP_FRAMES: &str = "(malloc|calloc|realloc|reallocarray|memalign|aligned_alloc\
    |posix_memalign|operator new.*\
    |(__rustc(\\[[0-9a-f]+\\])?::)?(__rust_alloc|__rust_alloc_zeroed|__rust_realloc)\
    |<?neap(_heap|_instruments)?(\\[[0-9a-f]+\\])?::.*)";
