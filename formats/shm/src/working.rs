//! The words in which the daemon's workers say what they do, from both ends.

use shade_formats::ring::{WORKING, WORKING_MAX, Working};

use crate::Region;

/// The words of one ring, for the daemon's workers.
#[derive(Clone, Debug)]
pub struct WorkBoard {
    daemon: Region,
}

impl WorkBoard {
    pub(crate) fn new(daemon: Region) -> Self {
        Self { daemon }
    }

    /// Writes the word of worker number `worker`, if it has one.
    pub fn write(&self, worker: usize, word: u64) {
        if let Some(at) = place_of(worker) {
            // Within the segment and aligned, as `layout.rs` asserts: this cannot fail.
            let _ = self.daemon.store_u64(at, word);
        }
    }
}

/// The words that are not 0.
pub(crate) fn read(daemon: &Region, samples: u32) -> Vec<Working> {
    let words = (0..WORKING_MAX).filter_map(|worker| daemon.load_u64(place_of(worker)?).ok());
    words.filter_map(|word| Working::of(word, samples)).collect()
}

fn place_of(worker: usize) -> Option<u64> {
    (worker < WORKING_MAX).then_some(WORKING + worker as u64 * 8)
}
