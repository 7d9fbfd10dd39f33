//! Successive profiles: each has what was allocated since the one before, and everything that is
//! live.

use super::model::Profile;
use super::region::{Region, head, record};
use super::session::now_ms;
use crate::failure::Failure;
use neap_shared::sites::{self, Site};

/// A region's allocations at one moment, from which the next profile counts.
#[derive(Clone)]
pub struct Base {
    began_ms: u64,
    taken_ms: u64,
    /// Objects, bytes and usable bytes, site by site.
    allocated: Vec<[u64; 3]>,
}

impl Base {
    /// The allocations in the bytes of a region.
    ///
    /// # Errors
    /// The bytes are no region, or one of another version.
    pub fn of(bytes: &[u8]) -> Result<Self, Failure> {
        let began_ms = head(bytes)?.began_ms;
        let sites = (0..).map(sites::site_at);
        let whole = sites.take_while(|at| at + size_of::<Site>() <= bytes.len());
        Ok(Self {
            began_ms,
            taken_ms: now_ms(),
            allocated: whole.map(|at| allocated(&record(bytes, at))).collect(),
        })
    }

    /// The base before the region's first allocation, if the region began after `ms` (since 1970).
    pub fn beginning_after(&self, ms: u64) -> Option<Self> {
        (self.began_ms > ms).then(|| Self {
            taken_ms: self.began_ms,
            allocated: vec![],
            ..*self
        })
    }

    /// The profile in the bytes of a region, with the allocations since this base. A region that
    /// began later has nothing in common with it.
    ///
    /// # Errors
    /// The bytes are no region, or damaged.
    pub fn profile(&self, mut bytes: Vec<u8>, pid: u32) -> Result<Profile, Failure> {
        let is_same = head(&bytes)?.began_ms == self.began_ms;
        for (index, before) in self.allocated.iter().enumerate().filter(|_| is_same) {
            let place = sites::site_at(index)..sites::site_at(index + 1);
            if let Some(place) = bytes.get_mut(place) {
                let mut site: Site = record(place, 0);
                let now = allocated(&site);
                let since = [0, 1, 2].map(|word| now[word].saturating_sub(before[word]));
                [site.alloc_objects, site.alloc_bytes, site.alloc_usable] = since;
                place.copy_from_slice(bytemuck::bytes_of(&site));
            }
        }
        let profile = Profile::named(&Region::parse(&bytes)?, pid);
        Ok(match is_same {
            true => Profile {
                began_ms: self.taken_ms,
                ..profile
            },
            false => profile,
        })
    }
}

fn allocated(site: &Site) -> [u64; 3] {
    [site.alloc_objects, site.alloc_bytes, site.alloc_usable]
}
