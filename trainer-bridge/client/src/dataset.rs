//! A packed dataset's files, read by the trainer's process without the daemon.
//!
//! [`Shards`] reads spans of shards and is safe after a `fork`. [`read_together`] does many reads
//! at once on several threads, which hides a distant store's latency.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shade_dataset::{Files, IsStopped, ReadFault, ReadMemory};
use shade_formats::ShardId;
use shade_formats::index::Index;

use crate::ClientError;
use crate::fork::{Owner, lock};

/// The files of a dataset's shards, opened when first read.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Arc<Files>,
    owner: Owner,
}

impl Shards {
    /// The shards in `folder`. `direct` reads past the page cache where the file system allows.
    ///
    /// Choose what the daemon does. On NFS buffered and direct reads of one file wait for each
    /// other, as the client empties the file's page cache between them.
    pub(crate) fn new(folder: &Path, index: &Arc<Index>, direct: bool) -> Self {
        let files = Arc::new(Files::new(folder, Arc::clone(index), direct));
        Self { files, owner: Owner::here() }
    }

    /// The bytes `range` of a shard. Waits for a store to recover unless `is_stopped`.
    pub(crate) fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
        is_stopped: IsStopped<'_>,
    ) -> Result<&'m [u8], ReadFault> {
        match self.files.read(shard, range, memory, is_stopped) {
            (bytes, None) => Ok(bytes),
            (_, Some(fault)) => Err(fault),
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        // Another thread may have been opening a file during the fork: a child does not touch the
        // files.
        if !self.owner.is_here() {
            Box::leak(Box::new(Arc::clone(&self.files)));
        }
    }
}

/// Threads that read for one call, including the caller's.
const THREADS_MAX: usize = 16;

/// The results of `read` for each of `wanted`, in their order. `state` makes a state for each
/// thread, such as a buffer. The first failure ends all. The first by position is returned, so that
/// equal damage usually gives equal messages.
pub(crate) fn read_together<W: Sync, S, T: Send>(
    wanted: &[W],
    state: impl Fn() -> S + Sync,
    read: impl Fn(&W, &mut S) -> Result<T, ClientError> + Sync,
) -> Result<Vec<T>, ClientError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let first: Mutex<Option<(usize, ClientError)>> = Mutex::default();
    let work = || {
        let mut state = state();
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(wanted) = wanted.get(position) else { break };
            match read(wanted, &mut state) {
                Ok(made) => done.push((position, made)),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = lock(&first);
                    if first.as_ref().is_none_or(|(earlier, _)| position < *earlier) {
                        *first = Some((position, error));
                    }
                }
            }
        }
        done
    };
    let mut all = std::thread::scope(|scope| {
        // If the system gives no more threads, the existing ones do all.
        let helpers: Vec<_> = (1..wanted.len().min(THREADS_MAX))
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut all = work();
        for helper in helpers {
            all.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    if let Some((_, error)) = lock(&first).take() {
        return Err(error);
    }
    all.sort_unstable_by_key(|(position, _)| *position);
    Ok(all.into_iter().map(|(_, made)| made).collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn refused(position: u32) -> ClientError {
        ClientError::Record { text: position.to_string() }
    }

    #[test]
    fn answers_come_in_the_order_of_what_was_wanted() {
        for count in [0, 1, 2, 15, 16, 17, 1000] {
            let wanted: Vec<u32> = (0..count).rev().collect();
            let twice = read_together(&wanted, || (), |number, ()| Ok(number * 2)).unwrap();
            assert_eq!(twice, wanted.iter().map(|number| number * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_is_told_and_ends_the_rest() {
        let wanted: Vec<u32> = (0..100_000).collect();
        let tried = AtomicUsize::new(0);
        let outcome = read_together(
            &wanted,
            || (),
            |number, ()| {
                tried.fetch_add(1, Ordering::Relaxed);
                if *number == 3 { Err(refused(*number)) } else { Ok(()) }
            },
        );
        assert_eq!(outcome.unwrap_err().to_string(), "3");
        assert!(tried.into_inner() < wanted.len(), "all were tried");
    }

    #[test]
    fn of_several_failures_the_first_by_position_is_told() {
        let others = AtomicUsize::new(0);
        let begun = Instant::now();
        let outcome = read_together(
            &[0, 1],
            || (),
            |number, ()| {
                if *number == 0 {
                    // The other one's failure comes first; without a second thread it would never
                    // come.
                    while others.load(Ordering::Relaxed) == 0 && begun.elapsed() < Duration::from_secs(30) {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                } else {
                    others.fetch_add(1, Ordering::Relaxed);
                }
                Err::<(), _>(refused(*number))
            },
        );
        assert_eq!((outcome.unwrap_err().to_string().as_str(), others.into_inner()), ("0", 1));
    }
}
