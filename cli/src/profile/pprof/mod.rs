//! pprof's `profile.proto`, as Go writes heap profiles. google/pprof, Parca, Pyroscope and
//! speedscope open it.

mod budget;
mod decode;
mod encode;
mod legacy;
mod messages;
mod unzip;
mod wire;

pub use decode::decode;
pub use encode::{Style, encode, encode_as};
pub use legacy::legacy;
pub use unzip::{GZIP, MOST};
pub use wire::is_message;
