//! The published download: requests over pyOpenSSL, which allocates a zero-filled buffer of the
//! chunk's size for every TLS read, under each allocator. The Python programs are in
//! `lab/download/`; the head of `client.py` says what it restores from 2016, and how.
//!
//! | file | contents |
//! |---|---|
//! | `environment` | the Python packages and the certificate, made once |
//! | `server` | the HTTPS server, one for the whole campaign |
//! | `cell` | one download in a client process of its own |
//! | `campaign` | the cells in interleaved rounds |
//! | `record` | the CSV file |
//! | `report` | the table, the JSON and the picture |

pub mod campaign;
pub mod cell;
pub mod environment;
pub mod record;
pub mod report;
pub mod server;

/// Bytes in a MB of this experiment: the report of 2016 requested `100 * 2 ** 20`.
pub const MB: u64 = 1 << 20;
