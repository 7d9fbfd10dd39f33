//! Parses the region of a process ([`neap_shared::sites`]). The contents are untrusted: a hostile
//! process may have written them.

use super::model::Figures;
use crate::failure::Failure;
use bytemuck::{Pod, Zeroable};
use neap_shared::sites::{self, Head, Site, objects, sane};

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
            all.push(Sampled {
                addresses: site.frames[..depth].to_vec(),
                figures,
            });
        }
    }
    Ok(all)
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
