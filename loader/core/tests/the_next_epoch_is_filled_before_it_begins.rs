//! Where the next plan is known, its first batches are filled while ranks still have some of this
//! epoch. Trainers get the same as without, whatever they ask for meanwhile.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::{Event, SessionId};
use shade_job::{JobSpec, OnError, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 240;
const BATCH: u32 = 10;
/// Samplers whose plans depend on no loss.
const KNOWN: [Sampler; 6] = [
    Sampler::Uniform,
    Sampler::Sequential,
    Sampler::Echo,
    Sampler::Replacement,
    Sampler::Weighted,
    Sampler::Balanced,
];

fn job(sampler: Sampler, cover: u32, world_size: u32) -> JobSpec {
    // Caches differ here, and the gap would follow from them.
    JobSpec {
        plan: PlanSpec { sampler, cover, gap: Some(9), ..PlanSpec::default() },
        ..spec(BATCH, world_size)
    }
}

/// A core with a cache of `cached` records.
fn replay(policy: Policy, cached: u32, job: &JobSpec, opens_ahead: bool) -> Replay {
    let (index, cache_bytes) = (index(SAMPLES, 4, |_| 400), u64::from(cached) * 512);
    let mut replay = if opens_ahead {
        Replay::opening_ahead(index, policy, cache_bytes, 8, 5)
    } else {
        Replay::new(index, policy, cache_bytes, 8, 5)
    };
    replay.attach_all(job, 0);
    replay
}

fn in_order(mut taken: Vec<Taken>) -> Vec<Taken> {
    taken.sort_by_key(|taken| (taken.epoch, taken.batch, taken.rank));
    taken
}

/// Whether batches of the next epoch are there at the moment at which it is asked for.
fn are_there(replay: &mut Replay, epoch: u32, world_size: u32) -> bool {
    let before = replay.taken.len();
    (0..world_size).for_each(|rank| replay.start(rank, epoch, 0));
    let ranks_with = |replay: &Replay| {
        (0..world_size).filter(|rank| replay.taken[before..].iter().any(|taken| taken.rank == *rank)).count()
    };
    ranks_with(replay) == world_size as usize
}

#[test]
fn first_batches_are_there_when_the_epoch_is_asked_for() {
    let covers = |sampler| if sampler == Sampler::Replacement { vec![0, 4] } else { vec![0] };
    for (sampler, cover) in
        KNOWN.iter().flat_map(|&sampler| covers(sampler).into_iter().map(move |c| (sampler, c)))
    {
        for world_size in [1, 2, 3] {
            for policy in [Policy::Lookahead, Policy::App, Policy::Lru] {
                let what = format!("{sampler} cover {cover}, {world_size} ranks, {policy}");
                let job = job(sampler, cover, world_size);
                let (mut as_asked, mut ahead) =
                    (replay(policy, 40, &job, false), replay(policy, 40, &job, true));
                for epoch in 0..4 {
                    assert_eq!(are_there(&mut ahead, epoch, world_size), epoch > 0, "{what}, epoch {epoch}");
                    ahead.run();
                    as_asked.epoch(epoch);
                }
                let (as_asked, ahead) =
                    (in_order(as_asked.taken.split_off(0)), in_order(ahead.taken.split_off(0)));
                let given = |taken: Vec<Taken>| -> Vec<_> {
                    taken.into_iter().map(|t| (t.epoch, t.batch, t.rank, t.ids, t.weights, t.flags)).collect()
                };
                assert_eq!(given(ahead), given(as_asked), "{what}");
            }
        }
    }
}

#[test]
fn what_is_not_known_yet_is_not_filled() {
    for sampler in [Sampler::Pads, Sampler::Iis, Sampler::Cis, Sampler::Infobatch, Sampler::Seta] {
        let mut replay = replay(Policy::Lookahead, 40, &job(sampler, 0, 1), true);
        let taken = replay.epoch(0);
        replay.report(&taken, |id| id as f32);
        assert!(!are_there(&mut replay, 1, 1), "{sampler}");
    }
    let by_residents = PlanSpec { pace: true, ..PlanSpec::default() };
    let mut paced = replay(Policy::Lookahead, 40, &JobSpec { plan: by_residents, ..spec(BATCH, 1) }, true);
    paced.epoch(0);
    assert!(!are_there(&mut paced, 1, 1));
    for policy in [Policy::Quiver, Policy::Icache] {
        let mut exchanged = replay(policy, 40, &job(Sampler::Uniform, 0, 1), true);
        exchanged.epoch(0);
        assert!(!are_there(&mut exchanged, 1, 1), "{policy}");
    }
}

#[test]
fn figures_of_an_epoch_have_its_own_batches_only() {
    let mut replay = replay(Policy::Lru, 0, &job(Sampler::Uniform, 0, 2), true);
    for epoch in 0..3 {
        replay.epoch(epoch);
        assert_eq!(replay.informed.len(), epoch as usize + 1, "its line comes before the next begins");
        let stats = replay.core().stats(0);
        let counts = stats.epoch.counts.counts;
        assert_eq!((stats.epoch.epoch, counts.accesses, counts.delivered), (Some(epoch), 240, 240));
        assert_eq!(stats.total.counts.counts.accesses, u64::from(epoch + 1) * 240);
        assert!(replay.core().is_idle());
    }
    assert!(replay.reads > 3 * 240, "some were read for an epoch that does not come");
}

#[test]
fn a_bad_record_is_told_to_the_epoch_that_has_it() {
    for on_error in [OnError::Raise, OnError::Skip] {
        let job = JobSpec { on_error, bad_max: 1.0, ..job(Sampler::Sequential, 0, 1) };
        let mut replay = replay(Policy::Lru, 0, &job, true);
        replay.epoch(0);
        assert!(replay.errors.is_empty());
        // Its first batch is filled, and has been read before.
        replay.bad.extend([0, BATCH * 2]);
        replay.epoch(1);
        replay.bad.insert(1);
        replay.errors.clear();
        assert!(replay.core().is_idle());
        replay.epoch(2);
        let is_raised = on_error == OnError::Raise;
        assert_eq!(!replay.errors.is_empty(), is_raised, "{:?}", replay.errors);
        assert_eq!(replay.core().stats(0).epoch.counts.counts.skipped > 0, !is_raised);
    }
}

/// What happens between two ticks.
#[derive(Clone, Debug)]
enum Op {
    /// A rank asks for an epoch from a batch on: which epoch after its last one, and which batch.
    Ask(u32, u32, u32),
    /// All ranks ask for the next epoch.
    AskAll,
    Tick(usize),
    Hold(bool),
    Save,
    Load,
    /// A rank leaves, and attaches again.
    Leave(u32),
    /// Losses that no plan goes by.
    Report,
    Validate,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..3_u32, 0..3_u32, 0..4_u32).prop_map(|(rank, later, batch)| Op::Ask(rank, later, batch)),
        6 => Just(Op::AskAll),
        8 => (1..400_usize).prop_map(Op::Tick),
        1 => any::<bool>().prop_map(Op::Hold),
        1 => Just(Op::Save),
        1 => Just(Op::Load),
        1 => (0..3_u32).prop_map(Op::Leave),
        1 => Just(Op::Report),
        1 => Just(Op::Validate),
    ]
}

/// Ranks that do as `ops` say.
struct World {
    replay: Replay,
    job: JobSpec,
    /// By rank: its session, and the epoch that it asked for last.
    ranks: Vec<(SessionId, u32)>,
    sessions: SessionId,
}

impl World {
    fn go_on(&mut self, op: &Op) {
        let world_size = self.job.world_size;
        match *op {
            Op::Ask(rank, later, batch) => self.ask(rank % world_size, later, batch),
            Op::AskAll => {
                let next = self.next();
                (0..world_size as usize).for_each(|rank| self.ask_for(rank, next, 0));
            }
            Op::Tick(times) => {
                (0..times).for_each(|_| {
                    self.replay.tick();
                });
            }
            Op::Hold(hold) => self.hold(hold),
            Op::Save => {
                let (session, epoch) = self.ranks[0];
                self.replay.step(Event::SaveState { session, epoch, batch: 0 });
            }
            Op::Load => {
                let Some(bytes) = self.replay.states.last().cloned() else { return };
                for (session, _) in self.ranks.clone() {
                    self.replay.step(Event::LoadState { strata: 0, session, bytes: bytes.clone() });
                }
            }
            Op::Leave(rank) => {
                let rank = rank % world_size;
                let left = self.ranks[rank as usize].0;
                self.replay.detach(left);
                self.sessions += 1;
                self.replay.attach(self.sessions, rank, &self.job);
                self.ranks[rank as usize].0 = self.sessions;
            }
            Op::Report => {
                let Some(taken) = self.replay.taken.last().cloned() else { return };
                let losses = taken.ids.iter().map(|&id| id as f32).collect();
                let (epoch, batch) = (taken.epoch, taken.batch);
                self.replay.step(Event::Report { session: taken.session, epoch, batch, losses });
            }
            Op::Validate => {
                let session = self.ranks[0].0;
                self.replay.step(Event::Validation { session, score: 0.5 });
            }
        }
    }

    fn next(&self) -> u32 {
        self.ranks.iter().map(|&(_, epoch)| epoch).max().unwrap() + 1
    }

    fn ask(&mut self, rank: u32, later: u32, batch: u32) {
        let epoch = self.ranks[rank as usize].1 + later;
        self.ask_for(rank as usize, epoch, batch);
    }

    fn ask_for(&mut self, rank: usize, epoch: u32, batch: u32) {
        self.ranks[rank].1 = epoch;
        self.replay.start(self.ranks[rank].0, epoch, batch);
    }

    fn hold(&mut self, hold: bool) {
        self.replay.hold = hold;
        if !hold {
            self.ranks.clone().into_iter().for_each(|(session, _)| self.replay.release_all(session));
        }
    }
}

/// What each rank gets in an epoch.
fn expected(job: &JobSpec, epochs: u32) -> HashMap<(u32, u32, u32), Vec<u32>> {
    let mut replay = replay(Policy::Lru, 0, job, false);
    (0..epochs).for_each(|epoch| drop(replay.epoch(epoch)));
    replay.taken.split_off(0).into_iter().map(|t| ((t.epoch, t.rank, t.batch), t.ids)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trainers_get_what_they_asked_for(
        ops in prop::collection::vec(op(), 1..40),
        sampler in prop::sample::select(&KNOWN[..]),
        policy in prop::sample::select(vec![Policy::Lookahead, Policy::App, Policy::Lru]),
        cached in prop::sample::select(vec![0, 40, SAMPLES]),
        world_size in 1..4_u32,
        aside_at_once in any::<bool>(),
        opens_ahead in any::<bool>(),
        group in 0..2_u64,
    ) {
        let mut job = job(sampler, 0, world_size);
        job.plan.group = group;
        let mut replay = replay(policy, cached, &job, opens_ahead);
        replay.aside_at_once = aside_at_once;
        let ranks = (0..world_size).map(|rank| (rank, 0)).collect();
        let mut world = World { replay, job: job.clone(), ranks, sessions: 100 };
        world.go_on(&Op::AskAll);
        ops.iter().for_each(|op| world.go_on(op));
        world.hold(false);
        world.replay.run();
        let last = world.next();
        let before = world.replay.taken.len();
        (0..world_size as usize).for_each(|rank| world.ask_for(rank, last, 0));
        world.replay.run();
        let expected = expected(&job, last + 1);
        for taken in &world.replay.taken {
            prop_assert_eq!(&expected[&(taken.epoch, taken.rank, taken.batch)], &taken.ids);
        }
        let whole = expected.keys().filter(|(epoch, ..)| *epoch == last).count();
        let of_last = world.replay.taken[before..].iter().filter(|taken| taken.epoch == last).count();
        prop_assert_eq!(of_last, whole, "each batch of the last epoch once");
        prop_assert!(world.replay.core().is_idle());
        let stats = world.replay.core().stats(world.ranks[0].0);
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes, "nothing is left behind");
    }

    #[test]
    fn a_plan_that_takes_its_time_is_the_same(
        late in prop::collection::vec((0..2_u32, 0..12_u32), 0..6),
        sampler in prop::sample::select(Sampler::ALL.to_vec()),
        cover in prop::sample::select(vec![0, 2]),
        draw_ahead in any::<bool>(),
        saves in any::<bool>(),
    ) {
        let mut job = job(sampler, cover, 2);
        job.plan.draw_ahead = draw_ahead;
        let run = |aside_at_once: bool| {
            // Hits are in a state, and depend on timing.
            let mut replay = replay(Policy::App, 0, &job, false);
            replay.aside_at_once = aside_at_once;
            for epoch in 0..4 {
                (0..2).for_each(|rank| replay.start(rank, epoch, 0));
                // Losses of the epoch before that come while the plan is drawn.
                for &(rank, batch) in &late {
                    let of_batch = |taken: &&Taken| (taken.epoch + 1, taken.rank, taken.batch) == (epoch, rank, batch);
                    let late: Vec<Taken> = replay.taken.iter().filter(of_batch).cloned().collect();
                    replay.report(&late, |id| (id * 31 % 97) as f32);
                }
                if saves {
                    replay.step(Event::SaveState { session: 0, epoch, batch: 0 });
                }
                replay.run();
                let taken: Vec<Taken> = replay.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect();
                replay.report(&in_order(taken), |id| (id * 7919 % SAMPLES) as f32);
            }
            (in_order(replay.taken.split_off(0)), replay.states.split_off(0))
        };
        let (at_once, later) = (run(true), run(false));
        prop_assert_eq!(at_once.0, later.0);
        prop_assert!(at_once.1 == later.1, "states differ");
    }
}
