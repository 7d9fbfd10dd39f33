//! Addresses for arenas that are claimed: chosen, but mapped only part by part.

use super::mapping::{RESERVED, committed, map, map_number, map_reserved, protect, remap, unmap};
use super::{Claim, ClaimError, sandbox};
use crate::base::sync::plain::{AtomicU64, Ordering};
use core::ptr::NonNull;

/// An odd number whose multiples look random in their upper bits.
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// The state of the addresses that [`scattered`] chooses; 0: the kernel chooses.
static ANYWHERE: AtomicU64 = AtomicU64::new(0);

/// From now on, arenas lie at addresses that follow from `seed`.
pub fn scatter(seed: u64) {
    ANYWHERE.store(seed | 1, Ordering::Relaxed);
}

/// Reserves an arena at a multiple of `align` that the seed of [`scatter`] chooses, if that is
/// free.
pub(super) fn reserve_anywhere(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let wish = scattered(bytes, align)?;
    // SAFETY: a new mapping takes nothing from others: the address is a wish.
    let at = unsafe { map(wish.cast(), bytes, libc::PROT_NONE, RESERVED) };
    if at == libc::MAP_FAILED || at.cast() == wish {
        return NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
    }
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(at.cast(), bytes) };
    None
}

/// The next address that the seed of [`scatter`] chooses, if there is one.
fn scattered(bytes: usize, align: usize) -> Option<*mut u8> {
    const LEAST_BYTES: usize = 1 << 20;
    const LOWEST: usize = 1 << 40;
    const HIGHEST: usize = 127 << 40;
    let state = ANYWHERE.load(Ordering::Relaxed);
    if state == 0 || bytes < LEAST_BYTES {
        return None;
    }
    let next = state.wrapping_mul(MULTIPLIER);
    ANYWHERE.store(next ^ (next >> 32) << 1, Ordering::Relaxed);
    let room = (HIGHEST - LOWEST).checked_sub(bytes)? / align;
    let wish = LOWEST.next_multiple_of(align) + (next >> 16) as usize % room * align;
    Some(core::ptr::without_provenance_mut(wish))
}

/// As [`crate::os::Os::claim`].
///
/// The kernel fills the address space from the top downwards, or from a third of it upwards. A
/// range well below its newest mapping is beyond its reach in either case, until the program has
/// mapped twice the range's length. On x86-64, 1 TiB begins three to four TiB below: above the
/// program's image and break, and where sanitizers leave addresses to the program.
pub(super) fn claim(
    bytes: usize,
    align: usize,
    owner: usize,
    nth: usize,
    page: usize,
) -> Option<NonNull<u8>> {
    if let Some(wish) = scattered(bytes, align) {
        return NonNull::new(wish);
    }
    let newest = map_reserved(page)?.as_ptr();
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(newest, page) };
    let away = 3 + 2 * nth;
    if newest.addr() / bytes < 2 * away + 2 {
        return None;
    }
    // Two heaps in one process choose different ranges.
    let further = (owner as u64).wrapping_mul(MULTIPLIER) as usize >> 8;
    let base = newest.addr() - away * bytes - further % bytes;
    NonNull::new(core::ptr::without_provenance_mut(base / align * align))
}

/// As [`crate::os::Os::map_claimed`].
///
/// # Safety
/// - As there.
pub(super) unsafe fn map_claimed(
    addr: NonNull<u8>,
    bytes: usize,
    claim: Claim,
    page: usize,
) -> Result<(), ClaimError> {
    let access = match claim {
        Claim::Reserved => libc::PROT_NONE,
        Claim::Committed | Claim::Extended => committed(),
    };
    const REFUSED: isize = -(libc::ENOMEM as isize);
    const LOCKED: isize = -(libc::EAGAIN as isize);
    let start = addr.as_ptr();
    // A wish first: filters of system calls know it. Linux 6.7 to 6.11 aligns long mappings instead
    // of granting some wishes. Earlier than 4.17, the second flag also means a wish.
    for flags in [0, libc::MAP_FIXED_NOREPLACE] {
        if flags != 0 && !sandbox::allows_more() {
            break;
        }
        let access = [access, RESERVED | flags].map(|number| number as usize);
        let arguments = [start.expose_provenance(), bytes, access[0], access[1]];
        // SAFETY: a new mapping takes nothing from others.
        let at = unsafe { map_number(arguments, usize::MAX) };
        if at as usize == start.addr() {
            return Ok(());
        }
        if flags == 0 && at < 0 || matches!(at, REFUSED | LOCKED) {
            // SAFETY: the caller's promise.
            let extended = claim == Claim::Extended && unsafe { extend(addr, bytes, page) };
            return extended.then_some(()).ok_or(ClaimError::OutOfMemory);
        }
        // Something is there, or a filter refuses the second flag. Elsewhere there is room.
        if at > 0 {
            // SAFETY: mapped just above, and not shared.
            unsafe { unmap(core::ptr::with_exposed_provenance_mut(at as usize), bytes) };
        }
    }
    Err(ClaimError::Taken)
}

/// Extends the mapping that ends at `addr`, and commits what is new. That needs no further mapping,
/// so it may succeed where the process has as many as it may.
///
/// # Safety
/// - As [`map_claimed`].
unsafe fn extend(addr: NonNull<u8>, bytes: usize, page: usize) -> bool {
    let last = addr.as_ptr().wrapping_sub(page);
    // SAFETY: the caller's promise: the page before is the caller's; it is not moved.
    unsafe {
        if remap(last, page, page + bytes, 0, last) != 0 {
            return false;
        }
        let done = protect(addr.as_ptr(), bytes, committed());
        if !done {
            unmap(addr.as_ptr(), bytes);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::linux::Linux;
    use super::super::mapping::is_mapped;
    use super::*;
    use crate::os::Os;
    use crate::os::child::{Limit, succeeds};

    const BYTES: usize = 4 << 20;

    #[test]
    fn a_claimed_range_is_mapped_in_parts_beside_what_others_map() {
        let page = Linux.page_bytes();
        let base = Linux.claim(1 << 34, 1 << 21, 1, 7).unwrap();
        assert!(base.as_ptr().addr().is_multiple_of(1 << 21));
        // SAFETY: a claimed range, then parts of it that are mapped, used by no other thread.
        unsafe {
            let [second, third] = [1, 2].map(|part| base.add(part * BYTES));
            assert!(!is_mapped(base.as_ptr().cast(), page));
            assert_eq!(Linux.map_claimed(base, BYTES, Claim::Committed), Ok(()));
            base.write(1);
            let beyond = Linux.map_claimed(third, page, Claim::Reserved);
            assert_eq!(beyond, Ok(()));
            for claim in [Claim::Reserved, Claim::Committed, Claim::Extended] {
                let taken = Linux.map_claimed(second, 2 * BYTES, claim);
                assert_eq!(taken, Err(ClaimError::Taken));
            }
            assert!(!is_mapped(second.as_ptr().cast(), page));
            assert!(!extend(second, 2 * BYTES, page) && extend(second, BYTES, page));
            assert_eq!([base.read(), second.add(BYTES - 1).read()], [1, 0]);
            second.write(1);
            Linux.unmap(base, 2 * BYTES + page);
            // Over a limit there is no memory, whoever has the addresses.
            let refused = || {
                let claimed = Linux.map_claimed(base, BYTES, Claim::Committed);
                claimed == Err(ClaimError::OutOfMemory)
            };
            assert!(succeeds(Limit::MoreAddresses(1 << 20), refused));
        }
    }

    /// A filter of system calls with this answer to a mapping that must not replace another.
    fn filter(answer: u32) -> bool {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const JUMP: u32 = libc::BPF_JMP | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let step = |code: u32, k: u32, jf: u8| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        let mut steps = [
            step(LOAD, 0, 0),
            step(JUMP | libc::BPF_JEQ, libc::SYS_mmap as u32, 3),
            // The low half of the fourth argument.
            step(LOAD, 40, 0),
            step(JUMP | libc::BPF_JSET, libc::MAP_FIXED_NOREPLACE as u32, 1),
            step(RETURN, answer, 0),
            step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let filter = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: plain numbers, and a filter that the kernel copies.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
        }
    }

    #[test]
    fn filters_that_refuse_the_second_flag_or_kill_for_it() {
        let base = map_reserved(BYTES).unwrap();
        // SAFETY: the kernel maps it elsewhere, and then it is unmapped.
        let claimed = || unsafe { Linux.map_claimed(base, BYTES, Claim::Committed) };
        let taken = Err(ClaimError::Taken);
        for (refusal, answer) in [
            (libc::ENOMEM, Err(ClaimError::OutOfMemory)),
            (libc::EAGAIN, Err(ClaimError::OutOfMemory)),
            (libc::EPERM, taken),
        ] {
            let works = || {
                let is_filtered = filter(libc::SECCOMP_RET_ERRNO | refusal as u32);
                sandbox::note_start();
                is_filtered && claimed() == answer
            };
            assert!(succeeds(Limit::None, works), "{refusal}");
        }
        sandbox::note_start();
        let unseen = || filter(libc::SECCOMP_RET_KILL_PROCESS) && claimed() == taken;
        // Under a filter from the start, no later one is noticed.
        assert!(!sandbox::started_free() || succeeds(Limit::None, unseen));
        // SAFETY: mapped above.
        unsafe { unmap(base.as_ptr(), BYTES) };
    }
}
