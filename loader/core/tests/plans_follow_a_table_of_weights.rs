//! Plans of `weighted` and `balanced`: samples come in proportion to a table, which all ranks have.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::replay::{Replay, Taken, index, index_of, spec};
use shade_core::Event;
use shade_core::importance::Importance;
use shade_core::plan::{Plan, SampleFacts, draw_plan};
use shade_formats::checksum::crc32c;
use shade_formats::ring::FLAG_SUBSTITUTED;
use shade_job::{JobSpec, OnError, Part, Parts, PlanSpec, Policy, Sampler, Tables, WeightTable};

const BATCH_SIZE: u32 = 8;
/// The guard must not bring back samples of weight 0: it is on, and nothing was ever delivered.
fn with() -> PlanSpec {
    PlanSpec { sampler: Sampler::Weighted, cover: 1, ..PlanSpec::default() }
}

fn without() -> PlanSpec {
    PlanSpec { replacement: false, ..with() }
}

fn table(values: &[f64]) -> WeightTable {
    WeightTable::new(values.iter().copied()).unwrap()
}

/// 50 weights, every tenth of them 0.
fn fifty() -> Vec<f64> {
    (0..50u32).map(|id| f64::from(id % 10) * (1.0 + f64::from(id) / 7.0)).collect()
}

fn draw(spec: &PlanSpec, epoch: u32, table: &WeightTable) -> Plan {
    let importance = Importance::new(u32::try_from(table.weights().len()).unwrap());
    let facts = SampleFacts { weights: Some(table), ..(&importance).into() };
    draw_plan(spec, epoch, BATCH_SIZE, facts, |_| false, 1.0)
}

fn counts(plan: &Plan, samples: usize) -> Vec<u32> {
    let mut counts = vec![0; samples];
    plan.ids.iter().for_each(|id| counts[id.index()] += 1);
    counts
}

/// How often each sample is expected in an epoch.
fn expected(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values.iter().map(|value| value / sum * values.len() as f64).collect()
}

/// Pearson's statistic: its mean is the degrees of freedom, its variance twice that.
#[test]
fn with_replacement_samples_come_in_proportion_to_their_weights() {
    let (values, epochs) = (fifty(), 400);
    let mut drawn = vec![0; values.len()];
    for epoch in 0..epochs {
        let plan = draw(&with(), epoch, &table(&values));
        assert_eq!((plan.ids.len(), plan.summary.covered), (values.len(), 0));
        counts(&plan, values.len()).iter().zip(&mut drawn).for_each(|(count, sum)| *sum += count);
    }
    let mut statistic = 0.0;
    for (&count, uses) in drawn.iter().zip(expected(&values)) {
        let uses = uses * f64::from(epochs);
        if uses > 0.0 {
            statistic += (f64::from(count) - uses).powi(2) / uses;
        } else {
            assert_eq!(count, 0, "a weight of 0 is never drawn");
        }
    }
    // 44 degrees of freedom: 44 ± 5 · 9.4.
    assert!((10.0..91.0).contains(&statistic), "{statistic}");
}

#[test]
fn without_replacement_a_sample_comes_as_often_as_expected_rounded_up_or_down() {
    let (values, epochs) = (fifty(), 400);
    let uses = expected(&values);
    let mut drawn = vec![0; values.len()];
    for epoch in 0..epochs {
        let plan = draw(&without(), epoch, &table(&values));
        assert_eq!((plan.ids.len(), plan.summary.covered), (values.len(), 0));
        for ((count, sum), uses) in counts(&plan, values.len()).iter().zip(&mut drawn).zip(&uses) {
            assert!((uses.floor()..=uses.ceil()).contains(&f64::from(*count)), "{count} of {uses}");
            *sum += count;
        }
    }
    for (&sum, uses) in drawn.iter().zip(&uses) {
        let deviation = (f64::from(epochs) * uses.fract() * (1.0 - uses.fract())).sqrt();
        let distance = (f64::from(sum) - uses * f64::from(epochs)).abs();
        assert!(distance <= 5.0 * deviation, "{sum} against {uses} an epoch");
    }
}

#[test]
fn loss_weights_undo_the_table() {
    let values = fifty();
    let uses = expected(&values);
    for spec in [with(), without()] {
        let epochs = 2000;
        let (mut sum, mut plain) = (0.0, 0.0);
        for epoch in 0..epochs {
            let plan = draw(&spec, epoch, &table(&values));
            for (id, &weight) in plan.ids.iter().zip(&plan.weights) {
                assert!((f64::from(weight) * uses[id.index()] - 1.0).abs() < 1e-6, "{id}: {weight}");
                sum += f64::from(weight) * f64::from(id.0);
            }
        }
        (0..50u32).filter(|id| id % 10 > 0).for_each(|id| plain += f64::from(id));
        let mean = sum / f64::from(epochs);
        assert!((mean / plain - 1.0).abs() < 0.01, "{mean} against {plain}");
    }
}

#[test]
fn equal_weights_without_replacement_are_a_permutation() {
    for samples in [1, 2, 1000] {
        let equal = table(&vec![0.3; samples]);
        let plan = draw(&without(), 3, &equal);
        assert_eq!(counts(&plan, samples), vec![1; samples]);
        assert!(plan.weights.iter().all(|&weight| weight == 1.0));
    }
}

#[test]
fn extreme_tables_have_plans() {
    for spec in [with(), without()] {
        assert_eq!(draw(&spec, 0, &table(&[5.0])).ids.len(), 1);
        let one_of_many = draw(&spec, 0, &table(&[0.0, 0.0, 1e-300, 0.0]));
        assert_eq!(counts(&one_of_many, 4), [0, 0, 4, 0]);
        assert_eq!(one_of_many.weights, [0.25; 4]);
        let far_apart = draw(&spec, 0, &table(&[1e-300, 1e300, 1.0]));
        assert_eq!(counts(&far_apart, 3), [0, 3, 0]);
        // The largest table for which sums are still exact: weights of 2³² - 1.
        let most = WeightTable::from_bytes(&[0xff; 4 * 1000], 1000).unwrap();
        assert_eq!(draw(&spec, 0, &most).ids.len(), 1000);
    }
    assert_eq!(counts(&draw(&without(), 0, &table(&[1.0, 2.0, 3.0])), 3)[1], 1);
}

/// Nodes of different builds draw the same plan only while these stay, see `plan_draws`.
#[test]
fn plans_are_what_they_were_and_seed_and_epoch_change_them() {
    let fifty = table(&fifty());
    let digest = |spec: &PlanSpec, epoch| {
        let plan = draw(spec, epoch, &fifty);
        let ids = plan.ids.iter().flat_map(|id| id.0.to_le_bytes());
        let weights = plan.weights.iter().flat_map(|weight| weight.to_bits().to_le_bytes());
        format!("{:08x}", crc32c(&ids.chain(weights).collect::<Vec<u8>>()))
    };
    assert_eq!([digest(&with(), 0), digest(&without(), 0)], ["0fef7686", "eec03908"]);
    for spec in [with(), without()] {
        assert_ne!(digest(&spec, 0), digest(&spec, 1));
        assert_ne!(digest(&spec, 0), digest(&PlanSpec { seed: 1, ..spec }, 0));
    }
}

fn ids(taken: &[Taken]) -> Vec<u32> {
    taken.iter().flat_map(|taken| taken.ids.clone()).collect()
}

#[test]
fn balanced_draws_all_classes_alike_from_the_first_epoch_on_and_any_number_of_ranks() {
    // 400, 100, 75 and 25 samples.
    let label =
        |id: u32| [0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3][id as usize % 24];
    let sizes = [16, 4, 3, 1].map(|of_24| of_24 * 25);
    for (replacement, world_size) in [(true, 1), (false, 1), (false, 3)] {
        let plan = PlanSpec { sampler: Sampler::Balanced, replacement, ..PlanSpec::default() };
        let job = JobSpec { plan, ..spec(10, world_size) };
        let index = index_of(600, 4, |_| 300, |id, entry| entry.label = label(id));
        let mut replay = Replay::new(index, Policy::Lookahead, 100 * 512, 4, 1);
        replay.attach_all(&job, 0);
        for epoch in 0..3 {
            let taken = replay.epoch(epoch);
            let mut by_class = [0u32; 4];
            let mut by_sample = vec![0; 600];
            for id in ids(&taken) {
                by_class[label(id) as usize] += 1;
                by_sample[id as usize] += 1;
            }
            assert_eq!(by_class.iter().sum::<u32>(), 600);
            // 150 each. With replacement the standard deviation is 10.6; without it, below 5.
            let most = if replacement { 53 } else { 15 };
            assert!(by_class.iter().all(|count| count.abs_diff(150) <= most), "{by_class:?}");
            for (id, &count) in (0..).zip(&by_sample).filter(|_| !replacement) {
                let uses = 150.0 / f64::from(sizes[label(id) as usize]);
                assert!((uses.floor()..=uses.ceil()).contains(&f64::from(count)), "{id}: {count} of {uses}");
            }
        }
        assert!(replay.core().stats(0).total.counts.counts.hits > 0, "repeats hit");
    }
}

/// The next sample of a bad one's class has weight 0: it is no substitute, unless its part of a
/// mixture is not drawn by the table.
#[test]
fn a_sample_of_weight_0_is_no_substitute() {
    let values: Vec<f64> = (0..100u32).map(|id| f64::from(id % 2)).collect();
    let part = |samples, sampler| Part { samples, share: 1.0, sampler };
    let own = Parts::new(&[part(60, None), part(40, Some(Sampler::Uniform))]).unwrap();
    for parts in [Parts::NONE, own] {
        let mut plan = PlanSpec { parts, ..without() };
        let tables = Tables { weights: Some(table(&values)), subset: None };
        tables.name_in(&mut plan);
        let job = JobSpec { plan, on_error: OnError::Substitute, bad_max: 1.0, ..spec(10, 1) };
        let mut replay = Replay::new(index(100, 5, |_| 300), Policy::Lru, 20_000, 4, 1);
        replay.bad.extend((0..100).filter(|id| id % 11 == 3));
        replay.attach_with(0, 0, &job, tables);
        let taken = (0..3).flat_map(|epoch| replay.epoch(epoch)).collect::<Vec<_>>();
        let rows = taken.iter().flat_map(|taken| taken.ids.iter().zip(&taken.flags));
        let substitutes: Vec<u32> =
            rows.filter(|&(_, flags)| flags & FLAG_SUBSTITUTED > 0).map(|(&id, _)| id).collect();
        assert!(substitutes.contains(&13) && replay.errors.is_empty(), "in the place of 3: {substitutes:?}");
        let is_drawn = |&id: &u32| id % 2 == 1 || (!parts.is_empty() && id >= 60);
        assert!(ids(&taken).iter().all(is_drawn), "{taken:?}");
        assert_eq!(substitutes.contains(&74), !parts.is_empty(), "in the place of 69: {substitutes:?}");
    }
}

#[test]
fn a_job_without_its_table_or_labels_is_refused_by_name() {
    let table = |samples: u32| WeightTable::new((0..samples).map(f64::from)).unwrap();
    let weighted = |samples| {
        let plan = PlanSpec { weights_digest: table(samples).digest(), ..with() };
        JobSpec { plan, ..spec(10, 2) }
    };
    let mut replay = Replay::new(index(100, 1, |_| 300), Policy::Lru, 20_000, 4, 1);
    replay.attach_with(0, 0, &weighted(100), None);
    replay.attach_with(1, 0, &weighted(99), Some(table(99)));
    replay.attach_with(2, 0, &weighted(100), Some(WeightTable::new((1..=100).map(f64::from)).unwrap()));
    let plan = PlanSpec { sampler: Sampler::Balanced, ..PlanSpec::default() };
    replay.attach_with(3, 0, &JobSpec { plan, ..spec(10, 2) }, None);
    // The job is as the first rank asks for it.
    replay.attach_with(4, 0, &weighted(100), Some(table(100)));
    let other = WeightTable::new((0..100).map(|id| f64::from(id) + 0.5)).unwrap();
    let plan = PlanSpec { weights_digest: other.digest(), ..with() };
    replay.attach_with(5, 1, &JobSpec { plan, ..spec(10, 2) }, Some(other));
    // A second rank that names the right table and has another.
    replay.attach_with(6, 1, &weighted(100), Some(WeightTable::new((1..=100).map(f64::from)).unwrap()));
    let expected = [
        "the sampler weighted needs a table",
        "has 99 of them, and the dataset has 100 samples",
        "has the digest",
        "the sampler balanced goes by the samples' labels, and this dataset has fewer than two",
        "other arguments",
        "has the digest",
    ];
    assert_eq!(replay.refused.len(), expected.len(), "{:?}", replay.refused);
    for (text, part) in replay.refused.iter().zip(expected) {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_state_is_not_loaded_into_a_job_with_another_table() {
    let weighted = |factor: f64| {
        let table = WeightTable::new((0..100u32).map(|id| 1.0 + factor * f64::from(id))).unwrap();
        let plan = PlanSpec { weights_digest: table.digest(), ..without() };
        let mut replay = Replay::new(index(100, 1, |_| 300), Policy::Lru, 20_000, 4, 1);
        replay.attach_with(0, 0, &JobSpec { plan, ..spec(10, 1) }, Some(table));
        replay
    };
    let mut first = weighted(1.0);
    first.epoch(0);
    let state = first.save(1, 0);
    let mut same = weighted(1.0);
    same.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
    assert_eq!(ids(&same.epoch(1)), ids(&first.epoch(1)));
    let mut other = weighted(2.0);
    other.step(Event::LoadState { strata: 0, session: 0, bytes: state });
    assert!(other.failed[0].contains("the same plan arguments, weights and indices"), "{:?}", other.failed);
}
