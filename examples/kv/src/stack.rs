//! The stacks that connections run on.

use crate::options::Options;
use corosensei::stack::Stack as _;
use std::io;

pub use corosensei::stack::DefaultStack as Stack;

/// What unused bytes hold while depths are measured.
const PAINT: u8 = 0xa5;

/// A stack for a connection.
///
/// # Errors
/// Without memory or mappings.
pub fn new(options: &Options) -> io::Result<Stack> {
    let stack = Stack::new(options.stack_size.0)?;
    if options.measure_depth {
        Span::of(&stack).paint();
    }
    Ok(stack)
}

/// Makes sure that the options allow stacks.
///
/// # Errors
/// When they do not.
pub fn check(options: &Options) -> anyhow::Result<()> {
    new(options)?;
    Ok(())
}

/// Where a stack stands.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    limit: usize,
    top: usize,
}

impl Span {
    /// Of this stack.
    pub fn of(stack: &Stack) -> Span {
        Span {
            limit: stack.limit().get() + 4096,
            top: stack.base().get(),
        }
    }

    /// One past its highest byte.
    pub fn top(&self) -> usize {
        self.top
    }

    fn paint(&self) {
        // SAFETY: the bytes from `limit` to `top` are the stack's, and nothing runs on it yet.
        unsafe { std::ptr::write_bytes(self.limit as *mut u8, PAINT, self.top - self.limit) };
    }
    /// Bytes from its top to the lowest one that was written, if it was painted.
    pub fn depth(&self) -> usize {
        // SAFETY: the bytes from `limit` to `top` are the stack's, which the caller has.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.limit as *const u8, self.top - self.limit) };
        bytes.len() - bytes.iter().take_while(|&&byte| byte == PAINT).count()
    }
}
