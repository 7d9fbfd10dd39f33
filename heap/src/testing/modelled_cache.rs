//! What the models have of `cache`.

#[allow(dead_code)]
#[path = "../cache/bounds.rs"]
pub mod bounds;
#[path = "../cache/magazine.rs"]
pub mod magazine;
