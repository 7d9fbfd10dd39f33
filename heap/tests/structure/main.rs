//! The structure of the workspace's sources: the layers of the heap, imports, and words that have
//! one place.

mod imports;
mod layers;
mod sources;
mod widths;
mod words;
