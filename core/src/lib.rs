#![cfg_attr(not(any(test, loom)), no_std)]
#![warn(missing_docs)]
//! Neap: a memory system for Linux programs.

pub mod base;
pub mod control;
pub mod front;
pub mod os;
pub mod page;
