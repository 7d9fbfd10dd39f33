//! An operating system for tests: real memory behind it, every rule of [`Os`] checked, failures on demand.
