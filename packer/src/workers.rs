//! The threads of a command; the first failure ends all.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use shade_images::caught;

use crate::error::Error;
use crate::interrupt::{Stop, lock};

/// A pool of threads.
#[derive(Debug)]
pub struct Workers(rayon::ThreadPool);

/// Keeps the failure that came first, and has the other threads stop.
struct First<'a> {
    fault: Mutex<Option<Error>>,
    stop: &'a Stop,
}

impl Workers {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The operating system refuses them.
    pub fn start(threads: NonZeroUsize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build();
        pool.map(Self).map_err(|source| Error::Threads { threads: threads.get(), source })
    }

    /// Runs `work` so that rayon's iterators in it use these threads.
    pub(crate) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }

    /// Runs `work` on every thread at once.
    ///
    /// # Errors
    /// The failure that came first. The others' work, which must look at `stop`, is then abandoned.
    pub(crate) fn all(&self, stop: &Stop, work: impl Fn() -> Result<(), Error> + Sync) -> Result<(), Error> {
        let first = First { fault: Mutex::new(None), stop };
        let done = self.0.broadcast(|_| guarded(&work).map_err(|fault| first.keep(fault)));
        first.result(done.into_iter().collect())
    }

    /// Does `work` for each task and gives the results in the tasks' order.
    pub(crate) fn each<S: Sync, T: Send>(
        &self,
        tasks: &[S],
        stop: &Stop,
        work: impl Fn(&S) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let first = First { fault: Mutex::new(None), stop };
        let each = |task| {
            let done = stop.check().and_then(|()| guarded(|| work(task)));
            done.map_err(|fault| first.keep(fault))
        };
        // Tasks are large: each is handed out by itself, so that no thread waits beside a queue.
        let run = || tasks.par_iter().with_max_len(1).map(each).collect();
        let done = self.install(run);
        first.result(done)
    }
}

/// Does `work`. A panic of it becomes the command's failure, which gives up its files as any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    caught(work).unwrap_or_else(|text| Err(Error::Defect(text)))
}

impl First<'_> {
    fn keep(&self, fault: Error) {
        lock(&self.fault).get_or_insert(fault);
        self.stop.abandon();
    }

    fn result<T>(self, done: Result<T, ()>) -> Result<T, Error> {
        let first = self.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.map_err(|()| first.unwrap_or(Error::Interrupted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_and_the_first_failure_ends_the_others() {
        let workers = Workers::start(NonZeroUsize::new(3).unwrap()).unwrap();
        let tasks: Vec<u32> = (0..100).collect();
        let done = workers.each(&tasks, &Stop::default(), |&task| Ok(2 * task)).unwrap();
        assert_eq!(done, (0..100).map(|n| 2 * n).collect::<Vec<_>>());

        let stop = Stop::default();
        // As many tasks as threads, so that the failing one is surely reached.
        let fault = workers.each(&tasks[..3], &stop, |&task| {
            if task == 1 {
                return Err(Error::Usage("one".into()));
            }
            // The others go on until they are told, as if their tasks had no end.
            loop {
                stop.check()?;
                std::thread::yield_now();
            }
            #[expect(unreachable_code, reason = "gives the loop its type")]
            Ok(())
        });
        assert!(matches!(fault, Err(Error::Usage(text)) if text == "one"));
    }

    #[test]
    fn a_panic_of_a_thread_is_the_failure() {
        let workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let of_each =
            workers.each(&[1, 2], &Stop::default(), |&task| -> Result<(), _> { panic!("task {task}") });
        assert!(matches!(&of_each, Err(Error::Defect(text)) if text.starts_with("task ")), "{of_each:?}");
        let of_all = workers.all(&Stop::default(), || panic!("all"));
        assert!(matches!(&of_all, Err(Error::Defect(text)) if text.starts_with("all ")), "{of_all:?}");
    }
}
