//! The report: its page in a real browser, and its verdict.

mod browser;
mod fabricated;
mod files;
mod page;
