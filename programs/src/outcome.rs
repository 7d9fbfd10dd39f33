//! How a test's step ends.

/// The result of a test's step: its value, or an error in words.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
