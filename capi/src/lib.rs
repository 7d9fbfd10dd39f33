//! libneap.so: the C names.
