//! The stacks that connections run on: Neap's.

use crate::options::Options;
use anyhow::Context as _;
use corosensei::stack::StackPointer;
use std::rc::Rc;

/// Bytes below a noted address that the switch of stacks may use: the frames between the note and
/// the switch, and the registers that it saves.
const SWITCH_BYTES: usize = 512;

/// A stack shared by its coroutine and the thread's list of coroutines.
#[derive(Clone, Debug)]
pub struct Stack(Rc<neap::stack::Stack>);

// SAFETY: the inner stack's guarantees hold while a clone of the `Rc` lives, and the coroutine has
// one; only the coroutine uses its memory.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.0.base()
    }

    fn limit(&self) -> StackPointer {
        corosensei::stack::Stack::limit(&*self.0)
    }
}

impl Stack {
    /// A stack for a connection.
    ///
    /// # Errors
    /// If the size is invalid, or memory or mappings are short.
    pub fn new(options: &Options) -> Result<Stack, neap::stack::StackError> {
        let stack = neap::stack::Stack::new(options.stack_size)?;
        stack.set_owner(c"a connection of neap-kv");
        Ok(Stack(Rc::new(stack)))
    }

    /// Purges the pages below those that a parked coroutine uses; returns their bytes.
    ///
    /// # Safety
    /// - The coroutine on this stack is suspended.
    /// - `mark` is the address of a local variable of the function that suspended it.
    pub unsafe fn trim(&self, mark: usize) -> usize {
        // SAFETY: the coroutine's stack pointer is less than SWITCH_BYTES below that variable, so
        // nothing below this address is in use, and the caller promises that it does not run.
        unsafe { self.0.trim((mark - SWITCH_BYTES) as *const u8) }
    }
}

/// Checks that the kernel and the options allow stacks, and enables reports of overflows.
///
/// # Errors
/// If they do not.
pub fn prepare(options: &Options) -> anyhow::Result<()> {
    Stack::new(options)
        .with_context(|| format!("--stack-size {} does not do", options.stack_size))?;
    if !neap::stack::report_overflows() {
        // An overflow would still end the process, but without a message.
        eprintln!("neap-kv: overflows of stacks will not be reported: no handler for SIGSEGV");
    }
    Ok(())
}
