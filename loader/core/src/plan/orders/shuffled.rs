//! The order `shuffled`: one seeded shuffle of the whole epoch.

use shade_formats::SampleId;

use super::ordered::Ordered;
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Draws of a sample that are listed in one go; few samples have more.
const AT_ONCE: usize = 4;

/// Lists each sample as often as `counts` says.
pub(super) fn shuffled(counts: &[u32], inputs: &Inputs<'_>) -> Ordered {
    let mut ids = with_room(counts);
    list(&mut ids, counts, |_| true);
    if inputs.is_coupled() {
        return in_places(ids, inputs).into();
    }
    inputs.random(Stage::Shuffle).shuffle(&mut ids);
    ids.into()
}

/// In a group each delivery of a sample has a place of its own in the epoch, whatever else is
/// delivered. So jobs that deliver nearly the same samples deliver them at nearly the same time.
fn in_places(ids: Vec<SampleId>, inputs: &Inputs<'_>) -> Vec<SampleId> {
    let mut use_of = 0;
    let mut last = None;
    let mut placed: Vec<(u64, SampleId)> = Vec::with_capacity(ids.len());
    for id in ids {
        use_of = if last == Some(id) { use_of + 1 } else { 0 };
        last = Some(id);
        let key = [inputs.epoch, inputs.sample(id).0, use_of].map(u32::to_le_bytes);
        let place = xxhash_rust::xxh3::xxh3_64_with_seed(key.as_flattened(), inputs.seed());
        placed.push((place, id));
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, id)| id).collect()
}

/// An empty list with room for all draws.
pub(super) fn with_room(counts: &[u32]) -> Vec<SampleId> {
    let len: usize = counts.iter().map(|&count| count as usize).sum();
    Vec::with_capacity(len + AT_ONCE)
}

/// Appends the draws of the chosen samples, by sample. Counts follow no pattern, so the branches of
/// a plain loop would be mispredicted half of the time. So `AT_ONCE` draws are appended whatever
/// the count, and those too many are taken off again.
pub(super) fn list(ids: &mut Vec<SampleId>, counts: &[u32], chosen: impl Fn(usize) -> bool) {
    for ((sample, &count), id) in counts.iter().enumerate().zip((0..).map(SampleId)) {
        let count = if chosen(sample) { count as usize } else { 0 };
        let end = ids.len() + count;
        ids.extend_from_slice(&[id; AT_ONCE]);
        if count > AT_ONCE {
            ids.extend(std::iter::repeat_n(id, count - AT_ONCE));
        }
        ids.truncate(end);
    }
}
