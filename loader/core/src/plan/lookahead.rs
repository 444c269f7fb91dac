//! Next uses: when each sample of a plan is used next, as far ahead as `--lookahead` allows. The
//! cache's policy `lookahead` and prefetching go by it.

use std::sync::Arc;

use shade_formats::SampleId;

/// No further use.
const NEVER: u32 = u32::MAX;

/// A use in sight: the sample and its position.
pub type Use = (SampleId, u32);

/// The known accesses: those of the plan and, if the next plan was drawn early, its accesses behind
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The plan.
    pub plan: &'a [SampleId],
    /// The next one, or nothing.
    pub next: &'a [SampleId],
}

impl Known<'_> {
    /// Number of accesses.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u32 {
        u32::try_from(self.plan.len() + self.next.len()).unwrap_or(u32::MAX)
    }

    /// The sample of the access at `position`.
    #[must_use]
    pub fn get(&self, position: u32) -> Option<SampleId> {
        let position = position as usize;
        let next = || self.next.get(position - self.plan.len());
        self.plan.get(position).or_else(next).copied()
    }
}

impl<'a> From<&'a [SampleId]> for Known<'a> {
    fn from(plan: &'a [SampleId]) -> Self {
        Self { plan, next: &[] }
    }
}

/// `epochs` in accesses, for epochs of `len` accesses.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range of u32 becomes its end"
)]
pub fn in_sight(epochs: f64, len: usize) -> u32 {
    (epochs * len as f64).round() as u32
}

/// By position of the `known` accesses to samples `0..samples`: where its sample is accessed next.
#[must_use]
pub fn next_accesses(known: Known<'_>, samples: u32) -> Arc<Vec<u32>> {
    let mut later = vec![NEVER; samples as usize];
    let mut next = vec![NEVER; known.len() as usize];
    for position in (0..known.len()).rev() {
        if let Some(later) = known.get(position).and_then(|id| later.get_mut(id.index())) {
            next[position as usize] = std::mem::replace(later, position);
        }
    }
    Arc::new(next)
}

/// A window over the plan: the uses at most `ahead` positions behind the latest access are in
/// sight.
///
/// Ranks take their batches independently, so accesses come only nearly in the plan's order. It
/// takes 5 bytes a position.
#[derive(Clone, Debug)]
pub struct Lookahead {
    /// See [`next_accesses`].
    next: Arc<Vec<u32>>,
    /// By position: it was accessed, or will not be.
    done: Vec<bool>,
    ahead: u32,
    /// Positions below are in sight.
    sight: u32,
    /// Where sight ends once all are looked at that the latest access brings into sight.
    end: u32,
}

/// Positions that one access brings into sight, at most. The next ones bring the others: so the
/// first access over a long plan need not wait for all of them.
const LOOKED_AT_PER_ACCESS: u32 = 4096;

impl Lookahead {
    /// The window over the `known` accesses to samples `0..samples`, which begin at position
    /// `from`.
    #[must_use]
    pub fn new(known: Known<'_>, samples: u32, from: u32, ahead: u32) -> Self {
        Self::over(next_accesses(known, samples), from, ahead)
    }

    /// A lookahead over accesses of which it is known where each sample is accessed `next`.
    #[must_use]
    pub fn over(next: Arc<Vec<u32>>, from: u32, ahead: u32) -> Self {
        let mut done = vec![false; next.len()];
        let from = (from as usize).min(done.len());
        done[..from].fill(true);
        // There are no more positions than a u32 counts.
        let sight = u32::try_from(from).unwrap_or(u32::MAX);
        Self { next, done, ahead, sight, end: sight.saturating_add(ahead) }
    }

    /// Accesses that will not be made, as other nodes make them.
    pub fn leave_out(&mut self, is_elsewhere: impl Fn(u32) -> bool) {
        (0..).zip(&mut self.done).for_each(|(position, done)| *done |= is_elsewhere(position));
    }

    /// Whether the access at `position` was made, or will not be.
    #[must_use]
    pub fn is_over(&self, position: u32) -> bool {
        self.done.get(position as usize) == Some(&true)
    }

    /// The access at `position` begins. Returns the next use of its sample, if that is in sight.
    /// Calls `see` for each use that comes into sight, in the plan's order.
    pub fn access(&mut self, known: Known<'_>, position: u32, see: impl FnMut(Use)) -> Option<u32> {
        self.end = self.end.max(position.saturating_add(1).saturating_add(self.ahead));
        self.look_on(known, LOOKED_AT_PER_ACCESS, see);
        if let Some(done) = self.done.get_mut(position as usize) {
            *done = true;
        }
        let mut next = *self.next.get(position as usize)?;
        while next < self.sight {
            if !self.done[next as usize] {
                return Some(next);
            }
            next = self.next[next as usize];
        }
        None
    }

    /// Positions below are in sight.
    #[must_use]
    pub fn sight(&self) -> u32 {
        self.sight
    }

    /// Calls `see` for the uses that are in sight before the first access.
    pub fn begin(&mut self, known: Known<'_>, see: impl FnMut(Use)) {
        self.look_on(known, u32::MAX, see);
    }

    /// Whether some uses that are in sight were not looked at yet.
    #[must_use]
    pub fn has_more_in_sight(&self) -> bool {
        self.done.len() > self.sight as usize && self.end > self.sight
    }

    /// Calls `see` for the uses that are in sight at the next `most` positions.
    pub fn look_on(&mut self, known: Known<'_>, most: u32, mut see: impl FnMut(Use)) {
        let end = self.sight.saturating_add(most).min(self.end).min(known.len());
        for position in self.sight..end {
            // A use that was accessed before it came into sight is over.
            if let Some(id) = known.get(position).filter(|_| !self.done[position as usize]) {
                see((id, position));
            }
        }
        self.sight = self.sight.max(end);
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "plans here are short")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(ids: &[u32]) -> Vec<SampleId> {
        ids.iter().copied().map(SampleId).collect()
    }

    fn known(plan: &[SampleId]) -> Known<'_> {
        let (plan, next) = plan.split_at(plan.len() / 2);
        Known { plan, next }
    }

    #[test]
    fn uses_come_into_sight_as_accesses_go_on() {
        let plan = ids(&[3, 1, 3, 0, 1, 3]);
        let mut lookahead = Lookahead::new(known(&plan), 4, 0, 2);
        let mut seen = Vec::new();
        lookahead.begin(known(&plan), |(id, position)| seen.push((id.0, position)));
        assert_eq!(seen, [(3, 0), (1, 1)]);
        let mut nexts = Vec::new();
        for position in 0..6 {
            nexts
                .push(lookahead.access(known(&plan), position, |(id, position)| seen.push((id.0, position))));
        }
        assert_eq!(seen[2..], [(3, 2), (0, 3), (1, 4), (3, 5)]);
        // 1 is used again at 4, which is three away; 3 at 5, three away.
        assert_eq!(nexts, [Some(2), None, None, None, None, None]);
    }

    #[test]
    fn accesses_of_another_order_leave_no_use_behind() {
        let plan = ids(&[7, 7, 7, 1]);
        let mut lookahead = Lookahead::new(known(&plan), 8, 0, 100);
        assert_eq!(lookahead.access(known(&plan), 1, |_| {}), Some(2));
        assert_eq!(lookahead.access(known(&plan), 0, |_| {}), Some(2), "position 1 is over");
        assert_eq!(lookahead.access(known(&plan), 2, |_| {}), None);
    }

    #[test]
    fn an_epoch_that_begins_in_its_middle_has_no_uses_before() {
        let plan = ids(&[0, 1, 0, 1]);
        let mut lookahead = Lookahead::new(known(&plan), 2, 2, 100);
        let mut seen = Vec::new();
        lookahead.begin(known(&plan), |(id, position)| seen.push((id.0, position)));
        assert_eq!(seen, [(0, 2), (1, 3)]);
        assert_eq!(lookahead.access(known(&plan), 2, |_| {}), None);
    }

    proptest! {
        #[test]
        fn as_by_looking_through_the_plan(
            samples in prop::collection::vec(0..6u32, 0..60), ahead in prop_oneof![0..10u32, Just(u32::MAX)]
        ) {
            let plan = ids(&samples);
            let mut lookahead = Lookahead::new(known(&plan), 6, 0, ahead);
            let mut seen = 0;
            lookahead.begin(known(&plan), |(_, position)| { assert_eq!(position, seen); seen += 1; });
            for position in 0..plan.len() {
                let in_sight = plan.len().min(position.saturating_add(1).saturating_add(ahead as usize));
                let next = lookahead.access(known(&plan), position as u32, |(id, at)| {
                    assert_eq!((id, at), (plan[at as usize], seen));
                    seen += 1;
                });
                prop_assert_eq!(seen as usize, in_sight);
                let expected = (position + 1..in_sight).find(|&at| plan[at] == plan[position]);
                prop_assert_eq!(next, expected.map(|at| at as u32));
            }
        }
    }
}
