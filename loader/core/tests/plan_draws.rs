//! What a plan promises: the same from the same inputs, the right frequencies, the guards, unbiased
//! weights.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use shade_core::importance::{Importance, SCORE_MAX, rank, score_of_loss};
use shade_core::plan::{Plan, draw_plan};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_job::{Order, PlanSpec, Sampler};

const BATCH_SIZE: u32 = 8;

fn uniform() -> PlanSpec {
    PlanSpec { sampler: Sampler::Uniform, ..PlanSpec::default() }
}

/// Without guards.
fn pads(rep: f64) -> PlanSpec {
    PlanSpec { sampler: Sampler::Pads, rep, hit_cap: 1.0, cover: 0, ..PlanSpec::default() }
}

/// Every third sample is resident.
fn third(id: SampleId) -> bool {
    id.0.is_multiple_of(3)
}

/// Scores 2.25 to 4.25, all different for up to 2^20 samples; made without a logarithm.
fn table(samples: u32) -> Importance {
    let mut importance = Importance::new(samples);
    for id in 0..samples {
        let place = u64::from(id) * 7919 % u64::from(samples);
        importance.set_score(SampleId(id), 2.25 + 2.0 * place as f32 / samples as f32);
    }
    importance
}

fn counts(plan: &Plan, samples: u32) -> Vec<u32> {
    let mut counts = vec![0; samples as usize];
    for id in &plan.ids {
        counts[id.index()] += 1;
    }
    assert_eq!(plan.ids.len(), plan.weights.len());
    assert_eq!(plan.summary.distinct as usize, counts.iter().filter(|&&count| count > 0).count());
    assert_eq!(plan.summary.repeat_max, counts.iter().copied().max().unwrap_or(0));
    counts
}

fn digest(plan: &Plan) -> u32 {
    let ids = plan.ids.iter().flat_map(|id| id.0.to_le_bytes());
    let weights = plan.weights.iter().flat_map(|weight| weight.to_bits().to_le_bytes());
    crc32c(&ids.chain(weights).collect::<Vec<u8>>())
}

/// Nodes of different builds draw the same plan only while these stay: a change of any stage must
/// be meant, and then needs a new domain string in `random`.
#[test]
fn plans_are_what_they_were() {
    let importance = table(1000);
    let draw =
        |spec: PlanSpec, epoch| digest(&draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, spec.rep));
    let guarded =
        PlanSpec { sampler: Sampler::Pads, rep: 2.5, hit_cap: 0.6, cover: 3, ..PlanSpec::default() };
    let digests = [
        draw(uniform(), 0),
        draw(PlanSpec { explore: 0.25, ..pads(1.0) }, 1),
        draw(PlanSpec { seed: 7, ..guarded }, 2),
        draw(PlanSpec { order: Order::HitsFirst, ..guarded }, 2),
    ];
    assert_eq!(
        digests.map(|digest| format!("{digest:08x}")),
        ["2eb5543f", "a88715f3", "ca6ab423", "40500e18"]
    );
}

#[test]
fn equal_inputs_give_equal_plans_and_seed_and_epoch_change_them() {
    let importance = table(500);
    for spec in [uniform(), pads(2.0)] {
        let draw = |spec: &PlanSpec, epoch| draw_plan(spec, epoch, BATCH_SIZE, &importance, third, spec.rep);
        assert_eq!(draw(&spec, 3), draw(&spec, 3));
        assert_ne!(draw(&spec, 3).ids, draw(&spec, 4).ids);
        assert_ne!(draw(&spec, 3).ids, draw(&PlanSpec { seed: 1, ..spec }, 3).ids);
    }
}

#[test]
fn uniform_and_the_first_epoch_are_permutations_whatever_rep_says() {
    let importance = table(500);
    for (spec, epoch) in
        [(uniform(), 0), (uniform(), 9), (pads(3.0), 0), (PlanSpec { rep: 3.0, ..uniform() }, 5)]
    {
        let plan = draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, spec.rep);
        assert_eq!(counts(&plan, 500), [1; 500]);
        assert_eq!(plan.weights, [1.0; 500]);
        assert_eq!(plan.epoch, epoch);
    }
}

/// Pearson's statistic over all epochs: its mean is the degrees of freedom, its variance twice
/// that.
#[test]
fn pads_draws_in_proportion_to_the_scores() {
    let (samples, epochs) = (50, 400);
    let importance = table(samples);
    for explore in [0.0, 0.5] {
        let spec = PlanSpec { explore, ..pads(1.0) };
        let mut drawn = vec![0; samples as usize];
        for epoch in 1..=epochs {
            let plan = draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, 1.0);
            counts(&plan, samples).iter().zip(&mut drawn).for_each(|(count, sum)| *sum += count);
        }
        let sum: f64 = (0..samples).map(|id| f64::from(importance.score(SampleId(id)))).sum();
        let statistic: f64 = (0..samples)
            .zip(&drawn)
            .map(|(id, &count)| {
                let share = f64::from(importance.score(SampleId(id))) / sum;
                let chance = (1.0 - explore) * share + explore / f64::from(samples);
                let expected = chance * f64::from(samples * epochs);
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        let freedom = f64::from(samples - 1);
        assert!((statistic - freedom).abs() < 4.0 * (2.0 * freedom).sqrt(), "explore {explore}: {statistic}");
    }
}

#[test]
fn equal_scores_are_drawn_equally_often() {
    let importance = Importance::new(100);
    let mut drawn = vec![0; 100];
    for epoch in 1..=200 {
        let plan = draw_plan(&pads(1.0), epoch, BATCH_SIZE, &importance, third, 1.0);
        counts(&plan, 100).iter().zip(&mut drawn).for_each(|(count, sum)| *sum += count);
        assert!(plan.weights.iter().all(|weight| (weight - 1.0).abs() < 1e-6));
    }
    // Standard deviation 14.
    assert!(drawn.iter().all(|count| count.abs_diff(200) < 75), "{drawn:?}");
}

#[test]
fn losses_that_are_all_nan_or_all_equal_still_give_plans() {
    for loss in [f32::NAN, f32::INFINITY, 0.7] {
        let mut importance = Importance::new(64);
        let ids: Vec<SampleId> = (0..64).map(SampleId).collect();
        for (id, score) in rank(&ids, &[loss; 64]).scores {
            importance.set_score(id, score);
        }
        let plan = draw_plan(&pads(1.0), 1, BATCH_SIZE, &importance, third, 1.0);
        assert_eq!(counts(&plan, 64).iter().sum::<u32>(), 64);
        assert!(plan.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0));
    }
}

#[test]
fn replication_keeps_the_length_and_respects_the_cap() {
    let samples = 3000;
    let importance = table(samples);
    let of_residents = |plan: &Plan| plan.ids.iter().filter(|id| third(**id)).count();
    for seed in 0..10 {
        let spec = |rep, hit_cap| PlanSpec { seed, hit_cap, ..pads(rep) };
        let draw = |spec: &PlanSpec| draw_plan(spec, 1, BATCH_SIZE, &importance, third, spec.rep);
        let plain = draw(&spec(1.0, 0.6));
        assert_eq!(plain.summary.hit_cap_withheld, 0);
        for rep in [1.25, 1.5, 2.0] {
            let plan = draw(&spec(rep, 1.0));
            assert_eq!(plan.ids.len(), samples as usize);
            assert!((of_residents(&plan) as f64 - rep * of_residents(&plain) as f64).abs() <= 0.5);
            assert_eq!(plan.summary.hit_cap_withheld, 0);
            // Replication only multiplies: a sample that was not drawn is not in.
            let drawn = counts(&plain, samples);
            assert!(
                counts(&plan, samples).iter().zip(&drawn).all(|(&count, &drawn)| drawn > 0 || count == 0)
            );
        }
        let capped = draw(&spec(3.0, 0.6));
        assert_eq!(capped.ids.len(), samples as usize);
        assert_eq!(of_residents(&capped), 1800);
        assert_eq!(capped.summary.hit_cap_withheld as usize, 3 * of_residents(&plain).min(1000) - 1800);
    }
}

#[test]
fn cover_delivers_the_forgotten_and_keeps_the_length() {
    let samples = 1000;
    let mut importance = table(samples);
    let spec = PlanSpec { cover: 4, hit_cap: 0.6, ..pads(3.0) };
    let mut covered = 0;
    for epoch in 0..30 {
        let plan = draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, spec.rep);
        let counts = counts(&plan, samples);
        assert_eq!(plan.ids.len(), samples as usize);
        for (id, count) in (0..samples).map(SampleId).zip(counts) {
            let age = importance.last_epoch(id).map_or(epoch + 1, |last| epoch - last);
            assert!(age < 4 || count > 0, "epoch {epoch}: sample {id} was last delivered {age} epochs ago");
            if count > 0 {
                importance.record_delivery(id, epoch);
            }
        }
        covered += plan.summary.covered;
    }
    assert!(covered > 0, "the guard never had to act: the test shows nothing");
    // Without it some sample is forgotten, and with `cover` 1 each epoch is a permutation.
    let off = draw_plan(&PlanSpec { cover: 0, ..spec }, 40, BATCH_SIZE, &importance, third, 3.0);
    assert!(counts(&off, samples).contains(&0));
    let all = draw_plan(&PlanSpec { cover: 1, ..spec }, 40, BATCH_SIZE, &importance, third, 3.0);
    assert_eq!(counts(&all, samples), vec![1; samples as usize]);
    assert!(all.summary.covered > 0);
}

/// The weighted mean of any quantity over the plans is its mean over the dataset. The quantity here
/// is as skewed as the scores, and for residents three times as large, so that a wrong factor of
/// either shows.
#[test]
fn weights_make_means_unbiased() {
    let samples = 300;
    let importance = table(samples);
    let value = |id: SampleId| f64::from(importance.score(id)) * if third(id) { 3.0 } else { 1.0 };
    let truth: f64 = (0..samples).map(|id| value(SampleId(id))).sum::<f64>() / f64::from(samples);
    for (rep, hit_cap) in [(1.0, 1.0), (1.7, 1.0), (3.0, 0.6)] {
        let spec = PlanSpec { hit_cap, explore: 0.1, ..pads(rep) };
        let epochs = 400;
        let (mut weighted, mut plain) = (0.0, 0.0);
        for epoch in 1..=epochs {
            let plan = draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, rep);
            for (&id, &weight) in plan.ids.iter().zip(&plan.weights) {
                weighted += value(id) * f64::from(weight);
                plain += value(id);
            }
        }
        let positions = f64::from(samples * epochs);
        let (weighted, plain) = (weighted / positions, plain / positions);
        assert!((weighted / truth - 1.0).abs() < 0.01, "rep {rep}: {weighted} instead of {truth}");
        assert!(
            (plain / truth - 1.0).abs() > 0.02,
            "rep {rep}: without weights the mean is biased, but is {plain}"
        );
    }
}

/// Unless it has more draws than there are full batches of its part of the epoch.
#[test]
fn no_batch_holds_a_sample_twice() {
    let mut checked = 0;
    for samples in [100, 1000] {
        let importance = table(samples);
        for (order, epoch) in (1..20).flat_map(|epoch| [(Order::Shuffled, epoch), (Order::HitsFirst, epoch)])
        {
            let spec = PlanSpec { order, ..pads(1.5) };
            let plan = draw_plan(&spec, epoch, BATCH_SIZE, &importance, third, spec.rep);
            let of_residents = plan.ids.iter().filter(|id| third(**id)).count();
            let part = if order == Order::HitsFirst { of_residents } else { samples as usize };
            if plan.summary.repeat_max as usize > part / BATCH_SIZE as usize {
                continue;
            }
            checked += 1;
            for batch in plan.ids.chunks(BATCH_SIZE as usize) {
                let mut distinct = batch.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), batch.len(), "{samples} samples, {order:?}, epoch {epoch}");
            }
        }
    }
    assert!(checked > 60, "only {checked} of 76 plans could be checked");
}

#[test]
fn datasets_of_one_sample_and_of_none() {
    let one = Importance::new(1);
    for spec in [uniform(), pads(3.0), PlanSpec { order: Order::HitsFirst, cover: 1, ..pads(3.0) }] {
        let plan = draw_plan(&spec, 1, BATCH_SIZE, &one, |_| true, 3.0);
        assert_eq!((plan.ids.as_slice(), plan.weights.as_slice()), (&[SampleId(0)][..], &[1.0][..]));
        let none = draw_plan(&spec, 1, BATCH_SIZE, &Importance::new(0), |_| true, 3.0);
        assert_eq!((none.ids.len(), none.summary), (0, Default::default()));
    }
}

/// `torch.multinomial` refuses more than 2²⁴ samples, and 2²⁴ + 1 is the first number an f32 cannot
/// hold.
#[test]
fn more_than_16_million_samples() {
    let samples = (1 << 24) + 1;
    // All have the same score except the last ones, whose score is SCORE_MAX times as high.
    let favoured = samples - 4096..samples;
    let mut importance = Importance::new(samples);
    (0..favoured.start).for_each(|id| importance.set_score(SampleId(id), 1.0));
    let plan = draw_plan(&uniform(), 1, 256, &importance, third, 1.0);
    assert!(counts(&plan, samples).iter().all(|&count| count == 1));
    let plan = draw_plan(&pads(1.0), 1, 256, &importance, third, 1.0);
    let counts = counts(&plan, samples);
    assert_eq!(counts.iter().sum::<u32>(), samples);
    // 1 - 1/e of them; the standard deviation is 0.0001.
    let distinct = f64::from(plan.summary.distinct) / f64::from(samples);
    assert!((distinct - 0.632_12).abs() < 0.000_5, "{distinct}");
    // 4096 SCORE_MAX of them; the standard deviation is 133.
    let drawn: u32 = counts[favoured.start as usize..].iter().sum();
    assert!(drawn.abs_diff(17_588) < 600, "{drawn}");
    assert!(counts[1 << 24] > 0, "the last sample is drawn, too");
    let weight =
        plan.ids.iter().zip(&plan.weights).find(|(id, _)| id.0 == 1 << 24).map(|(_, &weight)| weight);
    assert!(weight.is_some_and(|weight| (weight * SCORE_MAX - 1.0).abs() < 0.001), "{weight:?}");
}

fn plan_of(spec: PlanSpec, epoch: u32, importance: &Importance) -> Plan {
    draw_plan(&spec, epoch, BATCH_SIZE, importance, |_| false, 1.0)
}

#[test]
fn replacement_draws_every_sample_alike_with_repeats_and_needs_no_scores() {
    let samples = 20_000;
    let spec = PlanSpec { sampler: Sampler::Replacement, cover: 0, ..PlanSpec::default() };
    let (fresh, scored) = (Importance::new(samples), table(samples));
    let plan = plan_of(spec, 0, &fresh);
    assert_eq!(plan.ids, plan_of(spec, 0, &scored).ids, "scores do not matter");
    let counts = counts(&plan, samples);
    assert_eq!(counts.iter().sum::<u32>(), samples);
    assert!(plan.weights.iter().all(|&weight| weight == 1.0));
    // 1 - 1/e of the samples, with a standard deviation of 0.2 %.
    let distinct = f64::from(plan.summary.distinct) / f64::from(samples);
    assert!((distinct - 0.632).abs() < 0.01, "{distinct}");
    let covered = plan_of(PlanSpec { cover: 1, ..spec }, 3, &fresh);
    assert_eq!(covered.summary.distinct, samples, "the guard brings back what was left out");
}

#[test]
fn echo_delivers_what_it_reads_so_often_and_reads_all_alike() {
    let samples = 999;
    let importance = Importance::new(samples);
    for echo in [1.0, 1.5, 2.0, 2.7, 3.0, 40.0] {
        let spec = PlanSpec { sampler: Sampler::Echo, echo, seed: 3, ..PlanSpec::default() };
        let mut delivered = vec![0; samples as usize];
        let epochs = 60;
        for epoch in 0..epochs {
            let plan = plan_of(spec, epoch, &importance);
            let counts = counts(&plan, samples);
            assert_eq!(counts.iter().sum::<u32>(), samples, "echo {echo}, epoch {epoch}");
            // Two permutations meet within some epochs: a sample in both is read once then.
            let reads = f64::from(samples) / echo;
            let distinct = f64::from(plan.summary.distinct);
            assert!(distinct <= reads + 1.0 && distinct >= 0.7 * reads, "{echo}: {distinct} of {reads}");
            for (total, count) in delivered.iter_mut().zip(&counts) {
                *total += count;
            }
            assert!(plan.weights.iter().all(|&weight| weight == 1.0));
        }
        // Reads differ by one at most, and each read brings ⌊e⌋ to ⌈e⌉ + 1 deliveries.
        let reads_max = (f64::from(epochs) / echo).ceil() + 1.0;
        let (least, most) = (delivered.iter().min().unwrap(), delivered.iter().max().unwrap());
        assert!(f64::from(*most) <= reads_max * (echo.ceil() + 1.0), "{echo}: {most}");
        assert!(f64::from(*least) >= (reads_max - 3.0).max(0.0) * echo.floor(), "{echo}: {least}");
    }
    let whole = PlanSpec { sampler: Sampler::Echo, echo: 3.0, ..PlanSpec::default() };
    let mut three = vec![0; samples as usize];
    for epoch in 0..3 {
        let counts = counts(&plan_of(whole, epoch, &importance), samples);
        assert!(counts.iter().all(|&count| count == 0 || count == 3));
        three.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    assert_eq!(three, vec![3; samples as usize], "in three epochs each sample comes three times");
}

#[test]
fn echo_keeps_repeats_apart_whatever_order_is_asked_for() {
    let samples = 4000;
    let importance = Importance::new(samples);
    for order in [Order::Shuffled, Order::Spaced, Order::HitsFirst] {
        let spec = PlanSpec { sampler: Sampler::Echo, echo: 2.0, order, ..PlanSpec::default() };
        let plan = plan_of(spec, 1, &importance);
        let mut last = vec![None; samples as usize];
        let (mut near, mut repeats) = (0, 0);
        for (position, id) in plan.ids.iter().enumerate() {
            let batch = position / BATCH_SIZE as usize;
            if let Some(before) = last[id.index()].replace(batch) {
                repeats += 1;
                near += usize::from(!(20..=60).contains(&(batch - before)));
            }
        }
        assert_eq!(repeats, 2000);
        assert!(near < repeats / 20, "{near} of {repeats} are not 20 to 60 batches apart");
    }
}

#[test]
fn the_gap_of_repeats_is_what_the_plan_says_and_changes_no_count() {
    let samples = 4000;
    let importance = Importance::new(samples);
    let plan = |gap| {
        let spec = PlanSpec { sampler: Sampler::Echo, echo: 2.0, gap, ..PlanSpec::default() };
        plan_of(spec, 1, &importance)
    };
    assert_eq!(plan(None).ids, plan(Some(60)).ids);
    for (gap, few) in [(6, 2), (12, 4), (30, 10)] {
        let plan_of_gap = plan(Some(gap));
        assert_eq!(counts(&plan_of_gap, samples), counts(&plan(None), samples));
        let mut last = vec![None; samples as usize];
        let gaps: Vec<usize> = (plan_of_gap.ids.iter().enumerate())
            .filter_map(|(position, id)| {
                let batch = position / BATCH_SIZE as usize;
                last[id.index()].replace(batch).map(|before| batch - before)
            })
            .collect();
        let wrong = gaps.iter().filter(|&&found| !(few..=gap as usize).contains(&found)).count();
        assert_eq!(gaps.len(), 2000);
        assert!(wrong < 100, "{wrong} of 2000 are not {few} to {gap} batches apart");
    }
}

#[test]
fn infobatch_leaves_out_half_of_the_easy_and_weights_the_rest() {
    let samples = 1000;
    let mut importance = table(samples);
    for id in (0..samples).map(SampleId) {
        importance.set_score(id, score_of_loss(f64::from(id.0 % 100).powi(3) / 1e6));
    }
    // The mean of k³ over 0..100 is 245,025, above 62³ and below 63³: 63 of 100 are easy.
    let easy = |id: SampleId| id.0 % 100 < 63;
    let spec = PlanSpec { sampler: Sampler::Infobatch, cover: 0, ..PlanSpec::default() };
    let mut left_out = vec![0; samples as usize];
    for epoch in 1..=200 {
        let plan = plan_of(spec, epoch, &importance);
        let counts = counts(&plan, samples);
        assert_eq!(plan.ids.len(), 685, "half of the 630 below the mean");
        let weights: f64 = plan.weights.iter().map(|&weight| f64::from(weight)).sum();
        assert!((weights - f64::from(samples)).abs() < 1e-3, "the mean is that of a plain pass");
        for (&id, weight) in plan.ids.iter().zip(&plan.weights) {
            assert_eq!(*weight, if easy(id) { 2.0 } else { 1.0 }, "{id}");
        }
        for (sum, count) in left_out.iter_mut().zip(counts) {
            *sum += 1 - count;
        }
    }
    for (id, &times) in (0..).map(SampleId).zip(&left_out) {
        // 100 of 200, with a standard deviation of 7.
        assert!(if easy(id) { (60..140).contains(&times) } else { times == 0 }, "{id}: {times}");
    }
    let whole = PlanSpec { whole_from: 7, ..spec };
    assert_eq!(plan_of(whole, 6, &importance).ids.len(), 685);
    assert_eq!(plan_of(whole, 7, &importance).ids.len(), 1000);
    // Nothing was ever delivered, so the guard takes all from epoch 4 on.
    assert_eq!(plan_of(PlanSpec { cover: 5, ..spec }, 4, &importance).ids.len(), 1000);
    let all = PlanSpec { prune: 1.0, ..spec };
    assert_eq!(plan_of(all, 1, &importance).ids.len(), 371, "one stands for all of them");
    // A sample without a loss is not left out, and has no part in the mean.
    assert_eq!(plan_of(spec, 1, &Importance::new(samples)).ids.len(), 1000);
}

#[test]
fn seta_has_three_neighbouring_groups_of_five_and_goes_on() {
    let samples = 500;
    let mut importance = table(samples);
    // Five groups of losses that are far apart.
    for id in (0..samples).map(SampleId) {
        importance.set_score(id, score_of_loss(f64::from(id.0 % 5) + f64::from(id.0 / 5) / 1e4));
    }
    let spec = PlanSpec { sampler: Sampler::Seta, cover: 0, ..PlanSpec::default() };
    for epoch in 1..=12 {
        let plan = plan_of(spec, epoch, &importance);
        let groups: BTreeSet<u32> = plan.ids.iter().map(|id| id.0 % 5).collect();
        let first = epoch % 3;
        assert_eq!(groups, (first..first + 3).collect(), "epoch {epoch}");
        assert_eq!(counts(&plan, samples).into_iter().filter(|&count| count == 1).count(), 300);
        assert!(plan.ids.len() == 300 && plan.weights.iter().all(|&weight| weight == 1.0));
    }
    let whole = PlanSpec { whole_from: 7, ..spec };
    assert_eq!([6, 7].map(|epoch| plan_of(whole, epoch, &importance).ids.len()), [300, 500]);
    // Nothing was ever delivered, so the guard takes all from epoch 4 on.
    assert_eq!(plan_of(PlanSpec { cover: 5, ..spec }, 4, &importance).ids.len(), 500);
    assert_eq!(plan_of(spec, 1, &Importance::new(samples)).ids.len(), 500, "no loss is known");
    // Equal losses are one group.
    for id in (0..samples).map(SampleId) {
        importance.set_score(id, score_of_loss(1.0));
    }
    assert_eq!(plan_of(spec, 1, &importance).ids.len(), 500);
    for id in (0..samples / 2).map(SampleId) {
        importance.set_score(id, score_of_loss(0.5));
    }
    assert_eq!(plan_of(spec, 1, &importance).ids.len(), 500, "six tenths of two groups are both");
}
