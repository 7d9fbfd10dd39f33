//! What presses for memory: the soft limit, the control group, the machine.

use super::state::{AT_REST, AT_WORK};
use crate::base::policy::{
    DEMANDS, FORGET_PART, GROUP_PART, LEAST_STEP, NEAR_PART, RELIEF_MS, Reason, STEP_PART, WAIT_MS,
    WORTH_BYTES,
};
use crate::base::sync::Ordering;
use crate::cache::heap::Heap;
use crate::os::cgroup::Inquiry;
use crate::os::cgroup::{self, GroupLimit};
use crate::os::futex;
use crate::os::process;
use crate::pages::GroupShare;

impl Heap {
    /// Reads the files of the control group and the machine once a second, and those of the group
    /// also when free pages have [grown](crate::pages::Limits::is_outdated). Only the program's
    /// threads do this. If the purge thread did, its open file could take a descriptor that the
    /// program expects to get. No other thread waits for the answer. Returns whether it read any.
    pub(super) fn look_around(&self) -> bool {
        let (now, limits) = (self.now_ms(), self.pages.limits());
        let is_due = || limits.is_outdated() || self.pressure.is_outdated(now);
        if !is_due() {
            return false;
        }
        let Some(mut inquiry) = Inquiry::begin().filter(|_| is_due()) else {
            return false;
        };
        let timed = self.pressure.is_outdated(now);
        let held = self.pages.footprint();
        limits.put_off_reading(held.dirty);
        if timed {
            self.pressure.asked_at.store(now, Ordering::Relaxed);
        }
        if !process::may_query() {
            return true;
        }
        // Without an answer what was said last stays in force.
        if let Ok(group) = cgroup::group_limit(&mut inquiry) {
            let most_held = &self.pressure.most_held;
            let before = most_held.load(Ordering::Relaxed);
            let forgotten = if timed { before / FORGET_PART } else { 0 };
            let held_before = held.total().max(before - forgotten);
            most_held.store(held_before, Ordering::Relaxed);
            let share = group.map(|group| share_of(group, held.total(), held_before));
            limits.set_group(share.unwrap_or(GroupShare::ALL), held.dirty);
            self.budget
                .note_group(group.map_or(usize::MAX, |group| group.limit));
        }
        if timed {
            let short = cgroup::is_short_of_memory(&mut inquiry);
            self.pressure.short.store(short, Ordering::Relaxed);
        }
        true
    }

    /// Reads the group again because free pages have grown, and purges those that it leaves no room
    /// for. The caller holds no lock.
    #[cold]
    pub(super) fn heed_group(&self) {
        if self.look_around() {
            self.pages.tend();
        }
    }

    /// What a caller that takes a large block does, for a program may take no others: looks around,
    /// and wakes the purge thread if memory is short. The caller holds no lock.
    pub(crate) fn watch_pressure(&self) {
        if self.look_around() && self.is_pressed() {
            self.tide.want();
        }
    }

    /// Whether free memory should go back before its time.
    pub fn is_pressed(&self) -> bool {
        let near = self.pages.limits().near();
        let is_near = || near != usize::MAX && self.pages.footprint().total() > near;
        self.pressure.short.load(Ordering::Relaxed) || is_near()
    }

    /// Gathers free memory for a request of `bytes` that was refused: from magazines, slabs and
    /// stacks. False if that cannot help, or was vain a moment ago and little was freed since. One
    /// thread gathers at a time; who comes meanwhile waits for it, a moment at most, and tries its
    /// request again. Also false where a holder of locks [might not come
    /// back](Heap::may_wait). The caller holds no lock.
    #[cold]
    pub fn relieve(&'static self, bytes: usize) -> bool {
        let pressure = &self.pressure;
        let (now, freed) = (self.now_ms(), self.tide.freed.bytes());
        let since = freed.wrapping_sub(pressure.relieved.load(Ordering::Relaxed));
        let recent = now < pressure.relieved_at.load(Ordering::Relaxed) + RELIEF_MS;
        let vain = recent && since < bytes.max(WORTH_BYTES);
        if vain || !self.may_wait() || !self.pages.may_gain(bytes) {
            return false;
        }
        let word = &pressure.gathering;
        let taken = word.compare_exchange(AT_REST, AT_WORK, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            futex::wait(word, AT_WORK, Some(WAIT_MS));
            return true;
        }
        pressure.relieved.store(freed, Ordering::Relaxed);
        self.decay(Reason::Refusal);
        pressure.relieved_at.store(now, Ordering::Relaxed);
        word.store(AT_REST, Ordering::Release);
        futex::wake(word);
        true
    }
}

/// What a group's limit leaves a heap that counts `held` bytes, and lately held `most_held`, if all
/// other use stays the same. The heap may have as much as it counts now, plus the group's room. The
/// group does not count pages of the heap that were never touched.
fn share_of(group: GroupLimit, held: usize, most_held: usize) -> GroupShare {
    let usable = group.limit - group.limit / GROUP_PART;
    let most = usable.saturating_add(held).saturating_sub(group.used);
    GroupShare {
        most,
        near: most.saturating_sub(group.limit / NEAR_PART),
        demand: most_held.saturating_mul(DEMANDS),
        step: (usable.saturating_sub(group.used) / STEP_PART).max(LEAST_STEP),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn is_near(used: usize, held: usize) -> bool {
        let limit = 256 * MIB;
        let share = share_of(GroupLimit { limit, used }, held, held);
        assert!(share.near <= share.most);
        held > share.near
    }

    #[test]
    fn what_was_never_touched_is_not_pressed_for() {
        assert!(!is_near(20 * MIB, 16 << 30));
        assert!(!is_near(20 * MIB, 20 * MIB));
    }

    #[test]
    fn a_group_near_its_limit_presses_whoever_uses_it() {
        assert!(is_near(220 * MIB, 210 * MIB));
        assert!(is_near(250 * MIB, 10 * MIB));
        assert!(is_near(300 * MIB, 10 * MIB));
    }
}
