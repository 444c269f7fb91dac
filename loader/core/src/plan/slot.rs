//! Which rows a rank's batch has, as `slice` divides the plan's positions.

use shade_formats::SampleId;

use super::epoch::Plan;
use super::slice::Slices;

/// One row of a rank's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Position in the plan of all ranks.
    pub position: u32,
    /// Its place in this daemon's part of the plan.
    pub place: u32,
    /// Whether the row only fills up the last batch; its position is delivered elsewhere in the
    /// epoch.
    pub padding: bool,
}

impl Slot {
    /// A row of a whole plan.
    fn of(position: u32) -> Self {
        Self { position, place: position, padding: false }
    }
}

impl Slices {
    /// The rows of `rank`'s batch `k`, in the order in which it gets them. Empty if `k` or `rank`
    /// is out of range, or the rank not in the plan's part.
    ///
    /// `plan` must be the plan of the length given to [`new`](Self::new), or a part of it.
    #[must_use]
    pub fn batch(&self, k: u32, rank: u32, plan: &Plan) -> Vec<Slot> {
        let world = self.world_size as usize;
        if !(self.origin.batch..self.batches_per_epoch()).contains(&k) || rank >= self.world_size {
            return Vec::new();
        }
        let positions = self.global_positions(k);
        // From the batch's first position to the rank's first.
        let begins_with = usize::try_from(positions.start).unwrap_or_default() % world;
        let first = (rank as usize + world - begins_with) % world;
        let is_once = plan.summary.repeat_max == 1 && positions.end <= u64::from(self.plan_len);
        if is_once && plan.part.is_whole() {
            // Most batches of one node: no position is out of range, and each is its own place.
            let slot = |position: u64| Slot::of(u32::try_from(position).unwrap_or(u32::MAX));
            return positions.skip(first).step_by(world).map(slot).collect();
        }
        let slot = |position| self.slot(position, plan);
        if self.strata > 1 || is_once {
            return positions.skip(first).step_by(world).filter_map(slot).collect();
        }
        let slots: Vec<Slot> = positions.filter_map(slot).collect();
        if world == 1 {
            return slots;
        }
        let sample = |slot: &Slot| plan.ids.get(slot.place as usize).copied().unwrap_or_default();
        // (sample, padding, position, place): a real row stands before a padding one of the same
        // sample.
        let mut dealt: Vec<(SampleId, Slot, usize)> =
            slots.iter().enumerate().map(|(place, slot)| (sample(slot), *slot, place)).collect();
        dealt.sort_unstable_by_key(|&(id, slot, place)| (id, slot.padding, slot.position, place));
        if !holds_twice(&dealt, world) {
            return slots.into_iter().skip(first).step_by(world).collect();
        }
        let mut rows: Vec<(usize, Slot)> =
            dealt.into_iter().skip(first).step_by(world).map(|(_, slot, place)| (place, slot)).collect();
        rows.sort_unstable_by_key(|&(place, _)| place);
        rows.into_iter().map(|(_, slot)| slot).collect()
    }

    /// The row at a position, if it is in the plan's part. Padding takes one from the plan's
    /// beginning: with several strata the next of its own stratum's list, from the first one on.
    fn slot(&self, position: u64, plan: &Plan) -> Option<Slot> {
        let (len, strata) = (u64::from(self.plan_len), u64::from(self.strata));
        let padding = position >= len;
        let taken = if padding && strata > 1 {
            let (row, seat) = (position / strata, position % strata);
            let rows = len.saturating_sub(seat).div_ceil(strata).max(1);
            row % rows * strata + seat
        } else {
            position % len
        };
        // Below the plan's length, which is a u32.
        let position = u32::try_from(taken).ok()?;
        Some(Slot { position, place: plan.part.place(position)?, padding })
    }
}

/// Whether two places of one sample belong to the same rank. `sorted` by sample; the place decides
/// the rank.
fn holds_twice(sorted: &[(SampleId, Slot, usize)], world: usize) -> bool {
    let mut ranks = Vec::new();
    sorted.chunk_by(|left, right| left.0 == right.0).filter(|same| same.len() > 1).any(|same| {
        ranks.clear();
        ranks.extend(same.iter().map(|&(_, _, place)| place % world));
        ranks.sort_unstable();
        ranks.windows(2).any(|pair| matches!(pair, [left, right] if left == right))
    })
}
