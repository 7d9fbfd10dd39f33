//! The published download: requests over pyOpenSSL with a zero-filled buffer of the chunk's size
//! for every TLS read, under each allocator. The Python programs are in `lab/download/`; the head
//! of `client.py` tells what of 2016 is restored, and how.
//!
//! | file | what it holds |
//! |---|---|
//! | `environment` | the Python packages and the certificate, made once |
//! | `server` | the HTTPS server, one for the whole campaign |
//! | `cell` | one download in a client process of its own |
//! | `campaign` | the cells in interleaved rounds |
//! | `record` | the CSV file |
//! | `report` | the table, the JSON and what the picture shows |

pub mod campaign;
pub mod cell;
pub mod environment;
pub mod record;
pub mod report;
pub mod server;

/// Bytes of what this experiment calls a MB: the report of 2016 asked for `100 * 2 ** 20`.
pub const MB: u64 = 1 << 20;
