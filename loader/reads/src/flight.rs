//! One read under way: what is still to be read, and what its next result means. Engines make the
//! system calls: [`Engine`] is the seam between what is read and how.
//!
//! A flight moves through an engine by value: to the kernel with [`Step::Read`], back with the
//! result. Code without the flight cannot touch its memory, so a buffer is never used before its
//! completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shade_dataset::{Attempt, Files, Next, OpenShard, Refusal};
use shade_formats::ShardId;
use shade_formats::limits::SPAN_BYTES_MAX;

use crate::ReadFault;
use crate::blocks::{Arena, Blocks, BlocksError};
use crate::gate::Gate;
use crate::land::{BouncePool, land, recheck};
use crate::op::{Completion, ReadOp};

/// Most iovecs of one call (Linux' `UIO_MAXIOV`); a record in more pieces is read in several calls.
const IOVECS_MAX: usize = 1024;

/// What all reads share.
pub(super) struct Shared {
    pub(super) files: Files,
    pub(super) arena: Arc<Arena>,
    pub(super) bounce: Option<BouncePool>,
    pub(super) gate: Gate,
    /// Flights so far.
    pub(super) flights: AtomicU64,
    /// Told why, if nothing can be read any more.
    pub(super) on_failure: Box<dyn Fn(String) + Send + Sync>,
}

impl Shared {
    fn give_back(&self, buffer: Blocks) {
        if let Some(pool) = &self.bounce {
            pool.give(buffer);
        }
    }
}

/// A read between its submission and its completion. It owns its memory all the while.
pub(super) struct Flight {
    /// Its place in the order of submissions.
    number: u64,
    cargo: Cargo,
    attempt: Attempt,
    /// When it first began.
    begun: Option<Instant>,
    /// Whether it holds a place of the gate's.
    has_place: bool,
}

/// What a flight brings.
enum Cargo {
    /// A record, straight into its blocks.
    Record(ReadOp),
    /// Records in the order of their offsets, through a buffer of the bounce pool.
    Neighbours(Vec<ReadOp>, Blocks),
}

/// What an engine does next with a flight.
pub(super) enum Step {
    /// Read what is missing from this file at this offset in bytes into [`Flight::buffers`].
    Read(Flight, Arc<OpenShard>, u64),
    /// It holds no place of the gate any more: begin it anew after a wait.
    Wait(Flight, Duration),
    /// It has ended: deliver its record.
    Done(Completion),
    /// It has ended: deliver these of its records, and read the others alone.
    Landed(Vec<Completion>, Vec<Flight>),
}

impl Flight {
    /// The read of one record.
    pub(super) fn record(op: ReadOp, shared: &Shared) -> Self {
        Self::numbered(op, shared.flights.fetch_add(1, Ordering::Relaxed))
    }

    /// A flight in the place of an earlier one.
    pub(super) fn numbered(op: ReadOp, number: u64) -> Self {
        let (shard, offset, len) = (op.shard, op.offset, op.len);
        Self::new(number, Cargo::Record(op), shard, offset, len)
    }

    /// One read of several records of a shard, in the order of their offsets; each on its own where
    /// they do not fit a buffer or none is free.
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
                let number = shared.flights.fetch_add(1, Ordering::Relaxed);
                vec![Self::new(number, Cargo::Neighbours(ops, buffer), shard, offset, len)]
            }
            _ => ops.into_iter().map(|op| Self::record(op, shared)).collect(),
        }
    }

    fn new(number: u64, cargo: Cargo, shard: ShardId, offset: u64, len: u32) -> Self {
        let attempt = Attempt::new(shard, offset, len.into());
        Self { number, cargo, attempt, begun: None, has_place: false }
    }

    /// Its place in the order of submissions.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the next step needs a file that is not open yet; takes it if it is.
    pub(super) fn needs_open(&mut self, shared: &Shared) -> bool {
        self.attempt.needs_open(&shared.files)
    }

    /// Gives the flight a place of the gate's. Call before [`next`](Self::next), at the start and
    /// after each wait.
    pub(super) fn begin(&mut self, now: Instant, shared: &Shared) {
        self.begun.get_or_insert(now);
        self.has_place = true;
        shared.gate.enter(now);
    }

    /// Gives the place back until the flight begins anew.
    pub(super) fn pause(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.has_place) {
            shared.gate.leave(None, self.attempt.take_failure());
        }
    }

    /// The next step, not knowing any new result: at the start and after a wait. Opens the shard if
    /// it is not open, which may take as long as a server takes.
    pub(super) fn next(mut self, now: Instant, shared: &Shared) -> Step {
        let next = self.attempt.next(now, &shared.files);
        self.follow(next, now, shared)
    }

    /// The next step after a read that ended with `result`.
    pub(super) fn after<E: Into<Refusal>>(
        mut self,
        result: Result<u64, E>,
        now: Instant,
        shared: &Shared,
    ) -> Step {
        let next = self.attempt.after(result.map_err(Into::into), now, &shared.files);
        self.follow(next, now, shared)
    }

    /// Ends a flight that must not go on.
    pub(super) fn stop(self, now: Instant, shared: &Shared) -> Vec<Completion> {
        self.cut(ReadFault::Stopped, now, shared)
    }

    /// Ends a flight as failed whose memory the kernel may still write to. That memory is never
    /// used again.
    pub(super) fn lose(mut self, now: Instant, shared: &Shared) -> Vec<Completion> {
        drop(match &mut self.cargo {
            Cargo::Record(op) => op.blocks.take(),
            Cargo::Neighbours(_, buffer) => buffer.take(),
        });
        self.cut(ReadFault::Failed { errno: Errno::CANCELED, tries: 1 }, now, shared)
    }

    /// Where the missing bytes go: at most [`IOVECS_MAX`] slices, the last one ending at the
    /// flight's end or, for direct reads, at the next aligned byte, which tar's padding covers.
    pub(super) fn buffers<'a>(
        &'a mut self,
        shared: &'a Shared,
    ) -> Result<impl Iterator<Item = &'a mut [u8]>, BlocksError> {
        let align_bytes = self.attempt.align_bytes();
        let mut skip = usize::try_from(self.attempt.resume()).unwrap_or(usize::MAX);
        let end = self.len().checked_next_multiple_of(align_bytes).unwrap_or(self.len());
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

    /// The shard that it reads.
    pub(super) fn shard(&self) -> ShardId {
        self.attempt.shard()
    }

    /// The shard, where the flight begins in it in bytes, and how many results there were: for the
    /// simulator.
    pub(super) fn attempt(&self) -> (ShardId, u64, u32) {
        (self.attempt.shard(), self.attempt.offset(), self.attempt.tried())
    }

    /// Bytes wanted that are not there yet.
    pub(super) fn missing(&self) -> u64 {
        self.attempt.wanted() - self.attempt.resume()
    }

    /// Bytes wanted.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.attempt.wanted()).unwrap_or(u32::MAX)
    }

    fn follow(mut self, next: Next, now: Instant, shared: &Shared) -> Step {
        match next {
            Next::Read(file, offset) => Step::Read(self, file, offset),
            // Outside the gate, so that other reads can go on.
            Next::Wait(wait) => {
                self.pause(shared);
                Step::Wait(self, wait)
            }
            Next::End(outcome) => self.end(outcome, now, shared),
        }
    }

    /// Ends the flight before its time: all its records have this fate.
    fn cut(mut self, fault: ReadFault, now: Instant, shared: &Shared) -> Vec<Completion> {
        let latency = self.latency(now);
        self.pause(shared);
        self.attempt.end(false, &shared.files);
        match self.cargo {
            Cargo::Record(op) => failed(vec![op], &fault, latency),
            Cargo::Neighbours(ops, buffer) => {
                shared.give_back(buffer);
                failed(ops, &fault, latency)
            }
        }
    }

    fn latency(&self, now: Instant) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun))
    }

    /// Ends the flight with what became of it.
    fn end(mut self, outcome: Result<(), ReadFault>, now: Instant, shared: &Shared) -> Step {
        let (latency, len) = (self.latency(now), self.len());
        if std::mem::take(&mut self.has_place) {
            // A read that had to be tried again says nothing about how fast the store is.
            let clean = outcome.is_ok() && self.attempt.tried() == 1;
            let failed = self.attempt.take_failure() || matches!(outcome, Err(ReadFault::Failed { .. }));
            shared.gate.leave(clean.then_some((latency, now)), failed);
        }
        self.attempt.end(outcome.is_ok(), &shared.files);
        match self.cargo {
            Cargo::Record(op) => {
                let mut outcome = outcome;
                // Where nobody knows the checksum of the whole, a worker compares those of parts.
                let checked = op.recheck && op.crc32c.is_some() && outcome.is_ok();
                if checked {
                    outcome = recheck(&op, self.attempt.file(), &shared.files, &shared.arena);
                }
                Step::Done(Completion { op, outcome, checked, latency })
            }
            Cargo::Neighbours(ops, buffer) => {
                let (done, again) = match (&outcome, &shared.bounce) {
                    // Each alone would only wait as long once more.
                    (Err(fault), _) if fault.is_not_the_record_s() => {
                        (failed(ops, fault, latency), Vec::new())
                    }
                    (Ok(()), Some(pool)) => {
                        let bytes = pool.bytes(&buffer, len).unwrap_or_default();
                        land(ops, bytes, self.attempt.offset(), latency, &shared.arena)
                    }
                    _ => (Vec::new(), ops),
                };
                shared.give_back(buffer);
                let again = again.into_iter().map(|op| Self::numbered(op, self.number));
                Step::Landed(done, again.collect())
            }
        }
    }
}

/// All of these end with `fault`.
fn failed(ops: Vec<ReadOp>, fault: &ReadFault, latency: Duration) -> Vec<Completion> {
    let end = |op| Completion { op, outcome: Err(fault.clone()), checked: false, latency };
    ops.into_iter().map(end).collect()
}

/// Carries out reads, as many at a time as the gate allows. When it is dropped, reads that have not
/// begun end as stopped, those that have begun are waited for, and its threads are joined. After
/// that no memory of the arena is in the kernel's hands.
pub(super) trait Engine: Send + Sync {
    /// Takes a flight; sooner or later its records are delivered.
    fn submit(&self, flight: Flight);

    /// The engine's name and the settings worth knowing.
    fn description(&self) -> String;
}
