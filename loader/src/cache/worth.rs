//! What samples are ranked by: importance and how often the sample was used, or the next use.

use shade_formats::SampleId;

use super::heap::Key;
use crate::importance::Importance;

/// Above all samples with no known use and below all others.
pub(super) const KNOWN: Key = key(1 << 63, SampleId(u32::MAX));

/// What a sample is worth; of equal samples the one with the smaller id is worth more.
///
/// Score bits above uses: scores are positive, and positive floats order as their bits do and leave the top bit free. With
/// it set a use is known, and the rest counts down with its position.
const fn key(worth: u64, id: SampleId) -> Key {
    Key::new((worth as u128) << 32 | !id.0 as u128)
}

/// APP's: (score, uses, -id).
pub(super) fn with_uses(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance) | u64::from(importance.uses(id)), id)
}

/// TopC's: (score, -id).
pub(super) fn by_score(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance), id)
}

/// Below every sample of the same score that has one of [`by_score`], and above those of a lower one.
pub(super) fn below_score(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance), SampleId(u32::MAX))
}

/// Lookahead's: by the next use, as a position of the plan; APP's where that is not known, and less than any known one.
///
/// Distances shrink alike as the plan goes on, so positions order as they do; and the expected distance L + N/λ of a use
/// that is not known is above that of any that is and falls as the score grows. So no clock is needed.
pub(super) fn by_next_use(id: SampleId, next: Option<u32>, importance: &Importance) -> Key {
    match next {
        Some(position) => key(1 << 63 | u64::from(u32::MAX - position), id),
        None => with_uses(id, importance),
    }
}

fn score(id: SampleId, importance: &Importance) -> u64 {
    u64::from(importance.score(id).to_bits()) << 32
}
