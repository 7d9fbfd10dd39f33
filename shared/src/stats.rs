//! Plain data: the figures of the heap at one moment (`snapshot`), and their written forms.

mod bytes;
mod json;
mod snapshot;
mod text;

pub use bytes::Bytes;
pub use json::Json;
pub use snapshot::{
    ClassFigures, Counted, Snapshot, SpanFigures, StackFigures, USE_NAMES, USES, Use,
};
pub use text::{LedgerText, Row, Text, ending};
