//! The guard `cover`: a sample whose last delivery is `cover` epochs ago, or that was not delivered
//! in the first `cover` epochs, is put into the plan.
//!
//! It takes the place of a randomly chosen repeat, so the length stays. Repeats always suffice: an
//! epoch is as long as the dataset, so it has as many repeats as absent samples. The guard runs
//! after replication, which would drop what it put in.

use shade_formats::SampleId;

use crate::plan::random::{Random, Select};

/// Applies `counts`, which `cover` has changed, to the deliveries `ids`: a repeat that was taken
/// out gives its place to a sample that was put in, both chosen at random.
pub(super) fn cover_in_place(ids: &mut [SampleId], counts: &[u32], random: &mut Random) {
    let mut times = vec![0u32; counts.len()];
    for id in ids.iter() {
        times.get_mut(id.index()).into_iter().for_each(|times| *times += 1);
    }
    let mut added: Vec<SampleId> = Vec::new();
    // By sample: of `left` deliveries that are still to come, as many as this are taken out.
    let mut surplus = Vec::with_capacity(counts.len());
    for ((sample, &before), &after) in (0..).map(SampleId).zip(&times).zip(counts) {
        added.extend((after > before).then_some(sample));
        surplus.push(before.saturating_sub(after));
    }
    let mut left = times;
    let mut free = Vec::with_capacity(added.len());
    for (at, id) in ids.iter().enumerate() {
        let (Some(left), Some(surplus)) = (left.get_mut(id.index()), surplus.get_mut(id.index())) else {
            continue;
        };
        if *surplus > 0 && random.below(u64::from(*left)) < u64::from(*surplus) {
            *surplus -= 1;
            free.push(at);
        }
        *left -= 1;
    }
    random.shuffle(&mut added);
    for (at, id) in free.into_iter().zip(added) {
        if let Some(place) = ids.get_mut(at) {
            *place = id;
        }
    }
}

/// Changes `counts` in place; returns how many samples were put in.
pub(super) fn cover(counts: &mut [u32], forgotten: impl Fn(SampleId) -> bool, random: &mut Random) -> u32 {
    let repeats: u64 = counts.iter().map(|&count| u64::from(count.saturating_sub(1))).sum();
    let mut added = 0;
    // Marked here and set to 1 below, so that no repeat is taken from them.
    for (sample, count) in (0..).map(SampleId).zip(counts.iter_mut()) {
        if *count == 0 && u64::from(added) < repeats && forgotten(sample) {
            added += 1;
            *count = 1;
        }
    }
    let mut replaced = Select::new(u64::from(added), repeats);
    for count in counts.iter_mut() {
        *count -= replaced.next(count.saturating_sub(1), random);
    }
    added
}
