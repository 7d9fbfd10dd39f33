#![no_std]
//! Neap: a memory system for Linux programs.

pub use neap_heap::*;
