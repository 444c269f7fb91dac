//! The plan of a mixture: each batch has the parts of the dataset in one ratio.
//!
//! A part is drawn as a dataset of its own is, pass after pass: by its sampler, from the part's own
//! random numbers. An epoch takes as many deliveries of a part's passes as its batches have of it,
//! from where the epoch before stopped. So a part that ends before the epoch does begins its next
//! pass, and one that does not end goes on with its pass in the next epoch. Where epochs begin in
//! their passes follows from their number alone.
//!
//! `quotas` says how many rows each batch has of each part. Batches of one size have the ratio
//! among themselves: a short batch at an epoch's end does not move the others' rows. Within a batch
//! the parts change in random order, so that ranks share them; with `sequential` part follows part.
//!
//! Where a sampler goes by losses or deliveries, an epoch cannot go on with a pass that was drawn
//! by other ones. Then each epoch draws of a part as much as it needs, from what is known when it
//! begins. Its weights make up for the draw within the part: a draw that leaves samples out is
//! filled up by more draws, and weighs as much less, so that the part's share of the loss stays. An
//! epoch that takes a part of a part's draw delivers each sample as much more rarely, and `cover`
//! waits for as many more epochs.
//!
//! An order that goes by what is cached applies to an epoch's deliveries of a part. They are the
//! same samples whatever is cached, so that passes stay what they are.

use std::collections::BTreeMap;

use shade_formats::SampleId;
use shade_job::{Order, Parts, PlanSpec, Ratio, Sampler};

use super::inputs::{Draws, EpochInputs, Inputs, MixedPart};
use super::list::{List, PlanSummary, draw_list};
use super::orders::in_order;
use super::quotas::Quotas;
use super::random::Stage;
use super::samplers::keeps_order;
use crate::number::{to_u32, to_usize};

/// Deliveries of a part's passes, one pass after the other.
#[derive(Clone, Default)]
struct Stretch {
    /// Deliveries of earlier epochs.
    from: u128,
    len: usize,
}

/// Draws an epoch of a mixture.
pub(super) fn draw_mixture(all: &EpochInputs<'_>) -> List {
    let ratio = all.spec.parts.ratio();
    let (rows, stretches) = rows_of_batches(&ratio, all);
    let parts = parts(&ratio, all);
    let lists: Vec<List> =
        parts.iter().zip(&stretches).map(|(part, stretch)| draw_part(all, part, stretch)).collect();
    let mut summary = PlanSummary::default();
    lists.iter().for_each(|list| summary.add(list.summary));
    let len = lists.iter().map(|list| list.ids.len()).sum();
    let (mut ids, mut weights) = (Vec::with_capacity(len), Vec::with_capacity(len));
    let mut next = vec![0; lists.len()];
    let mut random = all.random(Stage::Blend);
    let mut turns: Vec<usize> = Vec::new();
    for rows in rows.chunks_exact(lists.len()) {
        turns.clear();
        turns.extend((0..).zip(rows).flat_map(|(part, &rows)| std::iter::repeat_n(part, rows as usize)));
        if !keeps_order(all.spec.sampler) {
            random.shuffle(&mut turns);
        }
        for &part in &turns {
            let (list, at) = (&lists[part], &mut next[part]);
            ids.push(list.ids[*at]);
            weights.push(list.weights[*at]);
            *at += 1;
        }
    }
    assert!(lists.iter().zip(&next).all(|(list, next)| list.ids.len() == *next), "all is dealt");
    List { ids, weights, summary }
}

/// The parts, in their order.
fn parts(ratio: &Ratio, all: &EpochInputs<'_>) -> Vec<MixedPart> {
    let rows = |term: &u64| (u64::from(all.batch_size) * term).div_ceil(ratio.sum).max(1);
    let of_plan = &all.spec.parts;
    let drawn = of_plan.ranges().zip(of_plan.samplers(all.spec.sampler));
    (0..)
        .zip(drawn.zip(&ratio.terms))
        .map(|(number, ((ids, sampler), term))| MixedPart {
            number,
            ids,
            sampler,
            rows: to_usize(rows(term)),
        })
        .collect()
}

/// Rows of each part in each batch, batch after batch, and what the epoch takes of each part.
fn rows_of_batches(ratio: &Ratio, all: &EpochInputs<'_>) -> (Vec<u32>, Vec<Stretch>) {
    let batches = all.slices().batch_sizes();
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    batches.iter().for_each(|&size| *times.entry(size).or_default() += 1);
    let mut stretches = vec![Stretch::default(); ratio.terms.len()];
    let mut of_size = BTreeMap::new();
    for (size, times) in times {
        let (quotas, before) = Quotas::from(ratio, size, times * u64::from(all.epoch));
        stretches.iter_mut().zip(before).for_each(|(stretch, rows)| stretch.from += rows);
        of_size.insert(size, quotas);
    }
    let mut rows = Vec::with_capacity(batches.len() * stretches.len());
    for size in &batches {
        let Some(quotas) = of_size.get_mut(size) else { unreachable!("a size of no batch") };
        rows.extend(quotas.next());
    }
    for of_batch in rows.chunks_exact(stretches.len()) {
        stretches.iter_mut().zip(of_batch).for_each(|(stretch, &rows)| stretch.len += rows as usize);
    }
    (rows, stretches)
}

/// The deliveries of a part in this epoch.
fn draw_part(all: &EpochInputs<'_>, part: &MixedPart, stretch: &Stretch) -> List {
    let alone = PlanSpec { sampler: part.sampler, parts: Parts::NONE, ..*all.spec };
    let PlanSpec { sampler, order, .. } = alone;
    let is_by_residents = order.asks_for_residents() && sampler != Sampler::Echo && !keeps_order(sampler);
    // Some of what is drawn may be left, and must not be what is not cached.
    let spec = PlanSpec { order: if is_by_residents { Order::Shuffled } else { order }, ..alone };
    let mut list = match spec.is_by_importance() || spec.is_by_deliveries() {
        true => draw_draws(all, &spec, part, stretch.len),
        false => draw_passes(all, &spec, part, stretch),
    };
    let mut counts = vec![0_u32; part.ids.len()];
    list.ids.iter().for_each(|id| counts[part.place(*id)] += 1);
    list.summary.distinct = to_u32(counts.iter().filter(|&&count| count > 0).count());
    list.summary.repeat_max = counts.iter().copied().max().unwrap_or(0);
    if is_by_residents { by_residents(all, &alone, part, list, counts) } else { list }
}

/// `len` deliveries that are drawn from what is known now.
#[expect(clippy::cast_possible_truncation, reason = "a share of the draws, rounded")]
fn draw_draws(all: &EpochInputs<'_>, spec: &PlanSpec, part: &MixedPart, len: usize) -> List {
    let mut draws = List { ids: Vec::new(), weights: Vec::new(), summary: PlanSummary::default() };
    let each_once = PlanSpec { sampler: Sampler::Uniform, ..*spec };
    let samples = part.ids.len();
    // Epochs that take as much as one draw. What the first of several has put in is not forgotten.
    let epochs = to_u32(samples.div_ceil(len.max(1)));
    let mut spec = PlanSpec { cover: spec.cover.saturating_mul(epochs), ..*spec };
    let mut turn = 0;
    while draws.ids.len() < len {
        let number = Draws { epoch: all.epoch, turn };
        let mut drawn = draw_list(&Inputs::of_part(all, &spec, part, number));
        if drawn.ids.is_empty() {
            // A sampler may leave out all samples of a small part, and the ratio asks for some.
            drawn = draw_list(&Inputs::of_part(all, &each_once, part, number));
        }
        let left = len - draws.ids.len();
        draws.summary.covered += drawn.summary.covered.min(to_u32(left));
        draws.summary.hit_cap_withheld += drawn.summary.hit_cap_withheld;
        // Where nothing weighs more for what is left out, nothing weighs less either: `seta`.
        let is_plain = drawn.weights.iter().all(|&weight| weight == 1.0);
        let share = if is_plain { 1.0 } else { (drawn.ids.len() as f64 / samples as f64) as f32 };
        draws.ids.extend(drawn.ids.into_iter().take(left));
        draws.weights.extend(drawn.weights.into_iter().take(left).map(|weight| weight * share));
        (turn, spec.cover) = (turn + 1, 0);
    }
    draws
}

/// The deliveries of passes.
fn draw_passes(all: &EpochInputs<'_>, spec: &PlanSpec, part: &MixedPart, stretch: &Stretch) -> List {
    let (mut ids, mut weights) = (Vec::with_capacity(stretch.len), Vec::with_capacity(stretch.len));
    let samples = part.ids.len();
    while ids.len() < stretch.len {
        let at = stretch.from + ids.len() as u128;
        let first = to_usize(at % samples as u128);
        // Passes have numbers of 32 bits, as epochs have. After the last one the first comes again.
        let epoch = to_u32(at / samples as u128 % (1 << 32));
        let pass = draw_list(&Inputs::of_part(all, spec, part, Draws { epoch, turn: 0 }));
        assert_eq!(pass.ids.len(), samples, "a pass is as long as its part");
        let last = samples.min(first + stretch.len - ids.len());
        ids.extend_from_slice(&pass.ids[first..last]);
        weights.extend_from_slice(&pass.weights[first..last]);
    }
    List { ids, weights, summary: PlanSummary::default() }
}

/// The same deliveries in the order that goes by residents.
fn by_residents(
    all: &EpochInputs<'_>,
    alone: &PlanSpec,
    part: &MixedPart,
    list: List,
    counts: Vec<u32>,
) -> List {
    let inputs = Inputs::of_part(all, alone, part, Draws { epoch: all.epoch, turn: 0 });
    // By sample: where its weights begin among those of all, sorted by sample.
    let ends = counts.iter().scan(0, |end, &count| {
        *end += count as usize;
        Some(*end)
    });
    let mut next: Vec<usize> = ends.zip(&counts).map(|(end, &count)| end - count as usize).collect();
    let mut sorted: Vec<(usize, f32)> = list.ids.iter().map(|id| part.place(*id)).zip(list.weights).collect();
    sorted.sort_by_key(|&(place, _)| place);
    let ids = inputs.as_samples(in_order(counts, alone.order, &inputs));
    let weight = |id: &SampleId| {
        let at = &mut next[part.place(*id)];
        *at += 1;
        sorted[*at - 1].1
    };
    let weights = ids.iter().map(weight).collect();
    List { ids, weights, summary: list.summary }
}
