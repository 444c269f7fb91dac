//! One read under way: what is still missing, from which file, and what it waits for. Its user
//! makes the system calls, in any thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shade_formats::ShardId;

use crate::fault::ReadFault;
use crate::files::{Files, Unopened};
use crate::refusal::Refusal;
use crate::rules::{ReadState, Trouble, Verdict, is_of_dead_file};
use crate::slots::OpenShard;

/// Wait for a descriptor while all open shards are being read: about as long as a read takes.
const FULL_WAIT: Duration = Duration::from_millis(1);
/// Longest wait that a store may ask for at a time.
const ASKED_WAIT_MAX: Duration = Duration::from_secs(5);
/// Trouble that lasts this long is logged.
const TROUBLE_TOLD_AFTER: Duration = Duration::from_millis(500);

/// The read of some bytes of a shard, from its beginning to its [end](Self::end).
#[derive(Debug)]
pub struct Attempt {
    shard: ShardId,
    /// Where it begins in the shard, in bytes.
    offset: u64,
    state: ReadState,
    file: Option<Arc<OpenShard>>,
    /// The file that went stale: another one is wanted.
    stale: Option<Arc<OpenShard>>,
    trouble: Option<Trouble>,
    /// Results so far.
    tried: u32,
}

/// The next step of a read.
#[derive(Debug)]
pub enum Next {
    /// Read what is missing from this file at this offset in bytes, and call [`Attempt::after`].
    Read(Arc<OpenShard>, u64),
    /// Call [`Attempt::next`] after a wait.
    Wait(Duration),
    /// It is over.
    End(Result<(), ReadFault>),
}

impl Attempt {
    /// The read of `len` bytes from `offset` on.
    #[must_use]
    pub fn new(shard: ShardId, offset: u64, len: u64) -> Self {
        let state = ReadState::new(len, offset ^ (u64::from(shard.0) << 40));
        Self { shard, offset, state, file: None, stale: None, trouble: None, tried: 0 }
    }

    /// The shard that it reads.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Where it begins in the shard, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Results so far.
    #[must_use]
    pub fn tried(&self) -> u32 {
        self.tried
    }

    /// Bytes wanted.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.state.wanted()
    }

    /// Bytes that are there.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.state.done()
    }

    /// The file that was read from last.
    #[must_use]
    pub fn file(&self) -> Option<&OpenShard> {
        self.file.as_deref()
    }

    /// What offsets and lengths must be multiples of, at least 1 byte.
    #[must_use]
    pub fn align_bytes(&self) -> u32 {
        self.file.as_ref().map_or(1, |file| file.align_bytes())
    }

    /// Where the next read begins, in bytes from the first one's start.
    #[must_use]
    pub fn resume(&self) -> u64 {
        self.state.resume(self.align_bytes())
    }

    /// Whether the device or server has failed it since the last call.
    pub fn take_failure(&mut self) -> bool {
        self.state.take_failure()
    }

    /// Whether the next step needs a file that is not open yet; takes it if it is.
    pub fn needs_open(&mut self, files: &Files) -> bool {
        if self.file.is_none() && self.wanted() > 0 {
            let is_stale =
                |open: &Arc<OpenShard>| self.stale.as_ref().is_some_and(|stale| Arc::ptr_eq(stale, open));
            self.file = files.opened(self.shard).filter(|open| !is_stale(open));
            return self.file.is_none();
        }
        false
    }

    /// The next step without a new result: at the start and after a wait. Opens the shard if it is
    /// not open, which may take as long as a server takes.
    pub fn next(&mut self, now: Instant, files: &Files) -> Next {
        if self.wanted() == 0 {
            return Next::End(Ok(()));
        }
        let file = match (&self.file, &self.stale) {
            (Some(file), _) => Ok(Arc::clone(file)),
            (None, Some(stale)) => files.reopen(self.shard, stale),
            (None, None) => files.get(self.shard),
        };
        self.read_from(file, now, files)
    }

    /// The next step after a read that ended with `result`, in bytes.
    pub fn after(&mut self, result: Result<u64, Refusal>, now: Instant, files: &Files) -> Next {
        self.tried += 1;
        let direct = self.file.as_ref().is_some_and(|file| file.is_direct());
        match self.state.judge(result, self.align_bytes(), direct) {
            Verdict::Again => {
                // Bytes came: what comes later is another trouble, with a patience of its own.
                self.end(true, files);
                self.next(now, files)
            }
            Verdict::After(wait) => Next::Wait(wait),
            Verdict::Reopen => {
                self.stale = self.file.take();
                // It goes on as if its shard were not open.
                Next::Wait(Duration::ZERO)
            }
            Verdict::Trouble(refusal) => {
                if matches!(refusal, Refusal::System(errno) if is_of_dead_file(errno)) {
                    self.stale = self.file.take();
                }
                let asked = refusal.wait();
                match files.refused(self.shard, refusal) {
                    Unopened::Fault(fault) => Next::End(Err(fault)),
                    Unopened::Trouble(fault) => match self.wait_for_store(fault, now, files) {
                        Next::Wait(wait) => {
                            Next::Wait(wait.max(asked.unwrap_or_default().min(ASKED_WAIT_MAX)))
                        }
                        next => next,
                    },
                    Unopened::Full => Next::Wait(FULL_WAIT),
                }
            }
            Verdict::Buffer => {
                let file = files.buffer(self.shard);
                self.read_from(file, now, files)
            }
            Verdict::Good => {
                files.answered();
                let check = |file: &Arc<OpenShard>| files.check_read(self.shard, file);
                Next::End(self.file.as_ref().map_or(Ok(()), check))
            }
            Verdict::Fail(fault) => Next::End(Err(files.in_place(self.shard, fault))),
        }
    }

    /// The read is over, or goes on well, and so its trouble is over, if it had any.
    pub fn end(&mut self, is_well: bool, files: &Files) {
        if self.trouble.take().is_some() {
            files.outage.end(is_well);
        }
    }

    fn read_from(&mut self, file: Result<Arc<OpenShard>, Unopened>, now: Instant, files: &Files) -> Next {
        match file {
            Ok(file) => {
                self.file = Some(Arc::clone(&file));
                self.stale = None;
                Next::Read(file, self.offset.saturating_add(self.resume()))
            }
            Err(Unopened::Full) => Next::Wait(FULL_WAIT),
            Err(Unopened::Trouble(fault)) => self.wait_for_store(fault, now, files),
            Err(Unopened::Fault(fault)) => Next::End(Err(fault)),
        }
    }

    /// Waits because of `fault`, or ends with it once it has lasted as long as the patience.
    fn wait_for_store(&mut self, fault: ReadFault, now: Instant, files: &Files) -> Next {
        let trouble = self.trouble.get_or_insert_with(|| {
            files.outage.begin();
            Trouble::begin(now)
        });
        files.outage.meet(&fault, now);
        let tried = trouble.tried(now);
        let Some(wait) = trouble.wait(now, files.patience) else {
            return Next::End(Err(fault.after(tried)));
        };
        if tried >= TROUBLE_TOLD_AFTER {
            files.outage.tell(&fault, files.patience);
        }
        Next::Wait(wait)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::files::tests::dataset;
    use crate::rules::PATIENCE;

    #[test]
    fn trouble_after_bytes_have_come_is_another_one() {
        let (_folder, files) = dataset(None);
        let began = Instant::now();
        let later = |patiences: u32| began + PATIENCE * patiences + Duration::from_secs(1);
        let mut attempt = Attempt::new(ShardId(0), 0, 1024);
        assert!(matches!(attempt.next(began, &files), Next::Read(..)));
        let trouble = |attempt: &mut Attempt, now| attempt.after(Err(Errno::ACCESS.into()), now, &files);
        assert!(matches!(trouble(&mut attempt, began), Next::Wait(_)));
        assert_eq!(files.trouble(began).map(|trouble| trouble.reads), Some(1));

        assert!(matches!(attempt.after(Ok(512), later(1), &files), Next::Read(..)));
        assert_eq!(files.trouble(later(1)), None);
        assert!(matches!(trouble(&mut attempt, later(1)), Next::Wait(_)));
        assert_eq!(files.trouble(later(1)).map(|trouble| trouble.reads), Some(1));
        // Without bytes it is the same one.
        assert!(matches!(trouble(&mut attempt, later(2)), Next::End(Err(_))));
        attempt.end(false, &files);
    }
}
