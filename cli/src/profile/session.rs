//! What a session sampled, of a process that may have sampled before: what its region gained meanwhile.
//!
//! Allocated bytes and objects only grow, so their difference is what the session allocated. Of live ones the region does not
//! tell which are old: it tells their sum at each stack. What that grew by is live and new, or more is, where older ones were
//! freed as well; what it shrank by is no allocation of the session's and is left out.

use super::model::{Extent, Profile, Switched};
use super::region::{Region, head, record};
use crate::attach;
use crate::failure::Failure;
use neap::sites::{self, Head, Site};
use std::time::{SystemTime, UNIX_EPOCH};

/// A session of sampling that has begun: what the process had sampled by then.
pub struct Session {
    /// Empty without a region.
    earlier: Vec<u8>,
    began_ms: u64,
    /// Mean bytes between two samples.
    rate: u64,
    /// The region's own time of the switch to this rate; none: not known.
    changed_ms: Option<u64>,
}

impl Session {
    /// Begins now, at a rate that is in force or that will be asked for. Without a region, all that will be in it is the
    /// session's.
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

    /// The process has switched to the session's rate because we asked.
    ///
    /// # Errors
    /// The region cannot be read.
    pub fn switched_on(&mut self, region: &attach::Region) -> Result<(), Failure> {
        self.changed_ms = Some(region.head()?.changed_ms);
        Ok(())
    }

    /// Whether this region, of a process that answered nobody at the beginning, tells of the session.
    pub fn has_begun(&self, head: &Head) -> bool {
        head.rate != 0 || head.changed_ms >= self.began_ms
    }

    /// The region now, when the session is over.
    pub fn end(self, region: &attach::Region) -> Result<Ended, Failure> {
        let later = region.read()?;
        Ok(Ended {
            session: self,
            later,
            ended_ms: now_ms(),
        })
    }
}

/// A session that is over.
pub struct Ended {
    session: Session,
    later: Vec<u8>,
    ended_ms: u64,
}

impl Ended {
    /// What it sampled, with names.
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

    /// Whether somebody else switched sampling since the session began.
    fn switched(&self, now: &Head) -> Option<Switched> {
        let session = &self.session;
        let known = session.changed_ms.unwrap_or(now.changed_ms);
        // A forged time may lie anywhere.
        let at_ms = now.changed_ms.min(self.ended_ms);
        ((now.rate, now.changed_ms) != (session.rate, known)).then(|| Switched {
            rate: now.rate,
            after_ms: at_ms.saturating_sub(session.began_ms),
        })
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Takes from the sites of a region what they had at an earlier reading of it. Returns how many live bytes fewer there are
/// where there are fewer; none if there is nothing to take: the earlier bytes are no region, another one, or had no samples.
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

/// A site keeps its frames for ever; in a region that does not, nothing is taken from another place.
fn same_place(one: &Site, other: &Site) -> bool {
    (one.depth, &one.frames) == (other.depth, &other.frames)
}

/// Leaves what was added, of each figure by itself.
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
