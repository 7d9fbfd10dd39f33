//! Guarded samples: after how many requests does `neap run --guard` report an error that was
//! planted in a real program?
//!
//! A program is a directory of `lab/planted`, in the form of a case. With `PLANTED=1`, its
//! extension makes one wrong access in each request.
//!
//! | file | contents |
//! |---|---|
//! | `programs` | the programs, and what their reports must say |
//! | `run` | one run: a server under `neap run`, and its client |
//! | `sizes` | how many of the allocations of a request can be guarded |
//! | `report` | a report, as `neap run` prints it |
//! | `chance` | the computed probability |
//! | `views` | the table |
//! | `campaign` | the experiment |

pub mod campaign;
mod chance;
mod programs;
mod report;
mod run;
mod sizes;
mod views;
