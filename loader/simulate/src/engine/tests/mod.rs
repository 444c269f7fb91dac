//! Whole trainings: hits and stalls against what is easy to reckon.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use shade_core::Counts;
use shade_formats::SampleId;
use shade_job::{Order, PlanSpec, Policy, Sampler, StoreModel};

use super::setup::Setup;
use super::*;
use crate::cache_policy::CachePolicy;
use crate::losses::LossSource;
use crate::nodes_args::Loss;
use crate::script::{Epoch, Repeats, Script};
use crate::sizes::Sizes;
use crate::store::SizesOnly;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

const MS: Duration = Duration::from_millis(1);
const BATCH: u32 = 10;

fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<SampleId> {
    ids.into_iter().map(SampleId).collect()
}

fn dataset(samples: u32, sizes: Sizes) -> Arc<SizesOnly> {
    Arc::new(SizesOnly { samples, sizes, labels: Vec::new(), places: Vec::new(), strata: None })
}

fn workload(dataset: &Arc<SizesOnly>, accesses: Accesses) -> Workload {
    Workload {
        dataset: Arc::clone(dataset),
        accesses,
        batch_size: 1,
        lookahead: 1.0,
        coalesces: false,
        package_bytes: Some(0),
        skip_epochs: 0,
        store: None,
        compute: MS,
    }
}

fn system(policy: Policy, plan: &PlanSpec) -> System {
    let PlanSpec { sampler, order, .. } = *plan;
    System { name: "tested", policy: CachePolicy::Online(policy), sampler, order, is_group: false }
}

/// Epochs of these accesses, each known when it begins.
fn epochs(epochs: &[Vec<SampleId>]) -> Script {
    let mut script = Script::default();
    for epoch in epochs {
        let from = script.accesses.len();
        script.accesses.extend_from_slice(epoch);
        let repeats = Repeats { distinct: 2, most: u32::try_from(from).unwrap() };
        let accesses = from..script.accesses.len();
        script.epochs.push(Epoch { accesses, repeats, ..Epoch::default() });
    }
    script
}

/// Follows a script: one sample in a batch without a store, [`BATCH`] with it.
struct Following {
    policy: Policy,
    capacity: u64,
    store: Option<StoreModel>,
    skip_epochs: u32,
    to_the_end: bool,
}

impl Following {
    fn new(policy: Policy, capacity: u64) -> Self {
        Self { policy, capacity, store: None, skip_epochs: 0, to_the_end: false }
    }

    fn with(policy: Policy, capacity: u64, store: &str) -> Self {
        Self { store: Some(store.parse().unwrap()), ..Self::new(policy, capacity) }
    }

    fn play(&self, dataset: &Arc<SizesOnly>, script: &Script) -> Played {
        let (batch_size, compute) = if self.store.is_some() { (BATCH, MS) } else { (1, Duration::ZERO) };
        let list = Accesses::List(script.clone());
        let skip_epochs = self.skip_epochs;
        let workload = Workload { store: self.store, batch_size, skip_epochs, ..workload(dataset, list) };
        let system = system(self.policy, &PlanSpec::default());
        let around = Surroundings { nodes: None, jobs: None, compute };
        let training = Training::new(&workload, &system, &around, self.capacity, 0, 0..1);
        let setup: Setup<'_> = training.setup_for_script();
        let ids = |range| script.ids(range);
        training.follow(setup, script, self.to_the_end, ids, &Watch::unseen()).unwrap()
    }
}

/// Accesses, hits, evictions, bypasses and bytes read.
fn counted(played: &Played) -> [u64; 5] {
    let Counts { accesses, hits, evicted, bypassed, bytes_read, .. } = played.all().counts;
    [accesses, hits, evicted, bypassed, bytes_read]
}

fn counts(sizes: Sizes, policy: Policy, capacity: u64, accesses: &[u32]) -> [u64; 5] {
    let script = epochs(&[ids(accesses.iter().copied())]);
    counted(&Following::new(policy, capacity).play(&dataset(4, sizes), &script))
}

#[test]
fn lru_evicts_and_everything_is_counted() {
    // 0 and 1 come in, 0 hits, 2 displaces 1, 1 displaces 0.
    assert_eq!(counts(Sizes::Unit, Policy::Lru, 2, &[0, 1, 0, 2, 1]), [5, 1, 2, 0, 4]);
}

#[test]
fn app_bypasses_what_is_worth_less_and_bytes_are_those_read() {
    // The first of several samples without a score is worth most. Sample 3 takes two blocks, more
    // than there are.
    let sizes = Sizes::Each { lens: vec![5, 7, 6, 9], block_bytes: 8 };
    assert_eq!(counts(sizes, Policy::App, 8, &[0, 1, 3]), [3, 0, 0, 2, 21]);
}

#[test]
fn lookahead_keeps_what_is_used_soonest() {
    // 0 is kept over 1, which comes later; then 1 displaces 0, which is over, and is kept over 2
    // and 3.
    let [_, hits, _, bypasses, _] = counts(Sizes::Unit, Policy::Lookahead, 1, &[0, 1, 0, 1, 2, 3, 1]);
    assert_eq!((hits, bypasses), (2, 3));
}

#[test]
fn an_epoch_that_is_known_early_is_looked_ahead_into() {
    // Two epochs are all that MIN knows, too.
    let (mut random, samples) = (0u32, 40);
    let mut epoch = || {
        ids((0..60).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % samples
        }))
    };
    let late = epochs(&[epoch(), epoch()]);
    let mut early = late.clone();
    early.epochs[1].is_known_early = true;
    let mut gained = 0;
    for capacity in [1, 4, 10, 30] {
        let following = Following::new(Policy::Lookahead, capacity);
        let play =
            |following: &Following, script| counted(&following.play(&dataset(samples, Sizes::Unit), script));
        let to_the_end = Following { to_the_end: true, ..Following::new(Policy::Lookahead, capacity) };
        let min = play(&to_the_end, &late);
        assert_eq!(play(&following, &early), min, "{capacity}");
        gained += min[1].checked_sub(play(&following, &late)[1]).unwrap();
    }
    assert!(gained > 5, "{gained}");
}

#[test]
fn skipped_epochs_are_not_counted_but_seen() {
    let script = epochs(&[ids([0, 1, 2]), ids([0, 1]), ids([3, 0])]);
    for to_the_end in [false, true] {
        let following = Following { skip_epochs: 1, to_the_end, ..Following::new(Policy::Lru, 4) };
        let played = following.play(&dataset(4, Sizes::Unit), &script);
        assert_eq!(counted(&played), [4, 3, 0, 0, 1], "{to_the_end}");
        let all = played.all();
        assert_eq!(all.counts.absorbing_epochs, 0, "0 and 1 were there, but not drawn for that");
        assert!((played.ever_seen_share.unwrap() - 1.0).abs() < 1e-12);
        assert!((all.distinct_share() - 1.0).abs() < 1e-12);
        assert_eq!(all.repeat_max, 5);
    }
}

/// The stall in batches of 10 samples, 1 ms of compute each. `misses` of them are new and read; the
/// others are sample 0, which the first batch reads.
fn stall(store: &str, batches: u32, misses: u32, bytes: u32) -> Duration {
    let new = |batch| (0..misses).map(move |at| 1 + batch * misses + at);
    let of = |batch| new(batch).chain(std::iter::repeat_n(0, (BATCH - misses) as usize));
    let samples = 1 + batches * misses;
    let dataset = dataset(samples, Sizes::Same(bytes));
    let script = epochs(&[ids((0..batches).flat_map(of))]);
    stalled(&Following::with(Policy::Lru, dataset.sizes.total(samples), store).play(&dataset, &script))
}

fn stalled(played: &Played) -> Duration {
    Duration::from_secs_f64(played.all().stall_ns / 1e9)
}

fn assert_near(got: Duration, expected_ms: f64, tolerance: f64) {
    let got = got.as_secs_f64() * 1e3;
    assert!((got - expected_ms).abs() <= tolerance * expected_ms, "{got} instead of {expected_ms}");
}

#[test]
fn one_read_is_all_that_is_waited_for() {
    assert_eq!(stall("latency=1s,depth=1", 1000, 0, 1), 1000 * MS);
}

#[test]
fn a_store_with_too_few_slots_costs_what_it_is_slower() {
    // 10 reads of 4 ms, 2 at a time: 20 ms a batch, of which 10 are hidden behind compute.
    assert_near(stall("latency=4ms,depth=2", 1000, 10, 1), 1000.0 * (20.0 - 10.0), 0.01);
    // Half of them: 10 ms a batch, all hidden except the first batch's.
    assert!(stall("latency=4ms,depth=2", 1000, 5, 1) <= 16 * MS);
}

#[test]
fn a_link_that_is_too_narrow_costs_what_it_is_slower() {
    // 10 reads of 3,000 bytes at 1 MB/s: 30 ms a batch.
    assert_near(stall("latency=0ms,bandwidth=1MB", 1000, 10, 3000), 1000.0 * (30.0 - 10.0), 0.01);
}

#[test]
fn the_ring_hides_latency_as_long_as_it_is_deep() {
    // Batches are asked for 8 x 10 ms ahead of the end of their compute, 70 ms ahead of its
    // beginning.
    assert_eq!(stall("latency=70ms", 1000, 10, 1), 70 * MS);
    // 100 ms: every 8 batches take 100 + 10 ms instead of 80.
    assert_near(stall("latency=100ms", 8000, 10, 1), 1000.0 * 30.0, 0.01);
}

#[test]
fn an_epoch_begins_with_an_empty_ring() {
    let dataset = dataset(1000, Sizes::Unit);
    let epoch = |epoch: u32| {
        let first = std::iter::repeat_n(0, BATCH as usize);
        ids(first.chain((1..20).flat_map(move |batch| std::iter::repeat_n(epoch * 20 + batch, 10))))
    };
    let script = epochs(&[epoch(0), epoch(1), epoch(2)]);
    let played = Following::with(Policy::Lru, 1000, "latency=50ms").play(&dataset, &script);
    // Sample 0 is read once. The second batch of each other epoch is asked for when that begins, of
    // which the first computes 10 ms away.
    assert_eq!(stalled(&played), (50 + 2 * 40) * MS);
}

#[test]
fn prefetches_take_the_time_in_which_the_store_is_idle() {
    let dataset = dataset(400, Sizes::Unit);
    // Four of 4 ms at a time while 10 ms are computed: an idle store half of the time, as in each
    // batch five hit.
    let accesses = ids((0..80).flat_map(|batch| (0..10).map(move |at| (batch * 5 + at / 2) % 400)));
    let script = epochs(std::slice::from_ref(&accesses));
    let played = |policy| {
        let played = Following::with(policy, 400, "latency=4ms,depth=4").play(&dataset, &script);
        (played.all().counts.prefetched, counted(&played))
    };
    let (lru, lookahead) = (played(Policy::Lru), played(Policy::Lookahead));
    let ((none, [.., lru_bytes]), (prefetched, [_, hits, .., bytes])) = (lru, lookahead);
    assert_eq!((none, lru_bytes, bytes), (0, 400, 400));
    assert!(prefetched > 100 && hits == 400, "{lookahead:?}");
}

#[test]
fn latencies_that_vary_come_from_the_stores_seed() {
    let stall = |store| stall(store, 100, 10, 1);
    let varied = stall("latency=lognormal:4ms:1,depth=2");
    assert_eq!(varied, stall("latency=lognormal:4ms:1,depth=2"));
    assert_ne!(varied, stall("latency=lognormal:4ms:1,depth=2,seed=1"));
    // The mean of a lognormal is exp(sigma²/2) of its median.
    assert_near(varied, 100.0 * (20.0 * 0.5f64.exp() - 10.0), 0.1);
}

const STRATA: u32 = 24;
const EPOCHS: u32 = 4;

/// By rank: all samples that it has computed.
fn played(plan: PlanSpec, nodes: u32, ranks_per_node: u32, lose: &[Loss]) -> Vec<Vec<SampleId>> {
    let dataset = dataset(STRATA * 40 + 7, Sizes::Unit);
    let plan = PlanSpec { seed: 9, ..plan };
    let losses = LossSource::Model;
    let training = Box::new(plan);
    let accesses = Accesses::Training { plan: training, weights: None, epochs: EPOCHS, seeds: 1, losses };
    let workload = Workload { batch_size: 8, ..workload(&dataset, accesses) };
    let system = system(Policy::Lookahead, &plan);
    let around = Nodes { lose, ..self::nodes(nodes, ranks_per_node, STRATA) };
    let around = Surroundings { nodes: Some(around), jobs: None, compute: MS };
    let training = Training::new(&workload, &system, &around, 30 * u64::from(nodes), 0, 0..1);
    let mut seen = vec![Vec::new(); (nodes * ranks_per_node) as usize];
    let played = training.train(&Watch::unseen(), &mut |rank, ids, _| seen[rank].extend_from_slice(ids));
    assert_eq!(played.unwrap().jobs[0].len(), EPOCHS as usize);
    seen
}

fn plan(sampler: Sampler, mix: f64) -> PlanSpec {
    PlanSpec { sampler, mix, order: Order::Shuffled, ..PlanSpec::default() }
}

#[test]
fn ranks_have_the_same_samples_on_any_number_of_nodes() {
    for plan in [plan(Sampler::Pads, 0.0), plan(Sampler::Uniform, 0.3)] {
        let one = played(plan, 1, 4, &[]);
        assert!(one.iter().all(|of_rank| of_rank.len() >= (EPOCHS * STRATA * 10) as usize));
        assert!(played(plan, 4, 1, &[]) == one && played(plan, 2, 2, &[]) == one, "{plan:?}");
    }
}

#[test]
fn each_epoch_has_each_sample_when_nodes_are_lost() {
    let lose = [Loss { node: 1, epoch: 1 }, Loss { node: 3, epoch: 2 }];
    let mut counts = vec![0; (STRATA * 40 + 7) as usize];
    for id in played(plan(Sampler::Uniform, 0.2), 4, 1, &lose).into_iter().flatten() {
        counts[id.index()] += 1;
    }
    assert!(counts.iter().all(|&count| count == EPOCHS), "{counts:?}");
}

/// Nodes without a tier and without losses of nodes.
fn nodes(count: u32, ranks_per_node: u32, strata: u32) -> Nodes<'static> {
    Nodes {
        count,
        ranks_per_node,
        strata,
        is_global: false,
        nic: None,
        tier_bytes: 0,
        tier: StoreModel::default(),
        straggle: None,
        lose: &[],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any nodes, jobs, samplers, policies and stores: each epoch of each job has as many accesses
    /// as samples, and time passes as it must. The same once more.
    #[test]
    fn each_job_has_its_epochs_on_any_nodes(
        count in 0..4_u32, ranks in 1..3_u32, jobs in 0..4_usize, is_group: bool, uniform: bool,
        policy in prop::sample::select(&[Policy::Lru, Policy::App, Policy::Lookahead, Policy::Arc][..]),
        has_store: bool, has_tier: bool, cache in 0..300_u64, seed: u64,
    ) {
        // A multiple of all batches of all ranks.
        const SAMPLES: u32 = 240;
        let dataset = dataset(SAMPLES, Sizes::Unit);
        let sampler = if uniform { Sampler::Uniform } else { Sampler::Pads };
        let plan = PlanSpec { seed, ..plan(sampler, 0.0) };
        let losses = LossSource::Model;
        let accesses = Accesses::Training { plan: Box::new(plan), weights: None, epochs: 3, seeds: 1, losses };
        let store: StoreModel = "latency=3ms,depth=4".parse().unwrap();
        let store = has_store.then_some(store);
        let workload = Workload { batch_size: 5, store, ..workload(&dataset, accesses) };
        let tier_bytes = if has_tier { 20_000 } else { 0 };
        let with_tier = |nodes| Nodes { tier_bytes, ..nodes };
        let nodes = (count > 0).then(|| with_tier(nodes(count, ranks, count * ranks)));
        let around = Surroundings {
            nodes,
            jobs: (jobs > 0).then(|| Jobs { speeds: vec![1.0; jobs], correlation: 0.7, is_group }),
            compute: MS,
        };
        let system = system(policy, &plan);
        let play = || {
            let training = Training::new(&workload, &system, &around, cache, 0, 0..around.jobs());
            training.play(&Watch::unseen()).unwrap().all
        };
        let (once, again) = (play(), play());
        prop_assert_eq!(once.jobs.len(), jobs.max(1));
        for (epochs, same) in once.jobs.iter().zip(&again.jobs) {
            prop_assert_eq!(epochs.len(), 3);
            for (epoch, same) in epochs.iter().zip(same) {
                prop_assert_eq!(epoch.counts.accesses, u64::from(SAMPLES));
                prop_assert!(!uniform || epoch.distinct == u64::from(SAMPLES));
                prop_assert!(epoch.stall_ns >= 0.0 && (has_store || epoch.stall_ns == 0.0));
                let parts_ns = epoch.compute_ns + epoch.straggle_ns + epoch.stall_ns;
                prop_assert!((epoch.time_ns - parts_ns).abs() < 1e3, "{:?}", epoch);
                prop_assert_eq!(epoch.counts, same.counts);
                prop_assert_eq!(epoch.time_ns, same.time_ns);
            }
        }
        prop_assert!((once.ever_seen_share.unwrap() - 1.0).abs() < 1e-9 || !uniform);
    }
}
