//! The jobs of a group draw coupled plans: each by its own chances, and together as alike as these
//! allow.

#![expect(clippy::indexing_slicing, reason = "ids are below the number of samples")]

use shade_core::importance::Importance;
use shade_core::plan::draw_plan;
use shade_formats::SampleId;
use shade_job::{Order, PlanSpec, Sampler, group_digest};

const SAMPLES: u32 = 400;
const BATCH: u32 = 16;

/// Scores that differ by sample, and from job to job.
fn trained(job: u32, alike: f32) -> Importance {
    let mut table = Importance::new(SAMPLES);
    for id in 0..SAMPLES {
        let common = (id * 7919 % SAMPLES) as f32 / SAMPLES as f32;
        let own = ((id + 131 * job) * 104_729 % SAMPLES) as f32 / SAMPLES as f32;
        table.set_score(SampleId(id), 2.3 + 1.9 * (alike * common + (1.0 - alike) * own));
    }
    table
}

fn spec(sampler: Sampler, seed: u64) -> PlanSpec {
    PlanSpec { sampler, seed, cover: 0, group: group_digest("sweep"), ..PlanSpec::default() }
}

fn plan(spec: &PlanSpec, epoch: u32, table: &Importance) -> Vec<u32> {
    draw_plan(spec, epoch, BATCH, table, |_| false, 1.0).ids.into_iter().map(|id| id.0).collect()
}

fn counts(ids: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; SAMPLES as usize];
    ids.iter().for_each(|&id| counts[id as usize] += 1);
    counts
}

/// How often each sample is expected in an epoch.
fn expected(table: &Importance) -> Vec<f64> {
    let sum: f64 = table.scores().iter().map(|&score| f64::from(score)).sum();
    table.scores().iter().map(|&score| f64::from(score) * f64::from(SAMPLES) / sum).collect()
}

#[test]
fn each_job_draws_by_its_own_chances() {
    const EPOCHS: u32 = 2_500;
    for job in 0..2 {
        let table = trained(job, 0.5);
        let mut drawn = vec![0u64; SAMPLES as usize];
        for epoch in 1..=EPOCHS {
            let counts = counts(&plan(&spec(Sampler::Pads, job.into()), epoch, &table));
            assert_eq!(counts.iter().sum::<u32>(), SAMPLES);
            drawn.iter_mut().zip(&counts).for_each(|(all, &count)| *all += u64::from(count));
        }
        // 10⁶ draws: χ² with 399 degrees of freedom has a mean of 399 and a deviation of 28.
        let chi2: f64 = drawn
            .iter()
            .zip(expected(&table))
            .map(|(&drawn, expected)| {
                (drawn as f64 - expected * f64::from(EPOCHS)).powi(2) / (expected * f64::from(EPOCHS))
            })
            .sum();
        assert!((chi2 - 399.0).abs() < 5.0 * 28.3, "job {job}: {chi2}");
    }
}

#[test]
fn two_jobs_share_as_many_draws_as_their_chances_allow() {
    for alike in [0.0, 0.5, 1.0] {
        let tables = [trained(0, alike), trained(1, alike)];
        let [first, second] = [expected(&tables[0]), expected(&tables[1])];
        let most: f64 = first.iter().zip(&second).map(|(a, b)| a.min(*b)).sum();
        let mut shared = 0.0;
        for epoch in 1..=200 {
            let [a, b] = [0, 1].map(|job: u32| {
                counts(&plan(&spec(Sampler::Pads, job.into()), epoch, &tables[job as usize]))
            });
            shared += f64::from(a.iter().zip(&b).map(|(a, b)| *a.min(b)).sum::<u32>()) / 200.0;
        }
        // Σ min λ is what one draw can share. Chance adds some where both draw a sample again.
        assert!(shared > 0.99 * most, "alike {alike}: {shared} of {most}");
        assert!(shared <= f64::from(SAMPLES));
        if alike == 1.0 {
            assert_eq!(shared, f64::from(SAMPLES));
        }
    }
}

#[test]
fn shared_deliveries_come_at_nearly_the_same_time() {
    let tables = [trained(0, 0.5), trained(1, 0.5)];
    let [a, b] = [0, 1].map(|job: u32| plan(&spec(Sampler::Pads, job.into()), 3, &tables[job as usize]));
    let mut apart: Vec<usize> = Vec::new();
    for (at, id) in a.iter().enumerate() {
        apart.extend(
            b.iter().enumerate().filter(|(_, other)| *other == id).map(|(other, _)| at.abs_diff(other)).min(),
        );
    }
    apart.sort_unstable();
    assert!(apart[apart.len() / 2] < 20, "{}", apart[apart.len() / 2]);
}

#[test]
fn samplers_without_importance_have_one_plan_in_a_group_and_seeds_do_not_matter() {
    let table = trained(0, 1.0);
    for sampler in [Sampler::Uniform, Sampler::Sequential, Sampler::Echo, Sampler::Replacement] {
        for order in [Order::Shuffled, Order::Spaced] {
            let of = |seed| plan(&PlanSpec { order, ..spec(sampler, seed) }, 2, &table);
            assert_eq!(of(1), of(2), "{sampler}");
        }
    }
    let alone = |seed| plan(&PlanSpec { group: 0, ..spec(Sampler::Uniform, seed) }, 2, &table);
    assert_ne!(alone(1), alone(2));
    let other = PlanSpec { group: group_digest("another"), ..spec(Sampler::Uniform, 1) };
    assert_ne!(plan(&other, 2, &table), plan(&spec(Sampler::Uniform, 1), 2, &table));
}

#[test]
fn what_is_left_out_for_long_comes_in_a_group_too() {
    let mut table = trained(0, 0.5);
    for id in 0..SAMPLES {
        table.record_delivery(SampleId(id), if id % 10 == 0 { 0 } else { 4 });
    }
    let plan = plan(&PlanSpec { cover: 5, ..spec(Sampler::Pads, 1) }, 5, &table);
    let counts = counts(&plan);
    assert!((0..SAMPLES as usize).step_by(10).all(|id| counts[id] > 0));
    assert_eq!(plan.len(), SAMPLES as usize);
}

#[test]
fn jobs_that_leave_samples_out_deliver_the_others_in_one_order() {
    let table = trained(0, 1.0);
    let [all, some] = [Sampler::Uniform, Sampler::Iis].map(|sampler| plan(&spec(sampler, 1), 7, &table));
    let kept: Vec<u32> = all.into_iter().filter(|id| some.contains(id)).collect();
    assert!(some.len() < SAMPLES as usize, "{}", some.len());
    assert!(kept == some);
}
