//! Holds the version of a peer's sources; `neap-lab peers` links them into a shared library.
