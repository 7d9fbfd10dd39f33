//! pprof's `profile.proto`, as Go writes heap profiles. google/pprof, Parca, Pyroscope and
//! speedscope open it.

mod decode;
mod encode;
mod messages;

pub use decode::{GZIP, MOST, decode};
pub use encode::{Style, encode, encode_as, legacy};
