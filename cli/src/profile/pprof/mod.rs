//! pprof's `profile.proto`, as Go writes heap profiles. google/pprof, Parca, Pyroscope and
//! speedscope open it.

mod budget;
mod decode;
mod encode;
mod messages;
mod unzip;
mod wire;

pub use decode::decode;
pub use encode::encode;
pub use unzip::MOST;
pub use wire::is_message;

/// Prefix of the comment for [`super::model::Extent::Session`]; a number of bytes follows.
const SESSION: &str =
    "neap: of one session; inuse values are growth, left out are bytes of shrinkage: ";

/// Prefix of the comment for [`super::model::Switched`]; its two numbers follow.
const SWITCHED: &str = "neap: sampling was switched by another during this session; bytes between \
                        two samples then (0: \
                        it is off), and ms after the beginning: ";

/// A sample's values, in Neap's order: Go's four, and the waste of size classes.
const VALUES: [(&str, &str); 5] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("waste_space", "bytes"),
];
