//! The words in which the daemon's workers say what they do, from both ends.

use shade_formats::ring::{WORKING, WORKING_MAX, Working};

use crate::Region;

const WORDS_PER_LINE: usize = 8;
/// Cache lines that the words take.
const LINES: usize = WORKING_MAX / WORDS_PER_LINE;
const _: () = assert!(WORKING_MAX.is_multiple_of(WORDS_PER_LINE));

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

/// The first workers have a cache line each: they write at every row.
fn place_of(worker: usize) -> Option<u64> {
    let word = worker % LINES * WORDS_PER_LINE + worker / LINES;
    (worker < WORKING_MAX).then_some(WORKING + word as u64 * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_word_of_its_own_and_the_first_ones_a_line() {
        let places: Vec<u64> = (0..WORKING_MAX).filter_map(place_of).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let all: Vec<u64> = (0..WORKING_MAX as u64).map(|word| WORKING + word * 8).collect();
        assert_eq!(sorted, all);
        assert_eq!(place_of(WORKING_MAX), None);
        let mut lines: Vec<u64> = places.iter().take(LINES).map(|place| place / 64).collect();
        lines.dedup();
        assert_eq!(lines.len(), LINES);
    }
}
