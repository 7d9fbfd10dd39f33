//! Reads the region of a process's profile.

use super::process::Process;
use super::reach::{Kind, Reach};
use crate::failure::Failure;
use neap_shared::sites::{self, Head};
use std::mem::offset_of;
use std::os::fd::OwnedFd;

/// The memory file.
const KIND: Kind = Kind {
    name: sites::NAME,
    bytes: sites::BYTES as u64,
};

/// A memory file with the head of a region.
#[derive(Debug)]
pub struct Region {
    reach: Reach,
    pid: u64,
}

impl Region {
    /// The region of a process.
    ///
    /// # Errors
    ///
    /// The process has never sampled, or the same as for [`Region::find`].
    pub fn open(pid: i32) -> Result<Region, Failure> {
        let process = Process::open(pid)?;
        Region::of_process(&process)?.ok_or_else(|| {
            failure!(
                "{} does not sample: start it with neap run --profile, or switch it on with neap \
                 profile",
                process.title()
            )
        })
    }

    /// The region of a process, or `None` if it has never sampled.
    ///
    /// # Errors
    ///
    /// The same as for [`super::StatusPage::open`], or its region is malformed.
    pub fn find(pid: i32) -> Result<Option<Region>, Failure> {
        Region::of_process(&Process::open(pid)?)
    }

    fn of_process(process: &Process) -> Result<Option<Region>, Failure> {
        let numbers = process.numbers();
        let (mut newest, mut fault): (Option<(u64, Reach)>, _) = (None, None);
        for reach in Reach::all(process, KIND)? {
            match head(&reach) {
                Ok(head) if !numbers.contains(&head.pid) => {}
                Ok(head) if newest.as_ref().is_some_and(|(ms, _)| *ms > head.changed_ms) => {}
                Ok(head) => newest = Some((head.changed_ms, reach)),
                Err(failure) => fault = Some(failure),
            }
        }
        let pid = u64::from(process.pid().unsigned_abs());
        match (newest, fault) {
            (Some((_, reach)), _) => Ok(Some(Region { reach, pid })),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }

    /// The region behind a descriptor that a process has sent.
    pub fn of_descriptor(descriptor: OwnedFd) -> Result<Region, Failure> {
        let reach = Reach::of_descriptor(descriptor, KIND)?;
        let pid = head(&reach)?.pid;
        Ok(Region { reach, pid })
    }

    /// Its current head.
    pub fn head(&self) -> Result<Head, Failure> {
        head(&self.reach)
    }

    /// The region's bytes, up to the last site in use: at most [`sites::BYTES`].
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        let head = self.head()?;
        let used = usize::try_from(head.sites).unwrap_or(usize::MAX);
        let mut bytes = vec![0; sites::site_at(used.min(sites::MOST_SITES))];
        self.reach.read(0, &mut bytes).map_err(|error| {
            failure!(
                "the profile of process {} cannot be read: {error}",
                self.pid
            )
        })?;
        leave_out_later_sites(&mut bytes, head.sites);
        Ok(bytes)
    }
}

/// The process may have added a site since `sites` was read. Limits the head of the copy to the
/// sites that were read.
fn leave_out_later_sites(bytes: &mut [u8], sites: u64) {
    let at = offset_of!(Head, sites);
    let word = &mut bytes[at..at + size_of::<u64>()];
    let now = bytemuck::pod_read_unaligned::<u64>(word);
    word.copy_from_slice(&now.min(sites).to_ne_bytes());
}

fn head(reach: &Reach) -> Result<Head, Failure> {
    let expected = [sites::MAGIC, sites::VERSION, sites::BYTES as u64];
    let head = reach.head(0, expected, |head: &Head| {
        [head.magic, head.version, head.bytes]
    });
    head.map_err(|why| failure!("a profile's region {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;

    #[test]
    fn as_much_is_read_as_there_is() {
        let forged = Forged::profile();
        assert_eq!(forged.region().read().unwrap().len(), sites::site_at(1));
        let sites_word = std::mem::offset_of!(Head, sites);
        forged.write(sites_word, &[0xff; 8]);
        let most = sites::site_at(sites::MOST_SITES);
        assert_eq!(forged.region().read().unwrap().len(), most);
    }

    #[test]
    fn sites_that_came_while_it_was_read_are_left_out() {
        let mut bytes = vec![0; sites::SITES_AT];
        let sites_of =
            |bytes: &[u8]| bytemuck::pod_read_unaligned::<Head>(&bytes[..size_of::<Head>()]).sites;
        for (now, before, kept) in [(8, 7, 7), (7, 7, 7), (u64::MAX, u64::MAX, u64::MAX)] {
            let at = offset_of!(Head, sites);
            bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(now));
            leave_out_later_sites(&mut bytes, before);
            assert_eq!(sites_of(&bytes), kept);
        }
    }

    #[test]
    fn files_that_are_no_regions_are_refused() {
        for (at, why) in [(0, "first word"), (8, "layout 9"), (16, "9 bytes")] {
            let forged = Forged::profile();
            forged.write(at, &9_u64.to_ne_bytes());
            let failure = Region::of_descriptor(forged.descriptor()).unwrap_err();
            assert!(failure.to_string().contains(why), "{failure}");
        }
        let status_page = Forged::status_page();
        assert!(Region::of_descriptor(status_page.descriptor()).is_err());
    }
}
