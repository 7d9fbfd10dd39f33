//! The work of a worker process: runs one shape, checks every block's contents, and reports the
//! cost. Only the workload allocates between the two clock readings.

pub mod boxed;
pub mod calloc;
mod churn;
pub mod count;
pub mod fragmentation;
mod grow;
pub mod heap;
pub mod identity;
pub mod known;
mod live;
pub mod outcome;
pub mod retention;
pub mod scatter;
pub mod shapes;
mod sharing;
mod single;
pub mod sites;
pub mod tide;
mod toggle;
pub mod usable;
mod written;
