//! The library from outside: what it exports, how each name behaves, what it
//! survives. C and C++ programs are compiled here and run under the preload.

mod cxx;
mod exhaustion;
mod faults;
mod misuse;
mod process;
mod semantics;
mod stacks;
mod support;
mod symbols;
mod torture;
