//! The stage `slice`: which position of the plan is in which batch of which rank.
//!
//! Global batch k is the positions `[k·B·W, (k+1)·B·W)` of the plan. Rank r of W takes the
//! positions p with p mod W = r. If some rank would then have a sample twice, the draws of the
//! global batch are sorted by sample and dealt to the ranks in turn. After that no rank has a
//! sample twice unless the global batch has it more than W times. Each rank keeps its rows in the
//! plan's order. Either way the ranks of one global batch together have exactly its positions, and
//! all ranks have the same number of batches.
//!
//! With several strata nothing is dealt: a sample stays at its rank, where its repeats are many
//! rows apart.
//!
//! The tail, where the plan's length is not a multiple of B·W and m positions remain:
//! - `drop`: they are not delivered.
//! - `pad`: the last batch is filled up from the epoch's first positions, repeatedly if need be;
//!   those rows are marked as padding. With several strata each position takes one of its own.
//! - `even`: the last global batch is short; its ranks differ by at most one row. If m < W some
//!   rank would have none, so the last two global batches share their B·W + m positions as B·W - W
//!   and m + W. Where that cannot help (B = 1, or the plan is shorter than W) the short batch is
//!   padded to one row a rank. No batch is planned empty. For a batch whose rows are all skipped
//!   see `bad_share`.
//!
//! An epoch that was begun with another B or W goes on from an [`Origin`]: all positions before it
//! are delivered. Batches are counted from there, and the rest of the plan is divided as above.

use std::ops::Range;

use shade_job::Tail;

use crate::number::to_u32;

/// Where the batches of an epoch begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The first position that is still to be delivered.
    pub position: u32,
    /// Number of the batch that begins there.
    pub batch: u32,
}

/// Parameters that leave an epoch without a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlicesError {
    /// Batch size or world size is 0, or the plan is empty.
    #[error(
        "an epoch of {plan_len} samples, batch size {batch_size}, world size {world_size}: none of them may be 0"
    )]
    Zero {
        /// Length of the plan.
        plan_len: u32,
        /// Samples in a rank's batch.
        batch_size: u32,
        /// Number of ranks.
        world_size: u32,
    },
    /// `Tail::Drop` would drop the whole epoch.
    #[error(
        "an epoch of {plan_len} samples is shorter than one global batch of {global_batch} and the tail is dropped: \
         use a smaller batch or another tail"
    )]
    NothingLeft {
        /// Length of the plan.
        plan_len: u32,
        /// Samples in a batch of all ranks together.
        global_batch: u64,
    },
}

/// The division of the plan's positions among batches and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    pub(super) plan_len: u32,
    batch_size: u32,
    pub(super) world_size: u32,
    tail: Tail,
    pub(super) strata: u32,
    pub(super) origin: Origin,
}

impl Slices {
    /// Divides `plan_len` positions into batches of `batch_size` for each of `world_size` ranks.
    /// The plan has one stratum.
    ///
    /// # Errors
    /// A number is 0, or nothing is left after dropping the tail.
    pub fn new(plan_len: u32, batch_size: u32, world_size: u32, tail: Tail) -> Result<Self, SlicesError> {
        if plan_len == 0 || batch_size == 0 || world_size == 0 {
            return Err(SlicesError::Zero { plan_len, batch_size, world_size });
        }
        let origin = Origin::default();
        let slices = Self { plan_len, batch_size, world_size, tail, strata: 1, origin };
        if slices.batches_per_epoch() == 0 {
            return Err(SlicesError::NothingLeft { plan_len, global_batch: slices.global_batch() });
        }
        Ok(slices)
    }

    /// The slices of a plan of `plan_len` positions, from its first on: without any batch if it is
    /// too short for one.
    #[must_use]
    pub fn of_len(self, plan_len: u32) -> Self {
        Self { plan_len, origin: Origin::default(), ..self }
    }

    /// The slices of a plan of this many strata.
    #[must_use]
    pub fn of_strata(self, strata: u32) -> Self {
        Self { strata, ..self }
    }

    /// The slices from `origin` on.
    #[must_use]
    pub fn from_origin(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// An origin at `position`. Its batch is numbered as if all before had been of this size.
    #[must_use]
    pub fn origin_at(&self, position: u32) -> Origin {
        let batch = u64::from(position) / self.global_batch().max(1);
        // At most the position.
        Origin { position, batch: u32::try_from(batch).unwrap_or(u32::MAX) }
    }

    /// Where the batches begin.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How many batches every rank has in an epoch, with those before the origin.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u32 {
        let (left, global) = (u64::from(self.left()), self.global_batch());
        let batches = match self.tail {
            Tail::Drop => left / global,
            Tail::Pad | Tail::Even => left.div_ceil(global),
        };
        // Each batch has a position, before the origin as well.
        u32::try_from(u64::from(self.origin.batch) + batches).unwrap_or(u32::MAX)
    }

    /// The position before which all is delivered when global batch `k` begins: the plan's end
    /// after the last batch, the origin before the first.
    #[must_use]
    pub fn start(&self, k: u32) -> u32 {
        if k >= self.batches_per_epoch() {
            return self.plan_len;
        }
        // Below the plan's length.
        u32::try_from(self.global_positions(k).start).unwrap_or(u32::MAX)
    }

    /// The position behind all that are delivered: the plan's end, unless a tail is dropped.
    #[must_use]
    pub fn end(&self) -> u32 {
        let left = u64::from(self.left());
        let dropped = if self.tail == Tail::Drop { left % self.global_batch().max(1) } else { 0 };
        self.plan_len - to_u32(dropped)
    }

    /// The positions of global batch `k` that are no padding.
    #[must_use]
    pub fn positions(&self, k: u32) -> Range<u32> {
        let Range { start, end } = self.global_positions(k);
        let len = self.plan_len;
        let within = |position: u64| u32::try_from(position).map_or(len, |at| at.min(len));
        within(start)..within(end)
    }

    /// Positions of each global batch from the plan's first position on, in their order. Positions
    /// that are not delivered at the end count as another one.
    #[must_use]
    pub fn batch_sizes(&self) -> Vec<u32> {
        let all = self.of_len(self.plan_len);
        let ends = (0..all.batches_per_epoch()).map(|batch| all.positions(batch).end);
        let mut start = 0;
        let mut sizes: Vec<u32> = ends.map(|end| end - std::mem::replace(&mut start, end)).collect();
        sizes.extend(Some(self.plan_len - start).filter(|&left| left > 0));
        sizes
    }

    fn global_batch(&self) -> u64 {
        u64::from(self.batch_size) * u64::from(self.world_size)
    }

    /// Number of positions from the origin on.
    fn left(&self) -> u32 {
        self.plan_len.saturating_sub(self.origin.position)
    }

    /// The positions of global batch `k`, which is one of the epoch's. Those behind the plan's end
    /// are padding.
    pub(super) fn global_positions(&self, k: u32) -> Range<u64> {
        // Counted from the origin at first.
        let (len, global, world) = (u64::from(self.left()), self.global_batch(), u64::from(self.world_size));
        let mut start = u64::from(k.saturating_sub(self.origin.batch)) * global;
        let mut end = start + global;
        if self.tail == Tail::Even {
            let remainder = len % global;
            let tail_start = len - remainder;
            let lend = remainder > 0 && remainder < world && self.batch_size > 1 && tail_start > 0;
            // The last full batch lends W positions to the short one.
            let tail_start = if lend { tail_start - world } else { tail_start };
            if start >= tail_start && remainder > 0 {
                start = tail_start;
                end = len.max(start + world);
            } else {
                end = end.min(tail_start);
            }
        }
        let origin = u64::from(self.origin.position);
        origin + start..origin + end
    }
}
