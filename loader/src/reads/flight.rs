//! One read under way: what is still to be read, and what its next result means. Engines make the system calls.

use super::ReadFault;
use super::delivery::Delivery;
use super::files::{Files, OpenShard};
use super::op::ReadOp;
use super::rules::{Progress, Verdict};
use crate::blocks::{Arena, BlocksError};
use rustix::io::Errno;
use shade_formats::checksum::crc32c_append;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most iovecs of one call (Linux' `UIO_MAXIOV`); a record in more pieces is read in several calls.
const IOVECS_MAX: usize = 1024;

/// What all reads share.
pub(super) struct Shared {
    pub(super) files: Files,
    pub(super) arena: Arc<Arena>,
    pub(super) delivery: Delivery,
}

/// A read between its submission and its completion. It owns its blocks all the while.
pub(super) struct Flight {
    pub(super) op: ReadOp,
    pub(super) submitted: Instant,
    /// When a simulated store would answer.
    pub(super) due: Option<Instant>,
    progress: Progress,
    file: Option<Arc<OpenShard>>,
}

/// What an engine does next with a flight.
pub(super) enum Step {
    /// Read what is missing from this file at this offset in bytes into [`Flight::buffers`].
    Read(Arc<OpenShard>, u64),
    /// The same after a wait: call [`Flight::next`] then.
    Wait(Duration),
    /// Deliver it.
    Done(Result<(), ReadFault>),
}

impl Flight {
    pub(super) fn new(op: ReadOp, submitted: Instant, due: Option<Instant>) -> Self {
        let seed = op.offset ^ (u64::from(op.sample.0) << 32);
        Self { progress: Progress::new(op.len, seed), op, submitted, due, file: None }
    }

    /// The next step, not knowing any new result: at the start and after a wait.
    pub(super) fn next(&mut self, shared: &Shared) -> Step {
        if self.op.len == 0 {
            return self.verify(shared);
        }
        let file = match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => shared.files.get(self.op.shard),
        };
        self.read_from(file)
    }

    /// The next step after a read that ended with `result`.
    pub(super) fn after(&mut self, result: Result<u32, Errno>, shared: &Shared) -> Step {
        let direct = self.file.as_ref().is_some_and(|file| file.direct_align_bytes.is_some());
        let verdict = self.progress.judge(result, self.align_bytes(), direct);
        self.follow(verdict, shared)
    }

    /// Where the missing bytes go: at most [`IOVECS_MAX`] slices, the last one ending at the record's end or,
    /// for direct reads, at the next aligned byte, which tar's padding covers.
    pub(super) fn buffers<'a>(
        &'a mut self,
        arena: &'a Arena,
    ) -> Result<impl Iterator<Item = &'a mut [u8]>, BlocksError> {
        let align_bytes = self.align_bytes();
        let mut skip = self.progress.resume(align_bytes) as usize;
        let end = self.op.len.checked_next_multiple_of(align_bytes).unwrap_or(self.op.len);
        let slices = arena.slices_mut(&mut self.op.blocks, end)?;
        Ok(slices
            .filter_map(move |slice| {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                slice.get_mut(skipped..).filter(|rest| !rest.is_empty())
            })
            .take(IOVECS_MAX))
    }

    fn align_bytes(&self) -> u32 {
        self.file.as_ref().map_or(1, |file| file.align_bytes())
    }

    fn follow(&mut self, verdict: Verdict, shared: &Shared) -> Step {
        match verdict {
            Verdict::Verify => self.verify(shared),
            Verdict::Again => self.next(shared),
            Verdict::After(wait) => Step::Wait(wait),
            Verdict::Reopen => {
                let file = match &self.file {
                    Some(stale) => shared.files.reopen(self.op.shard, stale),
                    None => shared.files.get(self.op.shard),
                };
                self.read_from(file)
            }
            Verdict::Buffer => {
                let file = shared.files.buffer(self.op.shard);
                self.read_from(file)
            }
            Verdict::Good => Step::Done(Ok(())),
            Verdict::Fail(fault) => Step::Done(Err(fault)),
        }
    }

    fn read_from(&mut self, file: Result<Arc<OpenShard>, ReadFault>) -> Step {
        match file {
            Ok(file) => {
                self.file = Some(Arc::clone(&file));
                let resume = self.progress.resume(file.align_bytes());
                Step::Read(file, self.op.offset.saturating_add(u64::from(resume)))
            }
            Err(fault) => Step::Done(Err(fault)),
        }
    }

    /// Every byte that came from the store is checked here, once, before anybody sees it.
    fn verify(&mut self, shared: &Shared) -> Step {
        let got = match shared.arena.slices(&self.op.blocks, self.op.len) {
            Ok(slices) => slices.fold(0, crc32c_append),
            Err(error) => return Step::Done(Err(error.into())),
        };
        let verdict = self.progress.judge_checksum(got, self.op.crc32c);
        if verdict == Verdict::Again {
            if self.op.len == 0 {
                // Nothing was read, so nothing would be read again.
                return Step::Done(Err(ReadFault::Checksum { got, expected: self.op.crc32c }));
            }
            let ReadOp { sample, shard, offset, .. } = self.op;
            tracing::warn!(%sample, %shard, offset, "checksum mismatch: reading the record again");
        }
        self.follow(verdict, shared)
    }
}
