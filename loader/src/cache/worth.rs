//! What samples are ranked by: importance and how often the sample was used (ALGORITHMS 3), or the next use (4).

use std::cmp::Reverse;

use shade_formats::SampleId;

use crate::importance::Importance;

/// What a sample is worth: the smallest is evicted first. No two samples are worth the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    /// Score bits above uses: scores are positive, and positive floats order as their bits do and leave the top bit free.
    /// With it set: a use is known, and the rest counts down with its position.
    worth: u64,
    id: Reverse<SampleId>,
}

impl Worth {
    /// Above all samples with no known use and below all others.
    pub(super) const KNOWN: Self = Self { worth: 1 << 63, id: Reverse(SampleId(u32::MAX)) };

    /// APP's: (score, uses, -id).
    pub(super) fn with_uses(id: SampleId, importance: &Importance) -> Self {
        let score = Self::by_score(id, importance);
        Self { worth: score.worth | u64::from(importance.uses(id)), ..score }
    }

    /// TopC's: (score, -id).
    pub(super) fn by_score(id: SampleId, importance: &Importance) -> Self {
        let score = u64::from(importance.score(id).to_bits());
        Self { worth: score << 32, id: Reverse(id) }
    }

    /// Below every sample of the same score that has one of [`by_score`](Self::by_score), and above those of a lower one.
    pub(super) fn below_score(id: SampleId, importance: &Importance) -> Self {
        Self { id: Reverse(SampleId(u32::MAX)), ..Self::by_score(id, importance) }
    }

    /// Lookahead's: by the next use, as a position of the plan; APP's where that is not known, and less than any known one.
    ///
    /// Distances shrink alike as the plan goes on, so positions order as they do; and the expected distance L + N/λ of a use
    /// that is not known is above that of any that is and falls as the score grows. So no clock is needed.
    pub(super) fn by_next_use(id: SampleId, next: Option<u32>, importance: &Importance) -> Self {
        match next {
            Some(position) => Self { worth: 1 << 63 | u64::from(u32::MAX - position), id: Reverse(id) },
            None => Self::with_uses(id, importance),
        }
    }
}
