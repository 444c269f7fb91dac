//! Batches of one aspect ratio: a list is dealt over batches of all ranks that are of one bucket
//! each.
//!
//! The list is gone through from its beginning, and each bucket's next samples make a batch as soon
//! as there are enough. What is left of the buckets at the list's end, less than a batch of each,
//! makes batches in the order of the ratios, so that such a batch has neighbours. So each sample
//! comes as often as before, and batches have as many samples as they would have. Where the tail is
//! dropped, it is the samples at the list's end, whatever they are. A repeat waits for the next
//! batch of its bucket.
//!
//! An order without a purpose is random over batches, too: without that a rare bucket would always
//! come late, and what was left would come last. Other orders stay within each bucket.
//!
//! A batch of all ranks has the size that most of its samples are near. It follows from the plan's
//! samples, so that any batches may be made of any plan: those of a state with other ranks, too.

use shade_formats::SampleId;
use shade_formats::limits::BUCKETS_MAX;
use shade_job::PlanSpec;

use super::inputs::EpochInputs;
use super::list::List;
use super::random::Stage;
use super::samplers::keeps_order;
use crate::number::to_u32;

/// A bucket's batch that is not full.
#[derive(Clone, Default)]
struct Open {
    /// Batches of the bucket before it.
    number: u32,
    places: Vec<u32>,
    /// Repeats of its samples.
    later: Vec<u32>,
}

/// The same deliveries, by buckets if there are some.
pub(super) fn by_buckets(list: List, all: &EpochInputs<'_>) -> List {
    let List { ids, weights, summary } = list;
    if all.facts.buckets.is_empty() {
        return List { ids, weights, summary };
    }
    let slices = all.slices().of_len(to_u32(ids.len()));
    let mut sizes = slices.batch_sizes();
    sizes.truncate(slices.batches_per_epoch() as usize);
    let delivered = sizes.iter().sum::<u32>();
    let batches = deal(&ids[..delivered as usize], all.facts.buckets, &sizes);
    let mut turns: Vec<u32> = (0..to_u32(batches.len())).collect();
    if is_any_order(all.spec) {
        all.random(Stage::Bucket).shuffle(&mut turns[..full_batches(&sizes)]);
    }
    let dealt = turns.iter().flat_map(|&turn| batches[turn as usize].iter().copied());
    let places: Vec<u32> = dealt.chain(delivered..to_u32(ids.len())).collect();
    assert_eq!(places.len(), ids.len(), "all is dealt");
    List {
        ids: places.iter().map(|&place| ids[place as usize]).collect(),
        weights: places.iter().map(|&place| weights[place as usize]).collect(),
        summary,
    }
}

/// Whether the order of deliveries has no purpose.
fn is_any_order(spec: &PlanSpec) -> bool {
    !keeps_order(spec.sampler) && !spec.spaces_repeats() && !spec.order.asks_for_residents()
}

/// Batches at the beginning that are as long as the first.
fn full_batches(sizes: &[u32]) -> usize {
    sizes.iter().take_while(|&size| Some(size) == sizes.first()).count()
}

/// The places of `ids` in batches of these sizes.
fn deal(ids: &[SampleId], buckets: &[u8], sizes: &[u32]) -> Vec<Vec<u32>> {
    let (full, len) = (full_batches(sizes), sizes.first().copied().unwrap_or(0) as usize);
    let mut open: Vec<Open> = vec![Open { number: 1, ..Open::default() }; BUCKETS_MAX];
    // By sample: the number of the last batch of its bucket that has it.
    let mut last = vec![0; buckets.len()];
    let mut batches = Vec::with_capacity(sizes.len());
    let mut next = Vec::new();
    for place in 0..to_u32(ids.len()) {
        next.push(place);
        while let Some(place) = next.pop() {
            let sample = ids[place as usize].index();
            let open = &mut open[usize::from(buckets[sample])];
            if std::mem::replace(&mut last[sample], open.number) == open.number {
                open.later.push(place);
                continue;
            }
            open.places.push(place);
            if open.places.len() == len && batches.len() < full {
                batches.push(std::mem::take(&mut open.places));
                open.number += 1;
                next.extend(open.later.drain(..).rev());
            }
        }
    }
    let mut left = open.into_iter().flat_map(|Open { places, later, .. }| places.into_iter().chain(later));
    for &size in &sizes[batches.len()..] {
        batches.push(left.by_ref().take(size as usize).collect());
    }
    batches
}
