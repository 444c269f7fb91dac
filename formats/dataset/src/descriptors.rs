//! File descriptors: the process's limit, and which shards are closed when there are more shards
//! than descriptors.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shade_formats::limits::READS_DEPTH_MAX;

/// Least number of open shards, however few descriptors there are.
const OPEN_MIN: u64 = 8;
/// One descriptor in this many is for a shard, or a connection to an object store. The others are
/// for sessions (sockets, eventfds, memfds: about eight a rank), the ring and the log.
const SHARDS_PART: u64 = 2;

/// Raises the soft limit of this process's open files to the hard one. Most systems have a soft
/// limit of 1,024, for programs that use `select`; a dataset may have more shards than that.
pub fn raise_open_files_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If this fails, shards are closed earlier.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Connections to an object store that this process may have at a time: one for each request in
/// flight.
#[must_use]
pub fn connections_max() -> u32 {
    u32::try_from(open_max()).unwrap_or(u32::MAX).min(READS_DEPTH_MAX)
}

/// Shards that may be open at a time under this process's limit.
pub(crate) fn open_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((limit / SHARDS_PART).max(OPEN_MIN)).unwrap_or(usize::MAX)
}

/// The shards that have a descriptor. Second chance: a shard that was used since the last look
/// stays.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    open: Mutex<VecDeque<usize>>,
}

impl Descriptors {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    /// Gives `shard` a descriptor. If none is left, `close` is called for one shard after the other
    /// until one gives up its own; `false` if none does.
    pub(crate) fn take(&self, shard: usize, mut close: impl FnMut(usize) -> bool) -> bool {
        let mut open = self.lock();
        if open.len() < self.most {
            open.push_back(shard);
            return true;
        }
        // Twice: the first round clears the marks of recent use.
        for _ in 0..2 * open.len() {
            let Some(oldest) = open.pop_front() else { break };
            if close(oldest) {
                open.push_back(shard);
                return true;
            }
            open.push_back(oldest);
        }
        false
    }

    /// `shard` could not be opened: its descriptor is free.
    pub(crate) fn give(&self, shard: usize) {
        self.lock().retain(|open| *open != shard);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_gives_up_its_descriptor_is_replaced() {
        let descriptors = Descriptors::new(3);
        assert!((0..3).all(|shard| descriptors.take(shard, |_| panic!("there are enough"))));
        let mut asked = Vec::new();
        let taken = descriptors.take(3, |shard| {
            asked.push(shard);
            shard == 1
        });
        assert!(taken && asked == [0, 1], "{asked:?}");
        assert_eq!(*descriptors.lock(), [2, 0, 3]);
    }

    #[test]
    fn none_is_taken_from_shards_that_are_all_in_use() {
        let descriptors = Descriptors::new(2);
        assert!((0..2).all(|shard| descriptors.take(shard, |_| false)));
        let mut asked = 0;
        assert!(!descriptors.take(2, |_| {
            asked += 1;
            false
        }));
        assert_eq!((asked, descriptors.lock().len()), (4, 2));
        descriptors.give(0);
        assert!(descriptors.take(2, |_| false));
    }

    #[test]
    fn half_of_the_descriptors_is_for_shards() {
        assert!(open_max() >= 8);
        raise_open_files_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(u64::from(connections_max()), (open_max() as u64).min(u64::from(READS_DEPTH_MAX)));
        assert_eq!(open_max() as u64, limit.current.map_or(u64::MAX, |limit| (limit / 2).max(8)));
    }
}
