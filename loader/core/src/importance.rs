//! Importance: losses become rank scores by sample. Their table is also the cache's ghost table.
//!
//! Losses are comparable only within a batch, so a batch is ranked and the rank is put on a log
//! scale. The table has 12 bytes for every sample of the dataset, resident or not. Scores are never
//! aged.

use shade_formats::checksum::crc32c;
use shade_formats::limits::SAMPLES_MAX;
use shade_formats::{FormatError, SampleId};

use crate::fields::Fields;
use crate::number::to_u32;
use crate::portable_scores::score_of_rank;

/// Lowest score in the table: the published code gives it to a sample that was never trained. Ranks
/// score above `ln(9.5)`, about 2.25.
pub const SCORE_MIN: f32 = 1.0;
/// Upper limit of a score, `ln(73.5)`: the rank quantile tends to 1. A sample never trained has it,
/// so that none starves.
pub const SCORE_MAX: f32 = 4.297_285_6;

const STRUCTURE: &str = "importance table";
const MAGIC: [u8; 8] = *b"SHADEIMP";
const VERSION: u32 = 1;
/// Magic, version, number of samples.
const HEADER_BYTES: usize = 16;
/// Score, uses, last epoch.
const SAMPLE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
/// `last_epoch` of a sample never delivered.
const NEVER: u32 = u32::MAX;

/// Scores of one finished batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranked {
    /// Each sample of the batch once, easiest first, with its score, `ln(9.5)` to `SCORE_MAX`.
    pub scores: Vec<(SampleId, f32)>,
    /// Number of losses that were NaN or infinite; their samples rank as the hardest.
    pub nonfinite: u32,
}

/// Ranks the losses of one batch: the j-th smallest of n samples scores `ln(64 (j + 0.5) / n +
/// 9.5)`.
///
/// Samples are ordered by (loss, sample id). One that occurs twice counts once, with its mean loss.
/// A report may be partial: the shorter of the two slices sets the number of pairs.
#[must_use]
pub fn rank(ids: &[SampleId], losses: &[f32]) -> Ranked {
    score_by(ids, losses, |j, n, _| score_at((j as f64 + 0.5) / n as f64))
}

/// As [`rank`], with scores that are equal on every machine: for plans of several strata.
#[must_use]
pub fn rank_portably(ids: &[SampleId], losses: &[f32]) -> Ranked {
    score_by(ids, losses, |j, n, _| score_of_rank(j, n))
}

/// As [`rank`], with scores that keep the losses themselves ([`loss_of`]): for a sampler that goes
/// by their mean.
#[must_use]
pub fn keep_losses(ids: &[SampleId], losses: &[f32]) -> Ranked {
    score_by(ids, losses, |_, _, loss| score_of_loss(loss))
}

/// Sorts losses; `score_of` gives the score of the j-th smallest of n, which is this loss.
fn score_by(ids: &[SampleId], losses: &[f32], score_of: impl Fn(usize, usize, f64) -> f32) -> Ranked {
    let mut pairs: Vec<(SampleId, f64)> =
        ids.iter().zip(losses).map(|(&id, &loss)| (id, f64::from(loss))).collect();
    let nonfinite = pairs.iter().filter(|(_, loss)| !loss.is_finite()).count();
    // Stable: the losses of a duplicate are added in the batch's order, so the sum is always the
    // same number.
    pairs.sort_by_key(|&(id, _)| id);
    let mut means: Vec<(f64, SampleId)> = pairs
        .chunk_by(|left, right| left.0 == right.0)
        .filter_map(|same| same.first().map(|&(id, _)| (mean_or_hardest(same), id)))
        .collect();
    means.sort_unstable_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let score = |(j, &(loss, id)): (usize, &(f64, SampleId))| (id, score_of(j, means.len(), loss));
    let scores = means.iter().enumerate().map(score).collect();
    Ranked { scores, nonfinite: to_u32(nonfinite) }
}

/// The mean of one sample's losses; +∞ where that is not finite. The sum starts from +0, so -0
/// ranks with 0.
fn mean_or_hardest(same: &[(SampleId, f64)]) -> f64 {
    let mean = same.iter().fold(0.0, |sum, (_, loss)| sum + loss) / same.len() as f64;
    if mean.is_finite() { mean } else { f64::INFINITY }
}

/// The score of a loss at this quantile of its batch.
#[expect(clippy::cast_possible_truncation, reason = "scores are stored as f32")]
pub(super) fn score_at(quantile: f64) -> f32 {
    (64.0 * quantile + 9.5).ln() as f32
}

/// The score that keeps a loss. All losses, also those below 0, are drawn together into the range
/// of scores, and higher ones score higher. Only divisions, so every machine has the same score.
#[expect(clippy::cast_possible_truncation, reason = "scores are stored as f32")]
#[must_use]
pub fn score_of_loss(loss: f64) -> f32 {
    let drawn = if loss.is_finite() { loss / (1.0 + loss.abs()) } else { 1.0 };
    let share = f64::midpoint(1.0, drawn);
    (f64::from(SCORE_MIN) + f64::from(SCORE_MAX - SCORE_MIN) * share) as f32
}

/// The loss of a score that [`keep_losses`] gave: to 4 decimals where it is below 10. A sample
/// never trained, or with a loss that is no number, has an infinite one.
#[must_use]
pub fn loss_of(score: f32) -> f64 {
    let share = f64::from(score - SCORE_MIN) / f64::from(SCORE_MAX - SCORE_MIN);
    let drawn = 2.0 * share - 1.0;
    if score >= SCORE_MAX { f64::INFINITY } else { drawn / (1.0 - drawn.abs()) }
}

/// The quantile of a score's loss within its batch, 0 to 1: what [`rank`] made the score of. A
/// sample never trained has 1.
pub(super) fn quantile_of(score: f32) -> f64 {
    ((f64::from(score).exp() - 9.5) / 64.0).clamp(0.0, 1.0)
}

/// What is known about every sample: its score, its hits, the epoch of its last delivery. Ids
/// beyond the table read as never trained, and writes to them are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    scores: Vec<f32>,
    uses: Vec<u32>,
    last_epochs: Vec<u32>,
    /// Samples that were ever delivered.
    seen: u32,
}

impl Importance {
    /// A table for samples `0..samples`, none of them trained yet.
    #[must_use]
    pub fn new(samples: u32) -> Self {
        let len = samples as usize;
        Self { scores: vec![SCORE_MAX; len], uses: vec![0; len], last_epochs: vec![NEVER; len], seen: 0 }
    }

    /// Number of samples in the table.
    #[must_use]
    pub fn len(&self) -> u32 {
        // Set from a u32 by both constructors.
        to_u32(self.scores.len())
    }

    /// Whether the table has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The sample's score, `SCORE_MIN..=SCORE_MAX`.
    #[must_use]
    pub fn score(&self, id: SampleId) -> f32 {
        self.scores.get(id.index()).copied().unwrap_or(SCORE_MAX)
    }

    /// All scores, by sample id.
    #[must_use]
    pub fn scores(&self) -> &[f32] {
        &self.scores
    }

    /// Number of times that the sample was served from the cache.
    #[must_use]
    pub fn uses(&self, id: SampleId) -> u32 {
        self.uses.get(id.index()).copied().unwrap_or(0)
    }

    /// The epoch in which the sample was last delivered.
    #[must_use]
    pub fn last_epoch(&self, id: SampleId) -> Option<u32> {
        self.last_epochs.get(id.index()).copied().filter(|&epoch| epoch != NEVER)
    }

    /// Number of samples that were ever delivered.
    #[must_use]
    pub fn seen(&self) -> u32 {
        self.seen
    }

    /// Whether `epoch` must deliver the sample: it was not delivered for `cover` epochs, the first
    /// ones included. A `cover` of 0 is off.
    #[must_use]
    pub fn is_forgotten(&self, id: SampleId, epoch: u32, cover: u32) -> bool {
        let age = match self.last_epoch(id) {
            Some(last) => epoch.saturating_sub(last),
            None => epoch.saturating_add(1),
        };
        cover > 0 && age >= cover
    }

    /// Replaces the sample's score. It is clamped to `SCORE_MIN..=SCORE_MAX`; NaN counts as the
    /// hardest. Then call [`Cache::rescore`](crate::cache::Cache::rescore).
    pub fn set_score(&mut self, id: SampleId, score: f32) {
        if let Some(slot) = self.scores.get_mut(id.index()) {
            *slot = if score.is_nan() { SCORE_MAX } else { score.clamp(SCORE_MIN, SCORE_MAX) };
        }
    }

    /// Replaces the number of the sample's hits.
    pub(super) fn set_uses(&mut self, id: SampleId, uses: u32) {
        if let Some(slot) = self.uses.get_mut(id.index()) {
            *slot = uses;
        }
    }

    /// Counts a hit. Then call [`Cache::hit`](crate::cache::Cache::hit).
    pub fn record_hit(&mut self, id: SampleId) {
        if let Some(uses) = self.uses.get_mut(id.index()) {
            *uses = uses.saturating_add(1);
        }
    }

    /// Notes that the sample was delivered in `epoch` (below `u32::MAX`).
    pub fn record_delivery(&mut self, id: SampleId, epoch: u32) {
        if let Some(last) = self.last_epochs.get_mut(id.index()) {
            self.seen += u32::from(*last == NEVER && epoch != NEVER);
            *last = epoch;
        }
    }

    /// Takes over what another table knows of a sample, which has the number `other_id` there.
    pub fn take_over(&mut self, id: SampleId, other: &Self, other_id: SampleId) {
        self.set_score(id, other.score(other_id));
        self.set_uses(id, other.uses(other_id));
        if let Some(epoch) = other.last_epoch(other_id) {
            self.record_delivery(id, epoch);
        }
    }

    /// The table as bytes, little-endian: magic `SHADEIMP`, version u32, samples u32, all scores
    /// f32, all uses u32, all last epochs u32 (`u32::MAX`: never), CRC32C u32 of everything before
    /// it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.scores.len() * SAMPLE_BYTES + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.len().to_le_bytes());
        bytes.extend(self.scores.iter().flat_map(|score| score.to_le_bytes()));
        bytes.extend(self.uses.iter().flat_map(|uses| uses.to_le_bytes()));
        bytes.extend(self.last_epochs.iter().flat_map(|epoch| epoch.to_le_bytes()));
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// Wrong magic, version, length or checksum, or a score outside `SCORE_MIN..=SCORE_MAX`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Fields::new(STRUCTURE, bytes)?;
        let magic: [u8; 8] = fields.array()?;
        fields.expect("the magic SHADEIMP", magic == MAGIC)?;
        let version = fields.u32()?;
        fields.expect("version 1", version == VERSION)?;
        let samples = fields.u32()?;
        fields.expect("no more samples than a dataset may have", u64::from(samples) <= SAMPLES_MAX)?;
        let (scores, uses) = (fields.f32s(samples)?, fields.u32s(samples)?);
        let last_epochs = fields.u32s(samples)?;
        fields.expect("its end", fields.rest().is_empty())?;
        match scores.iter().enumerate().find(|(_, score)| !(SCORE_MIN..=SCORE_MAX).contains(*score)) {
            None => {
                let seen = last_epochs.iter().filter(|&&epoch| epoch != NEVER).count();
                Ok(Self { scores, uses, last_epochs, seen: to_u32(seen) })
            }
            Some((at, score)) => Err(FormatError::new(
                STRUCTURE,
                (HEADER_BYTES + at * 4) as u64,
                format!("score {score}"),
                format!("{SCORE_MIN}..={SCORE_MAX}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(ids: &[u32]) -> Vec<SampleId> {
        ids.iter().copied().map(SampleId).collect()
    }

    #[test]
    fn scores_equal_the_papers_table_at_64_samples() {
        let batch = ids(&(0..64).rev().collect::<Vec<_>>());
        let losses: Vec<f32> = (0..64u8).rev().map(f32::from).collect();
        let ranked = rank(&batch, &losses);
        for (j, &(id, score)) in ranked.scores.iter().enumerate() {
            assert_eq!(id.index(), j);
            assert!((f64::from(score) - (j as f64 + 10.0).ln()).abs() < 1e-6, "rank {j}: {score}");
        }
        assert!((f64::from(SCORE_MAX) - 73.5f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn ties_go_by_sample_id_and_negative_zero_is_zero() {
        let ranked = rank(&ids(&[9, 3, 5]), &[-0.0, 0.0, 0.0]);
        assert_eq!(ranked.scores.iter().map(|pair| pair.0.0).collect::<Vec<_>>(), [3, 5, 9]);
    }

    #[test]
    fn nonfinite_losses_are_hardest_and_counted() {
        let ranked = rank(&ids(&[1, 2, 3, 4]), &[f32::NEG_INFINITY, 5.0, f32::NAN, 1.0]);
        assert_eq!(ranked.scores.iter().map(|pair| pair.0.0).collect::<Vec<_>>(), [4, 2, 1, 3]);
        assert_eq!(ranked.nonfinite, 2);
    }

    #[test]
    fn a_duplicate_counts_once_with_its_mean() {
        let ranked = rank(&ids(&[7, 1, 7, 2]), &[0.0, 2.0, 6.0, 4.0]);
        // Sample 7 has the mean 3: between 1 and 2.
        assert_eq!(ranked.scores.iter().map(|pair| pair.0.0).collect::<Vec<_>>(), [1, 7, 2]);
        let middle = (64.0f64 * 0.5 + 9.5).ln();
        assert!((f64::from(ranked.scores[1].1) - middle).abs() < 1e-6);
    }

    #[test]
    fn a_score_keeps_its_loss() {
        for loss in [-3.5, -0.01, 0.0, 1e-3, 0.7, 2.25, 9.5] {
            let kept = loss_of(score_of_loss(loss));
            assert!((kept - loss).abs() < 1e-4, "{loss}: {kept}");
        }
        let ranked = keep_losses(&ids(&[4, 8, 4, 6]), &[1.0, f32::NAN, 2.0, 0.5]);
        let kept: Vec<(u32, f64)> = ranked.scores.iter().map(|&(id, score)| (id.0, loss_of(score))).collect();
        assert_eq!(kept.iter().map(|pair| pair.0).collect::<Vec<_>>(), [6, 4, 8]);
        assert!((kept[1].1 - 1.5).abs() < 1e-4, "the mean of two losses");
        assert_eq!((kept[2].1, ranked.nonfinite), (f64::INFINITY, 1));
        assert_eq!(loss_of(Importance::new(1).score(SampleId(0))), f64::INFINITY);
    }

    #[test]
    fn partial_and_empty_reports() {
        assert_eq!(rank(&ids(&[1, 2, 3]), &[1.0]).scores.len(), 1);
        assert_eq!(rank(&ids(&[1, 2, 3]), &[]), Ranked::default());
        assert_eq!(rank(&[], &[1.0]), Ranked::default());
    }

    fn trained() -> Importance {
        let mut table = Importance::new(3);
        table.set_score(SampleId(1), 3.0);
        table.record_hit(SampleId(1));
        table.record_delivery(SampleId(1), 4);
        table
    }

    #[test]
    fn a_new_table_is_optimistic_and_ids_beyond_it_are_harmless() {
        let mut table = trained();
        assert_eq!(
            (table.score(SampleId(0)), table.uses(SampleId(0)), table.last_epoch(SampleId(0))),
            (SCORE_MAX, 0, None)
        );
        assert_eq!(
            (table.score(SampleId(1)), table.uses(SampleId(1)), table.last_epoch(SampleId(1))),
            (3.0, 1, Some(4))
        );
        assert_eq!(table.seen(), 1);
        table.set_score(SampleId(3), 3.0);
        table.record_hit(SampleId(3));
        table.record_delivery(SampleId(3), 1);
        assert_eq!(table, trained());
        table.set_score(SampleId(0), f32::NAN);
        table.set_score(SampleId(2), -1.0);
        assert_eq!((table.score(SampleId(0)), table.score(SampleId(2))), (SCORE_MAX, SCORE_MIN));
    }

    /// What `stats` tells without a walk.
    fn seen_by_a_walk(table: &Importance) -> u32 {
        let seen = (0..table.len()).filter(|&id| table.last_epoch(SampleId(id)).is_some());
        u32::try_from(seen.count()).unwrap()
    }

    proptest! {
        #[test]
        fn the_counter_of_seen_samples_equals_a_walk(
            samples in 0u32..20,
            deliveries in prop::collection::vec((0u32..24, 0u32..4), 0..60),
            taken in prop::collection::vec((0u32..24, 0u32..24), 0..30),
        ) {
            let mut other = Importance::new(samples);
            let mut table = Importance::new(samples);
            for &(id, epoch) in &deliveries {
                other.record_delivery(SampleId(id), epoch);
                prop_assert_eq!(other.seen(), seen_by_a_walk(&other));
            }
            for &(id, of) in &taken {
                table.take_over(SampleId(id), &other, SampleId(of));
                table.set_score(SampleId(of), 3.0);
                table.record_hit(SampleId(of));
                prop_assert_eq!(table.seen(), seen_by_a_walk(&table));
            }
            prop_assert_eq!(Importance::from_bytes(&table.to_bytes()).unwrap().seen(), table.seen());
        }
    }

    #[test]
    fn bytes_round_trip_at_12_a_sample() {
        let bytes = trained().to_bytes();
        assert_eq!(bytes.len(), 16 + 3 * 12 + 4);
        assert_eq!(Importance::from_bytes(&bytes).unwrap(), trained());
        assert_eq!(Importance::from_bytes(&Importance::new(0).to_bytes()).unwrap(), Importance::new(0));
    }

    #[test]
    fn every_broken_byte_and_every_truncation_is_refused() {
        let bytes = trained().to_bytes();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x40;
            assert!(Importance::from_bytes(&broken).is_err(), "byte {at}");
            assert!(Importance::from_bytes(&bytes[..at]).is_err(), "length {at}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Importance::from_bytes(&longer).is_err());
    }

    #[test]
    fn a_score_out_of_range_is_refused_even_with_a_good_checksum() {
        for score in [f32::NAN, f32::INFINITY, 0.0, 5.0] {
            let mut table = trained();
            table.scores[2] = score;
            let error = Importance::from_bytes(&table.to_bytes()).unwrap_err();
            assert_eq!(error.offset, 16 + 8, "{error}");
        }
    }
}
