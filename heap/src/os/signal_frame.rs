//! How a handler of a signal is called: its arguments, and the frame that the kernel makes for it.
//!
//! The kernel puts on a stack what it interrupted, and reads that from the stack pointer when the
//! handler has returned. A copy of the frame on another stack does as well, if what points into the
//! frame points into the copy.

use core::ffi::c_void;

/// What a handler is called with besides the signal. The entry of our handler fills all but
/// `handler`, and then calls that in its own place.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Call {
    /// The stack pointer at the handler's first instruction.
    pub stack: usize,
    pub info: *mut libc::siginfo_t,
    pub context: *mut c_void,
    /// 0 if none is to be called.
    pub handler: usize,
}

impl Call {
    /// Lets the handler run on the interrupted stack, if it would run on the alternate one only
    /// because our own handler does. Leaves it there if the frame is not as expected. Where the
    /// interrupted stack has no room, the process dies of the signal, as without Neap.
    ///
    /// # Safety
    /// - It is the call of our handler by the kernel, which has not returned yet.
    pub unsafe fn move_to_interrupted(&mut self) {
        let context = self.context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel filled it.
        let (alternate, interrupted) = unsafe { ((*context).uc_stack, stack_pointer(context)) };
        let start = alternate.ss_sp.addr();
        let is_on_it = |at: usize| (start..start + alternate.ss_size).contains(&at);
        if is_on_it(self.stack) && !is_on_it(interrupted) {
            // SAFETY: the caller's promise. Below what it interrupted, the stack is free.
            unsafe { self.copy_below(interrupted) };
        }
    }
}

/// The stack pointer of what a signal interrupted.
///
/// # Safety
/// - The context is the kernel's.
#[cfg(target_arch = "x86_64")]
unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as usize }
}

/// The frame of x86-64: where the handler returns to, the context, and the information. The state
/// of the floating-point unit is above, and the context points to it.
#[cfg(target_arch = "x86_64")]
impl Call {
    /// # Safety
    /// - As [`Call::move_to_interrupted`], and the stack is free below this stack pointer.
    unsafe fn copy_below(&mut self, interrupted: usize) {
        const CONTEXT: usize = size_of::<usize>();
        const INFO: usize = CONTEXT + 304;
        const BYTES: usize = INFO + size_of::<libc::siginfo_t>();
        const RED_ZONE: usize = 128;
        let old = self.stack;
        if self.context.addr() != old + CONTEXT || self.info.addr() != old + INFO {
            return;
        }
        // SAFETY: the caller's promise: the kernel's frame, and free stack.
        unsafe {
            let registers = &(*self.context.cast::<libc::ucontext_t>()).uc_mcontext;
            let state = registers.fpregs.cast::<u8>();
            let bytes = state_bytes(state);
            let new_state = interrupted.wrapping_sub(RED_ZONE + bytes) & !63;
            let new = (new_state.wrapping_sub(BYTES) & !15).wrapping_sub(CONTEXT);
            let copy = |from: *const u8, to: usize, bytes| {
                from.copy_to_nonoverlapping(to as *mut u8, bytes);
                to as *mut u8
            };
            if !state.is_null() {
                copy(state, new_state, bytes);
            }
            let frame = copy(old as *const u8, new, BYTES);
            let context = frame.add(CONTEXT).cast::<libc::ucontext_t>();
            if !state.is_null() {
                (*context).uc_mcontext.fpregs = new_state as *mut _;
            }
            *self = Self {
                stack: new,
                info: frame.add(INFO).cast(),
                context: context.cast(),
                handler: self.handler,
            };
        }
    }
}

/// Bytes of the floating-point unit's state, of which the kernel says where it extends the oldest
/// form.
///
/// # Safety
/// - It is null, or the kernel's.
#[cfg(target_arch = "x86_64")]
unsafe fn state_bytes(state: *const u8) -> usize {
    const OLDEST: usize = 512;
    const WORDS: usize = 464;
    const IS_EXTENDED: u32 = 0x4650_5853;
    if state.is_null() {
        return 0;
    }
    // SAFETY: within the oldest form.
    match unsafe { state.add(WORDS).cast::<[u32; 2]>().read_unaligned() } {
        [IS_EXTENDED, bytes] => bytes as usize,
        _ => OLDEST,
    }
}

/// The stack pointer of what a signal interrupted.
///
/// # Safety
/// - The context is the kernel's.
#[cfg(target_arch = "aarch64")]
unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.sp as usize }
}

/// The frame of AArch64: the information and the context, and above them a record for walks through
/// the stack.
#[cfg(target_arch = "aarch64")]
impl Call {
    /// # Safety
    /// - As [`Call::move_to_interrupted`], and the stack is free below this stack pointer.
    unsafe fn copy_below(&mut self, interrupted: usize) {
        const CONTEXT: usize = size_of::<libc::siginfo_t>();
        const RECORDS: usize = CONTEXT + 176 + 288;
        const BYTES: usize = RECORDS + 4096 + 16;
        let old = self.stack;
        // SAFETY: the caller's promise: within the kernel's frame.
        let is_usual = self.info.addr() == old
            && self.context.addr() == old + CONTEXT
            && unsafe { ends_within((old + RECORDS) as *const u8) };
        if !is_usual {
            return;
        }
        let new = (interrupted & !15).wrapping_sub(BYTES);
        // SAFETY: as above, and free stack.
        unsafe { (old as *const u8).copy_to_nonoverlapping(new as *mut u8, BYTES) };
        self.stack = new;
        self.info = new as *mut libc::siginfo_t;
        self.context = (new + CONTEXT) as *mut c_void;
    }
}

/// Whether the records of a context are all in it: none points to more of them.
///
/// # Safety
/// - They are the kernel's.
#[cfg(target_arch = "aarch64")]
unsafe fn ends_within(records: *const u8) -> bool {
    const MORE: u32 = 0x4558_5401;
    let mut at = 0;
    loop {
        // SAFETY: the kernel's records: the last one has no magic number.
        let [magic, bytes] = unsafe { records.add(at).cast::<[u32; 2]>().read() };
        if magic == 0 || magic == MORE || bytes == 0 {
            return magic == 0;
        }
        at += bytes as usize;
    }
}

/// Other machines' handlers stay where they are.
///
/// # Safety
/// - None.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn stack_pointer(_context: *const libc::ucontext_t) -> usize {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Call {
    /// # Safety
    /// - None.
    unsafe fn copy_below(&mut self, _interrupted: usize) {}
}
