//! Decompresses gzip, up to a limit.

use crate::failure::Failure;
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::io::Read;

/// Most bytes of an unpacked file; the profile of 32,768 stacks has about six million.
pub const MOST: usize = 64 << 20;

pub const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The unpacked bytes of a file, which may be compressed or not.
pub fn unzip(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Failure> {
    if !bytes.starts_with(&GZIP) {
        return within(bytes.len()).map(|()| Cow::Borrowed(bytes));
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(MOST as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|error| failure!("the profile is damaged or cut short: {error}"))?;
    within(plain.len()).map(|()| Cow::Owned(plain))
}

fn within(length: usize) -> Result<(), Failure> {
    match length {
        0 => Err(failure!("the profile is empty")),
        1..=MOST => Ok(()),
        _ => Err(failure!(
            "the profile has over {} MiB once unpacked: neap reads no larger ones",
            MOST >> 20
        )),
    }
}
