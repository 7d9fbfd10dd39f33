//! The options (`options`), and how their values are read (`value`).

mod nearest;
mod options;
mod value;

pub use nearest::nearest;
pub use options::{
    Declaration, FINEST_SAMPLE, Flag, Group, HARDEN, Kind, OPTIONS, PREFIX, SWITCH, find,
    nearest_variable,
};
pub use value::{Rejected, Value, parse};
