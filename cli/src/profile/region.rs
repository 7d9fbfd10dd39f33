//! Parses the region of a process ([`neap_shared::sites`]), and takes the samples of a limited time
//! from two of its readings. The contents are untrusted: a hostile process may have written them.
//!
//! Allocated bytes and objects only grow, so their difference is what the time between two readings
//! allocated. For live objects, the region holds only the sum for each stack trace and does not say
//! which are old. Growth of the sum is live and new; if older objects were freed as well, the
//! session allocated more. A decrease is not an allocation of the session and is left out.

use super::model::{Extent, Figures, Frame, Profile, Switched};
use super::symbols::clean;
use crate::attach;
use crate::failure::Failure;
use bytemuck::{Pod, Zeroable};
use neap_shared::sites::{self, Head, Site, objects, sane};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A region's contents before symbolisation.
#[derive(Clone, Debug)]
pub struct Region {
    /// The PID.
    pub pid: u32,
    /// The head.
    pub head: Head,
    /// Lines of `/proc/PID/maps`.
    pub maps: String,
    /// The sites and their samples.
    pub sites: Vec<Sampled>,
    /// The Python functions that frames of the sites stand for.
    pub functions: Vec<Arc<Frame>>,
}

/// One site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Return addresses, innermost first; empty: the region had no room for the place.
    pub addresses: Vec<u64>,
    /// The site's allocations.
    pub figures: Figures,
}

impl Region {
    /// Parses a region.
    ///
    /// # Errors
    /// The bytes are no region, or one of another version, truncated or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let head = head(bytes)?;
        let count = usize::try_from(head.sites).unwrap_or(usize::MAX);
        if count > sites::MOST_SITES {
            return Err(damaged(&format!("it claims {count} sites")));
        }
        if bytes.len() < sites::site_at(count) {
            return Err(cut_short(bytes.len(), sites::site_at(count)));
        }
        Ok(Self {
            pid: u32::try_from(head.pid).map_err(|_| damaged("its process number is too large"))?,
            head,
            maps: maps(bytes, head.maps_bytes)?,
            sites: all_sites(bytes, count)?,
            functions: (1..count)
                .filter_map(|index| function(&record(bytes, sites::site_at(index))))
                .collect(),
        })
    }
}

/// The head of a region, checked to have room for its sites.
pub fn head(bytes: &[u8]) -> Result<Head, Failure> {
    if bytes.len() < sites::SITES_AT {
        return Err(cut_short(bytes.len(), sites::SITES_AT));
    }
    let head: Head = record(bytes, 0);
    match (head.magic, head.version) {
        (sites::MAGIC, sites::VERSION) => Ok(head),
        (sites::MAGIC, version) => Err(failure!(
            "the profile is of version {version} and this neap reads {}: use the neap that came \
             with the library",
            sites::VERSION
        )),
        _ => Err(damaged("it does not begin as one does")),
    }
}

/// The record at `at`, which lies within `bytes`.
pub fn record<T: Pod + Zeroable>(bytes: &[u8], at: usize) -> T {
    bytemuck::pod_read_unaligned(&bytes[at..at + size_of::<T>()])
}

fn maps(bytes: &[u8], length: u64) -> Result<String, Failure> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > sites::MAPS_BYTES {
        return Err(damaged("its list of mappings is too long"));
    }
    let text = &bytes[sites::MAPS_AT..sites::MAPS_AT + length];
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn all_sites(bytes: &[u8], count: usize) -> Result<Vec<Sampled>, Failure> {
    let mut all = Vec::with_capacity(count);
    for index in 0..count {
        let site: Site = record(bytes, sites::site_at(index));
        let depth = usize::try_from(site.depth).unwrap_or(usize::MAX);
        if depth > sites::FRAMES {
            return Err(damaged(&format!("site {index} claims {depth} frames")));
        }
        let written = depth > 0 || index == 0;
        let figures = figures(&site);
        if written && figures != Figures::default() {
            let mut addresses = site.frames[..depth].to_vec();
            // Python functions called the others.
            addresses.sort_by_key(|&frame| sites::is_python(frame));
            all.push(Sampled { addresses, figures });
        }
    }
    Ok(all)
}

/// The Python function that a site names.
fn function(site: &Site) -> Option<Arc<Frame>> {
    let (address, names, line) = site.function()?;
    let [function, file] = names.map(|name| clean(&name.collect::<String>()));
    Some(Arc::new(Frame {
        function,
        module: file.clone(),
        file,
        line,
        address,
        inlined: false,
    }))
}

fn figures(site: &Site) -> Figures {
    Figures {
        alloc_objects: objects(site.alloc_objects),
        alloc_bytes: sane(site.alloc_bytes),
        alloc_usable: sane(site.alloc_usable),
        live_objects: objects(site.live_objects),
        live_bytes: sane(site.live_bytes),
        live_usable: sane(site.live_usable),
    }
}

fn cut_short(found: usize, expected: usize) -> Failure {
    failure!("the profile is cut short: {found} bytes of {expected}")
}

fn damaged(why: &str) -> Failure {
    failure!("this is not a heap profile of Neap, or it is damaged: {why}")
}

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
    pub fn profile(self, pid: u32) -> Result<Profile, Failure> {
        let mut region = Region::parse(&self.later)?;
        let switched = self.switched(&region.head);
        let shrunk = subtract(&mut region, &self.session.earlier);
        let mut profile = Profile::named(&region, pid);
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
pub fn subtract(later: &mut Region, earlier: &[u8]) -> Option<u64> {
    let earlier = Region::parse(earlier).ok()?;
    let (now, then) = (&later.head, &earlier.head);
    if (now.pid, now.began_ms) != (then.pid, then.began_ms) || then.samples == 0 {
        return None;
    }
    let places = earlier.sites.iter();
    let before: HashMap<_, _> = places
        .map(|site| (&site.addresses, &site.figures))
        .collect();
    let mut shrunk = 0_u64;
    for site in &mut later.sites {
        if let Some(before) = before.get(&site.addresses) {
            let less = before.live_bytes.saturating_sub(site.figures.live_bytes);
            shrunk = shrunk.saturating_add(less);
            site.figures.subtract(before);
        }
    }
    later
        .sites
        .retain(|site| site.figures != Figures::default());
    Some(shrunk)
}

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
        let mut profile = Profile::named(&Region::parse(&bytes)?, pid);
        if is_same {
            profile.began_ms = self.taken_ms;
        }
        Ok(profile)
    }
}

fn allocated(site: &Site) -> [u64; 3] {
    [site.alloc_objects, site.alloc_bytes, site.alloc_usable]
}
