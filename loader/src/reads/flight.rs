//! One read under way: what is still to be read, and what its next result means. Engines make the system calls.
//!
//! A flight moves through an engine by value: into the kernel's hands with [`Step::Read`], back with the result. Who has
//! no flight cannot touch its memory, so a buffer is never used again before its completion.

use super::ReadFault;
use super::bounce::BouncePool;
use super::coalesce::SPAN_BYTES_MAX;
use super::files::{Files, OpenShard};
use super::gate::Gate;
use super::op::{Completion, ReadOp};
use super::rules::{Progress, Verdict};
use crate::blocks::{Arena, Blocks, BlocksError};
use rustix::io::Errno;
use shade_formats::ShardId;
use shade_formats::checksum::crc32c;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most iovecs of one call (Linux' `UIO_MAXIOV`); a record in more pieces is read in several calls.
const IOVECS_MAX: usize = 1024;

/// What all reads share.
pub(super) struct Shared {
    pub(super) files: Files,
    pub(super) arena: Arc<Arena>,
    pub(super) bounce: Option<BouncePool>,
    pub(super) gate: Gate,
}

/// A read between its submission and its completion. It owns its memory all the while.
pub(super) struct Flight {
    cargo: Cargo,
    shard: ShardId,
    /// Where it begins in the shard, in bytes.
    offset: u64,
    /// Bytes wanted.
    len: u32,
    progress: Progress,
    file: Option<Arc<OpenShard>>,
    begun: Option<Begun>,
    /// Results so far.
    tried: u32,
}

/// What a flight brings.
enum Cargo {
    /// A record, straight into its blocks.
    Record(ReadOp),
    /// Records in the order of their offsets, through a buffer of the bounce pool.
    Neighbours(Vec<ReadOp>, Blocks),
}

#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    /// Reads in flight then, this one included.
    in_flight: u32,
}

/// What an engine does next with a flight.
pub(super) enum Step {
    /// Read what is missing from this file at this offset in bytes into [`Flight::buffers`].
    Read(Flight, Arc<OpenShard>, u64),
    /// The same after a wait: call [`Flight::next`] then.
    Wait(Flight, Duration),
    /// It has ended: deliver its record.
    Done(Completion),
    /// It has ended: deliver these of its records, and read the others alone.
    Landed(Vec<Completion>, Vec<Flight>),
}

impl Flight {
    /// The read of one record.
    pub(super) fn record(op: ReadOp) -> Self {
        let (shard, offset, len) = (op.shard, op.offset, op.len);
        Self::new(Cargo::Record(op), shard, offset, len)
    }

    /// One read of several records of a shard, in the order of their offsets; each on its own where they do not fit a
    /// buffer or none is free.
    pub(super) fn neighbours(ops: Vec<ReadOp>, shared: &Shared) -> Vec<Self> {
        let bounds = match (ops.first(), ops.last()) {
            (Some(first), Some(last)) if ops.len() > 1 => {
                let end = last.offset.saturating_add(u64::from(last.len));
                Some((first.shard, first.offset, end.saturating_sub(first.offset)))
            }
            _ => None,
        };
        // A buffer has whole units of 512 bytes, so the last one of a direct read has room, too.
        let fitting = bounds.and_then(|(shard, offset, len)| {
            let len = u32::try_from(len).ok().filter(|len| *len <= SPAN_BYTES_MAX)?;
            Some((shard, offset, len))
        });
        let buffer = fitting.and_then(|_| shared.bounce.as_ref()?.take());
        match (fitting, buffer) {
            (Some((shard, offset, len)), Some(buffer)) => {
                vec![Self::new(Cargo::Neighbours(ops, buffer), shard, offset, len)]
            }
            _ => ops.into_iter().map(Self::record).collect(),
        }
    }

    fn new(cargo: Cargo, shard: ShardId, offset: u64, len: u32) -> Self {
        let seed = offset ^ (u64::from(shard.0) << 40);
        let progress = Progress::new(len, seed);
        Self { cargo, shard, offset, len, progress, file: None, begun: None, tried: 0 }
    }

    /// Whether the next step needs a file that is not open yet; takes it if it is.
    pub(super) fn needs_open(&mut self, shared: &Shared) -> bool {
        if self.file.is_none() && self.len > 0 {
            self.file = shared.files.opened(self.shard);
            return self.file.is_none();
        }
        false
    }

    /// Counts the flight as one in flight, from `now` on. Call once, before the first [`next`](Self::next).
    pub(super) fn begin(&mut self, now: Instant, shared: &Shared) {
        self.begun = Some(Begun { at: now, in_flight: shared.gate.enter() });
    }

    /// The next step, not knowing any new result: at the start and after a wait. Opens the shard if it is not open, which
    /// may take as long as a server takes.
    pub(super) fn next(self, now: Instant, shared: &Shared) -> Step {
        if self.len == 0 {
            return self.end(Ok(()), now, shared);
        }
        let file = match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => shared.files.get(self.shard),
        };
        self.read_from(file, now, shared)
    }

    /// The next step after a read that ended with `result`.
    pub(super) fn after(mut self, result: Result<u32, Errno>, now: Instant, shared: &Shared) -> Step {
        self.tried += 1;
        let direct = self.file.as_ref().is_some_and(|file| file.direct_align_bytes.is_some());
        let verdict = self.progress.judge(result, self.align_bytes(), direct);
        self.follow(verdict, now, shared)
    }

    /// Ends a flight that is not to go on.
    pub(super) fn stop(self, now: Instant, shared: &Shared) -> Vec<Completion> {
        self.cut(ReadFault::Stopped, now, shared)
    }

    /// Ends a flight whose memory the kernel may still write to: whoever waits learns that it failed, and nobody gets the
    /// memory again.
    pub(super) fn lose(mut self, now: Instant, shared: &Shared) -> Vec<Completion> {
        drop(match &mut self.cargo {
            Cargo::Record(op) => op.blocks.take(),
            Cargo::Neighbours(_, buffer) => buffer.take(),
        });
        self.cut(ReadFault::Failed { errno: Errno::CANCELED, tries: 1 }, now, shared)
    }

    /// Where the missing bytes go: at most [`IOVECS_MAX`] slices, the last one ending at the flight's end or, for direct
    /// reads, at the next aligned byte, which tar's padding covers.
    pub(super) fn buffers<'a>(
        &'a mut self,
        shared: &'a Shared,
    ) -> Result<impl Iterator<Item = &'a mut [u8]>, BlocksError> {
        let align_bytes = self.align_bytes();
        let mut skip = self.progress.resume(align_bytes) as usize;
        let end = self.len.checked_next_multiple_of(align_bytes).unwrap_or(self.len);
        let (arena, blocks) = match &mut self.cargo {
            Cargo::Record(op) => (&*shared.arena, &mut op.blocks),
            Cargo::Neighbours(_, buffer) => {
                (shared.bounce.as_ref().map_or(&*shared.arena, BouncePool::arena), buffer)
            }
        };
        Ok(arena
            .slices_mut(blocks, end)?
            .filter_map(move |slice| {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                slice.get_mut(skipped..).filter(|rest| !rest.is_empty())
            })
            .take(IOVECS_MAX))
    }

    /// Ends it after memory that does not fit it: a mistake in this program.
    pub(super) fn misfit(self, error: BlocksError, now: Instant, shared: &Shared) -> Step {
        self.end(Err(error.into()), now, shared)
    }

    /// The shard, where the flight begins in it in bytes, and how many results there were: for the simulator.
    pub(super) fn place(&self) -> (ShardId, u64, u32) {
        (self.shard, self.offset, self.tried)
    }

    /// Bytes wanted.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    fn align_bytes(&self) -> u32 {
        self.file.as_ref().map_or(1, |file| file.align_bytes())
    }

    fn follow(mut self, verdict: Verdict, now: Instant, shared: &Shared) -> Step {
        match verdict {
            Verdict::Again => self.next(now, shared),
            Verdict::After(wait) => Step::Wait(self, wait),
            Verdict::Reopen => {
                let file = match self.file.take() {
                    Some(stale) => shared.files.reopen(self.shard, &stale),
                    None => shared.files.get(self.shard),
                };
                self.read_from(file, now, shared)
            }
            Verdict::Buffer => {
                let file = shared.files.buffer(self.shard);
                self.read_from(file, now, shared)
            }
            Verdict::Good => self.end(Ok(()), now, shared),
            Verdict::Fail(fault) => self.end(Err(fault), now, shared),
        }
    }

    fn read_from(mut self, file: Result<Arc<OpenShard>, ReadFault>, now: Instant, shared: &Shared) -> Step {
        match file {
            Ok(file) => {
                self.file = Some(Arc::clone(&file));
                let resume = self.progress.resume(file.align_bytes());
                let offset = self.offset.saturating_add(u64::from(resume));
                Step::Read(self, file, offset)
            }
            Err(fault) => self.end(Err(fault), now, shared),
        }
    }

    /// Ends the flight before its time: all its records have this fate.
    fn cut(self, fault: ReadFault, now: Instant, shared: &Shared) -> Vec<Completion> {
        let latency = self.latency(now);
        if let Some(begun) = self.begun {
            shared.gate.leave(begun.in_flight, None, false);
        }
        let end = |op| Completion { op, outcome: Err(fault.clone()), checked: false, latency };
        match self.cargo {
            Cargo::Record(op) => vec![end(op)],
            Cargo::Neighbours(ops, buffer) => {
                if let Some(pool) = &shared.bounce {
                    pool.give(buffer);
                }
                ops.into_iter().map(end).collect()
            }
        }
    }

    fn latency(&self, now: Instant) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun.at))
    }

    /// Ends the flight with what became of it.
    fn end(self, outcome: Result<(), ReadFault>, now: Instant, shared: &Shared) -> Step {
        let latency = self.latency(now);
        if let Some(begun) = self.begun {
            // A read that had to be tried again says nothing about how fast the store is.
            let clean = outcome.is_ok() && self.tried == 1;
            let failed = self.progress.failed() || matches!(outcome, Err(ReadFault::Failed { .. }));
            shared.gate.leave(begun.in_flight, clean.then_some(latency), failed);
        }
        match self.cargo {
            Cargo::Record(op) => Step::Done(Completion { op, outcome, checked: false, latency }),
            Cargo::Neighbours(ops, buffer) => {
                let bytes = match (&outcome, &shared.bounce) {
                    (Ok(()), Some(pool)) => pool.bytes(&buffer, self.len).unwrap_or_default(),
                    _ => Default::default(),
                };
                let step = land(ops, bytes, self.offset, latency, &shared.arena);
                if let Some(pool) = &shared.bounce {
                    pool.give(buffer);
                }
                step
            }
        }
    }
}

/// Copies neighbours out of the bytes that begin at `start` of their shard. Those that are not there, or not right, are to
/// be read alone, so that each gets the fate of its own.
fn land(ops: Vec<ReadOp>, bytes: &[u8], start: u64, latency: Duration, arena: &Arena) -> Step {
    let (mut done, mut again) = (Vec::with_capacity(ops.len()), Vec::new());
    for mut op in ops {
        let from = usize::try_from(op.offset.saturating_sub(start)).unwrap_or(usize::MAX);
        match bytes.get(from..from.saturating_add(op.len as usize)) {
            Some(record) if crc32c(record) == op.crc32c && copy(record, &mut op, arena).is_ok() => {
                done.push(Completion { op, outcome: Ok(()), checked: true, latency });
            }
            Some(_) => {
                let ReadOp { sample, shard, offset, .. } = &op;
                tracing::debug!(%sample, %shard, offset, "checksum mismatch: reading the record again, alone");
                again.push(Flight::record(op));
            }
            None => again.push(Flight::record(op)),
        }
    }
    Step::Landed(done, again)
}

fn copy(record: &[u8], op: &mut ReadOp, arena: &Arena) -> Result<(), BlocksError> {
    let mut rest = record;
    for slice in arena.slices_mut(&mut op.blocks, op.len)? {
        let Some((now, later)) = rest.split_at_checked(slice.len()) else { break };
        slice.copy_from_slice(now);
        rest = later;
    }
    Ok(())
}
