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

/// Where a copy of a frame begins, which is its lowest address, and where the state of the
/// floating-point unit in it, if that is apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub stack: usize,
    #[cfg(target_arch = "x86_64")]
    state: usize,
}

impl Call {
    /// Where the frame would be on the interrupted stack. `None` if the handler may stay where it
    /// is: our own does not run on the alternate stack, or was called there anyway, or the frame is
    /// not as expected.
    ///
    /// # Safety
    /// - It is the call of our handler by the kernel, which has not returned yet.
    pub unsafe fn place_on_interrupted(&self) -> Option<Place> {
        let context = self.context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel filled it.
        let (alternate, interrupted) = unsafe { ((*context).uc_stack, stack_pointer(context)) };
        let start = alternate.ss_sp.addr();
        let is_on_it = |at: usize| (start..start + alternate.ss_size).contains(&at);
        if !is_on_it(self.stack) || is_on_it(interrupted) {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.place_below(interrupted) }
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
    const CONTEXT: usize = size_of::<usize>();
    const INFO: usize = Self::CONTEXT + 304;
    const BYTES: usize = Self::INFO + size_of::<libc::siginfo_t>();
    /// Where the context has the address of the state: behind five words and 23 registers. Not
    /// every C library's headers name it.
    const STATE: usize = (5 + 23) * size_of::<usize>();

    /// # Safety
    /// - As [`Call::place_on_interrupted`].
    unsafe fn place_below(&self, interrupted: usize) -> Option<Place> {
        const RED_ZONE: usize = 128;
        let is_usual = self.context.addr() == self.stack + Self::CONTEXT
            && self.info.addr() == self.stack + Self::INFO;
        if !is_usual {
            return None;
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { state_bytes(*self.state()) };
        let state = interrupted.wrapping_sub(RED_ZONE + bytes) & !63;
        let stack = (state.wrapping_sub(Self::BYTES) & !15).wrapping_sub(Self::CONTEXT);
        Some(Place { stack, state })
    }

    /// Copies the frame to a [place](Call::place_on_interrupted), where the handler then runs.
    ///
    /// # Safety
    /// - The place is this call's, and free stack.
    pub unsafe fn move_to(&mut self, place: Place) {
        // SAFETY: the caller's promise: the kernel's frame, and free stack.
        unsafe {
            let state = *self.state();
            let frame = place.stack as *mut u8;
            frame.copy_from_nonoverlapping(self.stack as *const u8, Self::BYTES);
            self.stack = place.stack;
            self.info = frame.add(Self::INFO).cast();
            self.context = frame.add(Self::CONTEXT).cast();
            if !state.is_null() {
                let copy = place.state as *mut u8;
                copy.copy_from_nonoverlapping(state, state_bytes(state));
                *self.state() = copy;
            }
        }
    }

    /// The context's address of the floating-point unit's state.
    fn state(&self) -> *mut *mut u8 {
        self.context.wrapping_byte_add(Self::STATE).cast()
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
    const CONTEXT: usize = size_of::<libc::siginfo_t>();
    const RECORDS: usize = Self::CONTEXT + 176 + 288;
    const BYTES: usize = Self::RECORDS + 4096 + 16;

    /// # Safety
    /// - As [`Call::place_on_interrupted`].
    unsafe fn place_below(&self, interrupted: usize) -> Option<Place> {
        // SAFETY: the caller's promise: within the kernel's frame.
        let is_usual = self.info.addr() == self.stack
            && self.context.addr() == self.stack + Self::CONTEXT
            && unsafe { ends_within((self.stack + Self::RECORDS) as *const u8) };
        let stack = (interrupted & !15).wrapping_sub(Self::BYTES);
        is_usual.then_some(Place { stack })
    }

    /// Copies the frame to a [place](Call::place_on_interrupted), where the handler then runs.
    ///
    /// # Safety
    /// - The place is this call's, and free stack.
    pub unsafe fn move_to(&mut self, place: Place) {
        let frame = place.stack as *mut u8;
        // SAFETY: the caller's promise.
        unsafe { frame.copy_from_nonoverlapping(self.stack as *const u8, Self::BYTES) };
        self.stack = place.stack;
        self.info = frame.cast();
        self.context = frame.wrapping_add(Self::CONTEXT).cast();
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
