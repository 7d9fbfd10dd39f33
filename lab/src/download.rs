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
//! | `views` | the tables and the picture |

pub mod campaign;
mod cell;
mod environment;
mod server;
mod views;
