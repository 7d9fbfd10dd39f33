//! The samples of a session, of a process that may have sampled before: what its region gained
//! during it.
//!
//! Allocated bytes and objects only grow, so their difference is what the session allocated. For
//! live objects, the region holds only the sum for each stack trace and does not say which are old.
//! Growth of the sum is live and new; if older objects were freed as well, the session allocated
//! more. A decrease is not an allocation of the session and is left out.

use super::model::{Extent, Profile, Switched};
use super::region::{Region, head, record};
use crate::attach;
use crate::failure::Failure;
use neap_shared::sites::{self, Head, Site};
use std::time::{SystemTime, UNIX_EPOCH};

/// A session in progress, with what the process had sampled before it.
pub struct Session {
    /// The region's earlier bytes; empty without a region.
    earlier: Vec<u8>,
    began_ms: u64,
    /// Mean bytes between two samples.
    rate: u64,
    /// The time of the switch to this rate, from the region; `None`: unknown.
    changed_ms: Option<u64>,
}

impl Session {
    /// Begins a session now, at the rate in force or about to be requested. Without a region,
    /// everything that will be in it belongs to the session.
    ///
    /// # Errors
    /// The region cannot be read, or is damaged.
    pub fn of(region: Option<&attach::Region>, rate: u64) -> Result<Self, Failure> {
        let earlier = region.map(attach::Region::read).transpose()?;
        let then = earlier.as_deref().map(head).transpose()?;
        let in_force = then.filter(|then| then.rate == rate);
        Ok(Self {
            earlier: earlier.unwrap_or_default(),
            began_ms: now_ms(),
            rate,
            changed_ms: in_force.map(|then| then.changed_ms),
        })
    }

    /// Notes that the process has switched to the session's rate on this session's request.
    ///
    /// # Errors
    /// The region cannot be read.
    pub fn switched_on(&mut self, region: &attach::Region) -> Result<(), Failure> {
        self.changed_ms = Some(region.head()?.changed_ms);
        Ok(())
    }

    /// Whether this region, of a process that did not answer at the beginning, includes the
    /// session.
    pub fn has_begun(&self, head: &Head) -> bool {
        head.rate != 0 || head.changed_ms >= self.began_ms
    }

    /// Ends the session: reads the region.
    pub fn end(self, region: &attach::Region) -> Result<Ended, Failure> {
        let later = region.read()?;
        Ok(Ended {
            session: self,
            later,
            ended_ms: now_ms(),
        })
    }
}

/// A finished session.
pub struct Ended {
    session: Session,
    later: Vec<u8>,
    ended_ms: u64,
}

impl Ended {
    /// The session's symbolised profile.
    ///
    /// # Errors
    /// The region is damaged.
    pub fn profile(mut self, pid: u32) -> Result<Profile, Failure> {
        let switched = self.switched(&head(&self.later)?);
        let shrunk = subtract(&mut self.later, &self.session.earlier);
        let mut profile = Profile::named(&Region::parse(&self.later)?, pid);
        profile.rate = self.session.rate;
        profile.ended_ms = self.ended_ms;
        profile.switched = switched;
        if let Some(shrunk) = shrunk {
            profile.began_ms = self.session.began_ms;
            profile.extent = Extent::Session { shrunk };
        }
        Ok(profile)
    }

    /// Whether another observer switched sampling since the session began.
    fn switched(&self, now: &Head) -> Option<Switched> {
        let session = &self.session;
        let known = session.changed_ms.unwrap_or(now.changed_ms);
        // A forged time may be arbitrary.
        let at_ms = now.changed_ms.min(self.ended_ms);
        ((now.rate, now.changed_ms) != (session.rate, known)).then(|| Switched {
            rate: now.rate,
            after_ms: at_ms.saturating_sub(session.began_ms),
        })
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Subtracts an earlier reading of a region from a later one, site by site. Returns the sum of live
/// bytes lost at sites that shrank. `None` if there is nothing to subtract: the earlier bytes are
/// no region, another region, or without samples.
pub fn subtract(later: &mut [u8], earlier: &[u8]) -> Option<u64> {
    let (now, then) = (head(later).ok()?, head(earlier).ok()?);
    if (now.pid, now.began_ms) != (then.pid, then.began_ms) || then.samples == 0 {
        return None;
    }
    let whole = |bytes: &[u8]| (bytes.len() - sites::SITES_AT) / size_of::<Site>();
    let mut shrunk = 0_u64;
    for index in 0..whole(later).min(whole(earlier)) {
        let at = sites::site_at(index);
        let (mut site, before): (Site, Site) = (record(later, at), record(earlier, at));
        if same_place(&site, &before) {
            shrunk = shrunk.saturating_add(before.live_bytes.saturating_sub(site.live_bytes));
            gain(&mut site, &before);
            later[at..at + size_of::<Site>()].copy_from_slice(bytemuck::bytes_of(&site));
        }
    }
    Some(shrunk)
}

/// A site never changes its frames. If a region violates that, nothing is subtracted from a
/// different place.
fn same_place(one: &Site, other: &Site) -> bool {
    (one.depth, &one.frames) == (other.depth, &other.frames)
}

/// Reduces each figure to its growth.
fn gain(site: &mut Site, before: &Site) {
    let waste = |site: &Site| site.live_usable.saturating_sub(site.live_bytes);
    let more_waste = waste(site).saturating_sub(waste(before));
    for (word, less) in [
        (&mut site.alloc_objects, before.alloc_objects),
        (&mut site.alloc_bytes, before.alloc_bytes),
        (&mut site.alloc_usable, before.alloc_usable),
        (&mut site.live_objects, before.live_objects),
        (&mut site.live_bytes, before.live_bytes),
    ] {
        *word = word.saturating_sub(less);
    }
    site.live_usable = site.live_bytes.saturating_add(more_waste);
}
