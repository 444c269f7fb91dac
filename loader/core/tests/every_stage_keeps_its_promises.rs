//! What a stage of the plan promises holds whatever later stages do: over the product of samplers,
//! orders, policies, packages, strata, groups, ranks, tails, guards and subsets.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::Event;
use shade_core::importance::{Importance, loss_of};
use shade_core::plan::{Part, SampleFacts, Strata, draw_plan, may_exchange};
use shade_formats::SampleId;
use shade_formats::ring::FLAG_PADDING;
use shade_job::{JobSpec, Order, PlanSpec, Policy, Sampler, Seats, Subset, Tables, Tail, WeightTable};

const SAMPLES: u32 = 240;
const CLASSES: u32 = 5;
/// An epoch in which `iis` and `cis` are selective.
const SELECTIVE: u32 = 7;
const KEY: u128 = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe;

/// Scores 2.25 to 4.25, all different; every sample was delivered just now.
fn table(samples: u32, epoch: u32) -> Importance {
    let mut importance = Importance::new(samples);
    for id in 0..samples {
        let place = u64::from(id) * 7919 % u64::from(samples);
        importance.set_score(SampleId(id), 2.25 + 2.0 * place as f32 / samples as f32);
        importance.record_delivery(SampleId(id), epoch);
    }
    importance
}

/// Weights of 0 to 5, and a sample that comes in most batches.
fn long_tail(samples: u32) -> WeightTable {
    let weight = |id| if id == 17 { 90.0 } else { f64::from(id % 6) };
    WeightTable::new((0..samples).map(weight)).unwrap()
}

/// Weights that make classes of unequal size alike.
fn by_class(samples: u32) -> WeightTable {
    let size = |id: u32| if id.is_multiple_of(12) { 1.0 } else { 11.0 };
    WeightTable::new((0..samples).map(|id| 1.0 / size(id))).unwrap()
}

/// What a sampler gives over many epochs, by sample.
struct Drawn {
    /// Uses that the weights of its loss say: 1/λ.
    said: Vec<Option<f64>>,
    /// Mean of its uses that are trained on, and their variance.
    mean: Vec<f64>,
    variance: Vec<f64>,
}

const SEEDS: u32 = 120;

fn drawn(plan: PlanSpec, samples: u32) -> Drawn {
    let (importance, seats) = (table(samples, SELECTIVE - 1), Seats::IN_ORDER);
    let weights = if plan.sampler == Sampler::Balanced { by_class(samples) } else { long_tail(samples) };
    let strata = Strata::new(samples, plan.strata, KEY).unwrap();
    let len = samples as usize;
    let (mut said, mut sum, mut squares) = (vec![None; len], vec![0.0; len], vec![0.0; len]);
    for seed in 1..=SEEDS {
        let group = if plan.group == 0 { 0 } else { seed.into() };
        let plan = PlanSpec { seed: seed.into(), group, ..plan };
        let part = &Part::WHOLE;
        let facts = SampleFacts {
            importance: &importance,
            weights: Some(&weights),
            strata: strata.clone(),
            seats: &seats,
            part,
            slices: None,
            buckets: &[],
        };
        let plan = draw_plan(&plan, SELECTIVE, 10, facts, |_| false, 1.0);
        let mut counts = vec![0.0; len];
        for (id, &weight) in plan.ids.iter().zip(&plan.weights).filter(|&(_, &weight)| weight > 0.0) {
            said[id.index()] = Some(1.0 / f64::from(weight));
            counts[id.index()] += 1.0;
        }
        for (at, count) in counts.into_iter().enumerate() {
            sum[at] += count;
            squares[at] += count * count;
        }
    }
    let seeds = f64::from(SEEDS);
    let mean: Vec<f64> = sum.iter().map(|sum| sum / seeds).collect();
    let variance =
        squares.iter().zip(&mean).map(|(sum, mean)| (sum / seeds - mean * mean).max(0.0)).collect();
    Drawn { said, mean, variance }
}

/// By sample: how often it should come, whatever the strata, by its own definition.
fn should(sampler: Sampler, samples: u32) -> Vec<f64> {
    let scores: Vec<f64> = table(samples, 0).scores().iter().map(|&score| f64::from(score)).collect();
    let share = |values: Vec<f64>| {
        let sum: f64 = values.iter().sum();
        values.iter().map(|value| value * f64::from(samples) / sum).collect()
    };
    let of_table =
        |table: WeightTable| share(table.weights().iter().map(|&weight| f64::from(weight)).collect());
    let losses: Vec<f64> = table(samples, 0).scores().iter().map(|&score| loss_of(score)).collect();
    let mean = losses.iter().sum::<f64>() / f64::from(samples);
    let rank = |score: &f64| scores.iter().filter(|other| *other < score).count() as f64;
    match sampler {
        Sampler::Pads => share(scores),
        Sampler::Iis | Sampler::Cis => {
            scores.iter().map(|score| (rank(score) / f64::from(samples - 1)).cbrt()).collect()
        }
        Sampler::Infobatch => losses.iter().map(|&loss| if loss < mean { 0.5 } else { 1.0 }).collect(),
        Sampler::Seta => {
            let group = groups_by_k_means(&losses);
            // Three of five groups, from the second on in the eighth epoch.
            group.iter().map(|group| f64::from(u8::from((1..=3).contains(group)))).collect()
        }
        Sampler::Weighted => of_table(long_tail(samples)),
        Sampler::Balanced => of_table(by_class(samples)),
        Sampler::Uniform | Sampler::Sequential | Sampler::Replacement | Sampler::Echo => {
            vec![1.0; samples as usize]
        }
    }
}

/// Which of five groups each value is in, by Lloyd's own steps: a value goes to the nearest mean.
fn groups_by_k_means(values: &[f64]) -> Vec<usize> {
    let rank = |value: f64| values.iter().filter(|&&other| other < value).count();
    let mut group: Vec<usize> = values.iter().map(|&value| rank(value) * 5 / values.len()).collect();
    loop {
        let mean = |of: usize| {
            let members: Vec<f64> = values
                .iter()
                .zip(&group)
                .filter(|(_, group)| **group == of)
                .map(|(&value, _)| value)
                .collect();
            members.iter().sum::<f64>() / members.len() as f64
        };
        let means: Vec<f64> = (0..5).map(mean).collect();
        let nearest = |value: f64| {
            let distance = |of: &usize| (means[*of] - value).abs();
            (0..5).min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap()
        };
        let moved: Vec<usize> = values.iter().map(|&value| nearest(value)).collect();
        if moved == group {
            return group;
        }
        group = moved;
    }
}

/// Each sample comes as often as the weight of its loss says, and that is as often as in the
/// dataset as a whole: exactly, or, where a node knows the scores of its strata only, nearly. What
/// strata would draw otherwise is refused.
#[test]
fn how_often_a_sample_comes_does_not_depend_on_strata() {
    let (samples, echo) = (360, 2.5);
    let mut refused = HashSet::new();
    for (&sampler, strata, group) in Sampler::ALL.iter().flat_map(|sampler| {
        [(1, 0), (1, 1), (4, 0), (4, 1), (12, 0)].map(|(strata, group)| (sampler, strata, group))
    }) {
        for replacement in [true, false] {
            let plan =
                PlanSpec { sampler, strata, group, echo, replacement, cover: 0, ..PlanSpec::default() };
            let what = format!("{sampler}, {strata} strata, group {group}, replacement {replacement}");
            if (JobSpec { plan, ..spec(10, 1) }).validate().is_err() {
                refused.insert(sampler.as_str());
                continue;
            }
            let takes_a_table = matches!(sampler, Sampler::Weighted | Sampler::Balanced);
            if !replacement && !takes_a_table {
                continue;
            }
            let Drawn { said, mean, variance } = drawn(plan, samples);
            let should = should(sampler, samples);
            let mut never = 0;
            let (mut statistic, mut freedom, mut deviation) = (0.0_f64, 0.0_f64, 0.0_f64);
            for at in 0..samples as usize {
                let Some(said) = said[at] else {
                    // A weight of 0 has no chance, nor has the lowest importance of a stratum.
                    let is_by_rank = matches!(sampler, Sampler::Iis | Sampler::Cis);
                    never += u32::from(is_by_rank);
                    assert!(should[at] == 0.0 || is_by_rank, "{what}: {at} never comes");
                    continue;
                };
                let off = (said / should[at] - 1.0).abs();
                deviation = deviation.max(off);
                if variance[at] == 0.0 {
                    // Also where a chance is so near to 0 or 1 that it was never seen to fail.
                    let off = (mean[at] - said).abs() * f64::from(SEEDS);
                    assert!(off < 6.0, "{what}: {at} comes {} of {said}", mean[at]);
                } else {
                    statistic += (mean[at] - said).powi(2) * f64::from(SEEDS) / variance[at];
                    freedom += 1.0;
                }
            }
            assert!(never <= strata, "{what}: {never} never come");
            // Its mean are the degrees of freedom, and some more, as variances are estimates.
            assert!(
                statistic <= 1.06 * freedom + 5.0 * (2.0 * freedom).sqrt(),
                "{what}: {statistic} of {freedom}"
            );
            let most = match (sampler, strata) {
                // Their stratum's scores stand for those of all: cv / √n, and five of these.
                (Sampler::Pads, 4 | 12) => 5.0 * 0.18 / f64::from(samples / strata).sqrt(),
                // Low ranks deviate most; weights have what was drawn by.
                (Sampler::Cis, 4 | 12) => 1.0,
                _ => 1e-4,
            };
            assert!(deviation <= most, "{what}: λ is off by {deviation}");
        }
    }
    let expected = ["sequential", "iis", "infobatch", "seta", "weighted", "balanced"];
    assert_eq!(refused, HashSet::from(expected), "a sampler that strata change must be among these");
}

/// A rank's strata stand for the dataset the better the larger they are: the default leaves 256
/// samples and more in each.
#[test]
fn scores_of_a_stratum_stand_for_those_of_all() {
    for (strata, most_rms) in [(4, 0.008), (24, 0.016), (60, 0.026)] {
        let samples = 6_000;
        let plan = PlanSpec { sampler: Sampler::Pads, strata, cover: 0, ..PlanSpec::default() };
        let Drawn { said, .. } = drawn(plan, samples);
        let offs: Vec<f64> = said
            .iter()
            .zip(should(Sampler::Pads, samples))
            .filter_map(|(said, should)| Some((*said)? / should - 1.0))
            .collect();
        let rms = (offs.iter().map(|off| off * off).sum::<f64>() / offs.len() as f64).sqrt();
        assert!(rms < most_rms, "{strata} strata: {rms}");
    }
}

/// A training, and all that surrounds it.
#[derive(Clone, Debug)]
struct Case {
    policy: Policy,
    package_bytes: u32,
    plan: PlanSpec,
    batch_size: u32,
    world_size: u32,
    tail: Tail,
    has_subset: bool,
    seed: u64,
}

const REFERENCE: Policy = Policy::Lru;
const TAILS: [Tail; 3] = [Tail::Even, Tail::Pad, Tail::Drop];

impl Case {
    fn job(&self) -> JobSpec {
        let mut plan = self.plan;
        self.tables().name_in(&mut plan);
        JobSpec { plan, tail: self.tail, ..spec(self.batch_size, self.world_size) }
    }

    fn tables(&self) -> Tables {
        let weights = (self.plan.sampler == Sampler::Weighted).then(|| long_tail(SAMPLES));
        let subset =
            self.has_subset.then(|| Subset::new((0..SAMPLES).filter(|id| id % 3 > 0).collect()).unwrap());
        Tables { weights, subset }
    }

    fn has(&self, id: u32) -> bool {
        !self.has_subset || !id.is_multiple_of(3)
    }

    /// Its daemon, with all ranks as sessions of the same numbers.
    fn daemon(&self, policy: Policy, seed: u64) -> Replay {
        let index = index(SAMPLES, CLASSES, |id| 100 + id % 300);
        let mut daemon = match self.package_bytes {
            0 => Replay::new(index, policy, 60 * 512, 4, seed),
            bytes => Replay::packaged(index, policy, 60 * 512, bytes, seed),
        };
        for rank in 0..self.world_size {
            daemon.attach_with(rank, rank, &self.job(), self.tables());
        }
        daemon
    }

    /// The ranks know how hard each sample is, whatever their batches are.
    fn learn(&self, daemon: &mut Replay, epoch: u32) {
        if !self.plan.sampler.is_by_importance() {
            return;
        }
        let mut importance = table(SAMPLES, epoch);
        (0..SAMPLES)
            .step_by(7)
            .for_each(|id| importance.record_delivery(SampleId(id), epoch.saturating_sub(2)));
        daemon.step(Event::Importance(0, Box::new(importance)));
    }
}

/// The batches of an epoch, in order.
fn in_order(mut taken: Vec<Taken>) -> Vec<Taken> {
    taken.sort_by_key(|taken| (taken.epoch, taken.batch, taken.rank));
    taken
}

/// Without padding: batch, rank, sample and weight of each delivery.
fn deliveries(taken: &[Taken]) -> Vec<(u32, u32, u32, u32)> {
    let rows = |taken: &Taken| {
        let Taken { batch, rank, ids, weights, flags, .. } = taken.clone();
        let rows = ids.into_iter().zip(weights).zip(flags).filter(|&(_, flags)| flags & FLAG_PADDING == 0);
        rows.map(move |((id, weight), _)| (batch, rank, id, weight.to_bits())).collect::<Vec<_>>()
    };
    taken.iter().flat_map(rows).collect()
}

fn counts(taken: &[Taken]) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    deliveries(taken).iter().for_each(|&(_, _, id, _)| *counts.entry(id).or_default() += 1);
    counts
}

/// What the sampler promises of an epoch by itself.
fn check_epoch(case: &Case, taken: &[Taken], planned: usize) {
    let counts = counts(taken);
    let what = format!("{case:?}");
    assert!(counts.keys().all(|&id| case.has(id)), "{what}");
    let all = (0..SAMPLES).filter(|&id| case.has(id)).count();
    let len = counts.values().sum::<u32>() as usize;
    if case.tail == Tail::Drop {
        assert!(planned - len < (case.batch_size * case.world_size) as usize, "{what}: {len} of {planned}");
    } else {
        assert_eq!(len, planned, "{what}");
    }
    match case.plan.sampler {
        Sampler::Iis | Sampler::Infobatch | Sampler::Seta => {
            assert!(planned <= all && counts.values().all(|&count| count == 1), "{what}");
        }
        Sampler::Uniform | Sampler::Sequential | Sampler::Cis => {
            assert!(planned == all && counts.values().all(|&count| count == 1), "{what}");
        }
        Sampler::Weighted => assert!(counts.keys().all(|id| id % 6 > 0 || *id == 17), "{what}"),
        _ => assert_eq!(planned, all, "{what}"),
    }
    if case.plan.sampler == Sampler::Sequential {
        let mut delivered = Vec::new();
        for of_batch in taken.chunks(case.world_size as usize) {
            // The ranks take samples in turn.
            let ids: Vec<Vec<u32>> = of_batch
                .iter()
                .map(|taken| deliveries(std::slice::from_ref(taken)).iter().map(|row| row.2).collect())
                .collect();
            let rows = ids.iter().map(Vec::len).max().unwrap_or(0);
            delivered
                .extend((0..rows).flat_map(|row| ids.iter().filter_map(move |ids| ids.get(row).copied())));
        }
        assert!(delivered.is_sorted(), "{what}: {delivered:?}");
    }
}

/// What an exchange leaves as it was, beside the same plan without any.
fn check_exchange(case: &Case, taken: &[Taken], reference: &[Taken]) {
    let what = format!("{case:?}");
    let (mut with, mut without) = (deliveries(taken), deliveries(reference));
    let exchanges = matches!(case.policy, Policy::Quiver | Policy::Icache) && may_exchange(&case.plan);
    if !exchanges {
        assert_eq!(with, without, "{what}");
        return;
    }
    let counts = counts(reference);
    let keep_batch = |rows: &[(u32, u32, u32, u32)]| {
        let mut repeated: Vec<_> = rows
            .iter()
            .filter(|row| counts[&row.2] > 1)
            .map(|&(batch, _, id, weight)| (batch, id, weight))
            .collect();
        repeated.sort_unstable();
        repeated
    };
    assert_eq!(keep_batch(&with), keep_batch(&without), "{what}: repeats stay in their batches");
    let keeps_rank = case.plan.strata > 1 && case.plan.strata.is_multiple_of(case.world_size);
    for rows in [&mut with, &mut without] {
        for (batch, rank, ..) in rows.iter_mut() {
            *batch = 0;
            *rank = if keeps_rank { *rank } else { 0 };
        }
        rows.sort_unstable();
    }
    // Also where a tail is dropped: the same samples are in it.
    assert_eq!(with, without, "{what}: each sample comes as often, with its weight, at its rank");
}

/// A state in the middle of an epoch, and its rest: in the daemon that goes on, in another one, and
/// in the same again.
fn check_rest(case: &Case, daemon: &mut Replay, epoch: u32, before: u32) {
    daemon.taken.clear();
    (0..case.world_size).for_each(|rank| daemon.start(rank, epoch, 0));
    let is_before = |taken: &&Taken| taken.batch < before;
    while daemon.taken.iter().filter(is_before).count() < (before * case.world_size) as usize {
        assert!(daemon.tick(), "{case:?}: the epoch is longer than that");
    }
    let state = daemon.save(epoch, before);
    daemon.run();
    let rest_of = |taken: &[Taken]| {
        let mut rest: Vec<Taken> = taken.iter().filter(|taken| taken.batch >= before).cloned().collect();
        rest.sort_by_key(|taken| (taken.batch, taken.rank));
        rest.into_iter()
            .map(|taken| (taken.batch, taken.rank, taken.ids, taken.weights, taken.flags))
            .collect::<Vec<_>>()
    };
    let rest = rest_of(&daemon.taken);
    let mut other = case.daemon(case.policy, case.seed ^ 5);
    for daemon in [&mut other, daemon] {
        daemon.taken.clear();
        daemon.load(&state);
        (0..case.world_size).for_each(|rank| daemon.start(rank, epoch, before));
        daemon.run();
        assert_eq!(rest_of(&daemon.taken), rest, "{case:?}: the rest after batch {before}");
    }
}

fn check(case: &Case, before: u32) {
    let mut daemon = case.daemon(case.policy, case.seed);
    let mut reference = case.daemon(REFERENCE, case.seed ^ 3);
    for epoch in 0..3 {
        for daemon in [&mut daemon, &mut reference] {
            daemon.drawn.clear();
            let taken = in_order(daemon.epoch(epoch));
            let planned = daemon.core().stats(0).epoch.planned;
            check_epoch(case, &taken, planned);
            let rows: HashSet<_> = daemon.drawn.iter().copied().collect();
            let repeats = daemon.drawn.len() - rows.len();
            assert!(
                repeats == 0 || case.tail == Tail::Pad,
                "{case:?}: {repeats} equal crops in epoch {epoch}"
            );
        }
        if !case.plan.depends_on_residents() {
            let of_epoch = |daemon: &Replay| {
                in_order(daemon.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect())
            };
            check_exchange(case, &of_epoch(&daemon), &of_epoch(&reference));
        }
        case.learn(&mut daemon, epoch);
        case.learn(&mut reference, epoch);
    }
    check_rest(case, &mut daemon, 3, before);
    for daemon in [daemon, reference] {
        assert!(
            daemon.failed.is_empty() && daemon.errors.is_empty() && daemon.refused.is_empty(),
            "{case:?}"
        );
    }
}

fn cases() -> impl Strategy<Value = Case> {
    // Those that exchange samples more often: other policies change nothing.
    let policy = prop_oneof![
        3 => prop::sample::select(&[Policy::Quiver, Policy::Icache][..]),
        1 => prop::sample::select(Policy::ALL),
    ];
    let numbers = (
        prop::sample::select(&[1, 6, 12_u32][..]),
        prop::sample::select(&[0, 9_u64][..]),
        prop::sample::select(&[1.0, 2.0][..]),
        prop::sample::select(&[0, 1, 5_u32][..]),
        prop::sample::select(&[0.0, 0.4][..]),
        any::<[bool; 3]>(),
        prop::sample::select(&[1.5, 2.0, 4.0][..]),
    );
    let plan = (prop::sample::select(Sampler::ALL), prop::sample::select(Order::ALL), numbers, any::<u64>());
    let plan = plan.prop_map(|(sampler, order, numbers, seed)| {
        let (strata, group, rep, cover, mix, [pace, draw_ahead, replacement], echo) = numbers;
        PlanSpec {
            sampler,
            order,
            strata,
            group,
            rep,
            cover,
            mix,
            pace,
            draw_ahead,
            replacement,
            echo,
            seed,
            ..PlanSpec::default()
        }
    });
    let around = (
        prop::sample::select(&[0, 1 << 14_u32][..]),
        prop::sample::select(&[4, 10_u32][..]),
        1..4_u32,
        any::<bool>(),
    );
    let case = (policy, plan, around, prop::sample::select(&TAILS[..]), any::<u64>());
    let case =
        case.prop_map(|(policy, plan, (package_bytes, batch_size, world_size, has_subset), tail, seed)| {
            Case { policy, package_bytes, plan, batch_size, world_size, tail, has_subset, seed }
        });
    // Subsets and groups go with few others.
    case.prop_map(|case| {
        let plan = PlanSpec { strata: if case.has_subset { 1 } else { case.plan.strata }, ..case.plan };
        Case { plan, ..case }
    })
    .prop_filter("a job that a daemon accepts", |case| case.job().validate().is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn later_stages_keep_the_promises_of_earlier_ones(case in cases(), before in 1..4_u32) {
        check(&case, before);
    }
}
