//! The stage `pace`: expected misses are spread evenly over batches and over ranks, so that storage
//! is read at a steady rate.
//!
//! A position is expected to miss where its sample comes for the first time in the epoch and was
//! not resident when the epoch began; repeats are taken for hits. Within windows of 20 batches,
//! misses of batches that have too many change places with hits of batches that have too few; no
//! sample comes twice in a batch for that. In the order `spaced` only samples that come once do, so
//! that repeats stay as far apart as they are. Then each batch puts its misses in a row that begins
//! where the row of the batch before ended. Rank r of W takes every W-th position, so every rank
//! has its equal share, whatever W is. Within a batch the order means nothing to training.

use shade_formats::SampleId;

use super::random::Random;

/// Batches within which samples move.
const WINDOW_BATCHES: usize = 20;

/// Changes the order of `ids`. `resident` says by sample what was in the cache when the epoch
/// began. Repeats may have to stay in their batches.
pub(super) fn pace(
    ids: &mut [SampleId],
    resident: &[bool],
    repeats_stay: bool,
    batch_size: usize,
    random: &mut Random,
) {
    // By sample: it comes more than once, and stays in its batches.
    let mut stays = vec![false; resident.len()];
    if repeats_stay {
        let mut came = vec![false; resident.len()];
        ids.iter().for_each(|id| stays[id.index()] |= std::mem::replace(&mut came[id.index()], true));
    }
    let mut seen = resident.to_vec();
    let mut misses: Vec<bool> =
        ids.iter().map(|id| !std::mem::replace(&mut seen[id.index()], true)).collect();
    let window = WINDOW_BATCHES.saturating_mul(batch_size);
    for (ids, misses) in ids.chunks_mut(window).zip(misses.chunks_mut(window)) {
        even_out(ids, misses, &stays, batch_size, random);
    }
    let mut row = 0;
    for (ids, misses) in ids.chunks_mut(batch_size).zip(misses.chunks(batch_size)) {
        row = line_up(ids, misses, row % batch_size);
    }
}

/// Gives each batch of the window as many misses as the others, as far as they come out even
/// without the samples that stay.
fn even_out(
    ids: &mut [SampleId],
    misses: &mut [bool],
    stays: &[bool],
    batch_size: usize,
    random: &mut Random,
) {
    let total = misses.iter().filter(|&&miss| miss).count();
    // Misses that the positions up to `position` should have.
    let share = |position: usize| position.min(ids.len()) * total / ids.len();
    let (mut surplus, mut wanting) = (Vec::new(), Vec::new());
    for start in (0..ids.len()).step_by(batch_size) {
        let end = (start + batch_size).min(ids.len());
        let target = share(end) - share(start);
        let has = misses[start..end].iter().filter(|&&miss| miss).count();
        let (too_many, list) = if has > target { (true, &mut surplus) } else { (false, &mut wanting) };
        let may_move = |&at: &usize| misses[at] == too_many && !stays[ids[at].index()];
        let mut movable: Vec<usize> = (start..end).filter(may_move).collect();
        random.shuffle(&mut movable);
        list.extend(movable.into_iter().take(has.abs_diff(target)));
    }
    // Both lists have the same length if all may move. Where a pair would put a sample twice into a
    // batch the next one is tried.
    for from in surplus {
        let fits = |&to: &usize| {
            !batch_of(ids, to, batch_size).contains(&ids[from])
                && !batch_of(ids, from, batch_size).contains(&ids[to])
        };
        if let Some(at) = wanting.iter().position(fits) {
            let to = wanting.swap_remove(at);
            ids.swap(from, to);
            misses.swap(from, to);
        }
    }
}

/// The batch that holds a position.
fn batch_of(ids: &[SampleId], position: usize, batch_size: usize) -> &[SampleId] {
    let start = position - position % batch_size;
    &ids[start..ids.len().min(start + batch_size)]
}

/// Puts the misses of a batch at the positions from `row` on, around its end. Returns the position
/// behind them.
fn line_up(ids: &mut [SampleId], misses: &[bool], row: usize) -> usize {
    let of =
        |wanted: bool| ids.iter().zip(misses).filter(move |&(_, &miss)| miss == wanted).map(|(&id, _)| id);
    let count = of(true).count();
    let lined_up: Vec<SampleId> = of(true).chain(of(false)).collect();
    let len = ids.len();
    for (place, id) in (row..).zip(lined_up) {
        ids[place % len] = id;
    }
    (row + count) % len.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::random::Stage;

    const BATCH: usize = 32;

    fn paced(ids: &[SampleId], resident: &[bool], batch_size: usize) -> Vec<SampleId> {
        paced_or_not(ids, resident, false, batch_size)
    }

    fn paced_or_not(
        ids: &[SampleId],
        resident: &[bool],
        repeats_stay: bool,
        batch_size: usize,
    ) -> Vec<SampleId> {
        let mut paced = ids.to_vec();
        pace(&mut paced, resident, repeats_stay, batch_size, &mut Random::new(3, 1, Stage::Pace));
        paced
    }

    fn misses(ids: &[SampleId], resident: &[bool]) -> Vec<bool> {
        let mut seen = resident.to_vec();
        ids.iter().map(|id| !std::mem::replace(&mut seen[id.index()], true)).collect()
    }

    fn counts(misses: &[bool], chunk: usize) -> Vec<usize> {
        misses.chunks(chunk).map(|batch| batch.iter().filter(|&&miss| miss).count()).collect()
    }

    #[test]
    fn batches_and_ranks_of_a_permutation_miss_alike() {
        let mut ids: Vec<SampleId> = (0..12_800).map(SampleId).collect();
        Random::new(1, 1, Stage::Shuffle).shuffle(&mut ids);
        let resident: Vec<bool> = (0..12_800).map(|id| id % 10 < 3).collect();
        let before = counts(&misses(&ids, &resident), BATCH);
        let ids = paced(&ids, &resident, BATCH);
        let misses = misses(&ids, &resident);
        let after = counts(&misses, BATCH);
        // 22.4 of 32 miss on average, before with a standard deviation of 2.6.
        assert!(before.iter().max() >= Some(&28) && before.iter().min() <= Some(&17), "{before:?}");
        assert!(after.iter().max() <= Some(&24) && after.iter().min() >= Some(&21), "{after:?}");
        for world in [2, 4, 8] {
            for (batch, misses) in misses.chunks(BATCH * world).enumerate() {
                let of = |rank: usize| misses.iter().skip(rank).step_by(world).filter(|&&miss| miss).count();
                let (least, most) =
                    ((0..world).map(of).min().unwrap_or(0), (0..world).map(of).max().unwrap_or(0));
                assert!(most - least <= 2, "batch {batch} of {world} ranks: {least} to {most}");
            }
        }
    }

    proptest! {
        #[test]
        fn repeats_stay_in_their_batches_where_they_must(
            ids in prop::collection::vec(0..300u32, 1..700), batch_size in 1..20usize, kept in 0..300u32
        ) {
            let ids: Vec<SampleId> = ids.into_iter().map(SampleId).collect();
            let resident: Vec<bool> = (0..300).map(|id| id < kept).collect();
            let after = paced_or_not(&ids, &resident, true, batch_size);
            let repeated = |id: &SampleId| ids.iter().filter(|other| *other == id).count() > 1;
            for (before, after) in ids.chunks(batch_size).zip(after.chunks(batch_size)) {
                let of = |batch: &[SampleId]| {
                    let mut ids: Vec<SampleId> = batch.iter().copied().filter(repeated).collect();
                    ids.sort_unstable();
                    ids
                };
                prop_assert_eq!(of(before), of(after));
            }
        }

        #[test]
        fn samples_move_within_their_window_and_never_meet_in_a_batch(
            ids in prop::collection::vec(0..300u32, 1..700), batch_size in 1..20usize, kept in 0..300u32
        ) {
            let ids: Vec<SampleId> = ids.into_iter().map(SampleId).collect();
            let resident: Vec<bool> = (0..300).map(|id| id < kept).collect();
            let after = paced(&ids, &resident, batch_size);
            let window = batch_size * WINDOW_BATCHES;
            for (before, after) in ids.chunks(window).zip(after.chunks(window)) {
                let sorted = |ids: &[SampleId]| { let mut ids = ids.to_vec(); ids.sort_unstable(); ids };
                prop_assert_eq!(sorted(before), sorted(after));
            }
            let repeats = |ids: &[SampleId]| -> usize {
                ids.chunks(batch_size).map(|batch| {
                    let mut batch = batch.to_vec();
                    let len = batch.len();
                    batch.sort_unstable();
                    batch.dedup();
                    len - batch.len()
                }).sum()
            };
            prop_assert!(repeats(&after) <= repeats(&ids));
        }
    }
}
