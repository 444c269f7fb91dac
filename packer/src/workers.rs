//! The worker threads of a command: one shard each at a time; the first failure ends all.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use shade_formats::ShardId;

use crate::error::Error;
use crate::interrupt::Stop;

/// A pool of threads.
#[derive(Debug)]
pub struct Workers(rayon::ThreadPool);

impl Workers {
    /// Starts `jobs` threads.
    ///
    /// # Errors
    /// The operating system refuses them.
    pub fn start(jobs: NonZeroUsize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.get()).build();
        pool.map(Self).map_err(|source| Error::Threads { jobs: jobs.get(), source })
    }

    /// Runs `work` so that rayon's iterators in it use these threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }

    /// Does `work` for each shard and gives the results in the shards' order, whichever was done first.
    ///
    /// # Errors
    /// The failure that came first. The others' work, which must look at `stop`, is then abandoned.
    pub fn each_shard<S: Sync, T: Send>(
        &self,
        shards: &[S],
        stop: &Stop,
        work: impl Fn(ShardId, &S) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let first = Mutex::new(None);
        let keep_first = |fault| {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
            stop.abandon();
        };
        let numbered: Vec<(ShardId, &S)> = (0u32..).map(ShardId).zip(shards).collect();
        let each = |(number, shard)| work(number, shard).map_err(keep_first);
        // Shards are large: each is a task of its own, so that no thread waits beside a queue.
        let tasks = || numbered.into_par_iter().with_max_len(1).map(each).collect();
        let done: Result<Vec<T>, ()> = self.install(tasks);
        let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.map_err(|()| first.unwrap_or(Error::Interrupted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_and_the_first_failure_ends_the_others() {
        let workers = Workers::start(NonZeroUsize::new(3).unwrap()).unwrap();
        let shards: Vec<u32> = (0..100).collect();
        let done =
            workers.each_shard(&shards, &Stop::default(), |shard, &value| Ok(shard.0 + value)).unwrap();
        assert_eq!(done, (0..100).map(|n| 2 * n).collect::<Vec<_>>());

        let stop = Stop::default();
        // As many shards as threads, so that the failing one is surely reached.
        let fault = workers.each_shard(&shards[..3], &stop, |shard, _| {
            if shard.0 == 1 {
                return Err(Error::Usage("one".into()));
            }
            // The others go on until they are told, as if their shards had no end.
            loop {
                stop.check()?;
                std::thread::yield_now();
            }
            #[expect(unreachable_code, reason = "gives the loop its type")]
            Ok(())
        });
        assert!(matches!(fault, Err(Error::Usage(text)) if text == "one"));
    }
}
