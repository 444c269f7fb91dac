//! Cores die at any moment under trainings that go on with a successor: its batches are those of an
//! undisturbed training, for every sampler, order and number of strata. Where something goes by
//! what is cached, no row is lost or comes twice.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::importance::Importance;
use shade_core::{BaseVersion, Event};
use shade_formats::SampleId;
use shade_formats::control::{RedoRow, Step, redo_to_bytes};
use shade_formats::ring::FLAG_PADDING;
use shade_job::{JobSpec, Order, PlanSpec, Policy, Sampler, Seats};

use crate::replay::{GivenBase, Replay, Taken, index, spec};

const SAMPLES: u32 = 96;
const EPOCHS: u32 = 4;
const WORLD_SIZE: u32 = 2;
const BATCH_SIZE: u32 = 8;

fn loss(id: u32, epoch: u32) -> f32 {
    ((id * 31 + epoch * 17) % 97) as f32
}

/// When a batch's losses are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before the next epoch.
    Soon,
    /// After the next epoch's first batch.
    Late,
    Never,
}

fn when(taken: &Taken) -> When {
    match (taken.epoch * 13 + taken.batch * 7 + taken.session * 3) % 5 {
        0 => When::Late,
        1 => When::Never,
        _ => When::Soon,
    }
}

/// One rank, and what its client keeps.
#[derive(Default)]
struct Trainer {
    epoch: u32,
    next: u32,
    base: Option<GivenBase>,
    steps: Vec<Step>,
    /// Batches whose losses are not reported yet.
    soon: Vec<Taken>,
    late: Vec<Taken>,
    is_through: bool,
}

impl Trainer {
    fn begin(&mut self, base: GivenBase) {
        let is_start = |step: &Step| *step == Step::Started { epoch: base.epoch };
        let from = self.steps.iter().rposition(is_start).unwrap();
        let tail = self.steps.split_off(from);
        let is_of_before =
            |step: &Step| matches!(step, Step::Delivered { epoch, .. } if epoch + 1 == base.epoch);
        self.steps.retain(is_of_before);
        self.steps.extend(tail);
        self.base = Some(base);
    }
}

/// A training of two ranks of one job, or of a rank of each of two jobs. Sessions have the numbers
/// of the trainers.
struct Life<'a> {
    jobs: &'a [JobSpec],
    policy: Policy,
    replay: Replay,
    trainers: Vec<Trainer>,
    taken: BTreeMap<(u32, u32, u32), Taken>,
    deaths: u32,
    what: String,
}

fn replay(policy: Policy, seed: u64) -> Replay {
    // A successor may have another cache.
    let cache_samples = 30 + 5 * (seed % 7);
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), policy, cache_samples * 512, 4, seed);
    replay.aside_at_once = seed.is_multiple_of(2);
    replay.survive();
    replay
}

impl<'a> Life<'a> {
    fn new(jobs: &'a [JobSpec], policy: Policy, what: String) -> Self {
        let trainers = (0..WORLD_SIZE).map(|_| Trainer::default()).collect();
        let replay = replay(policy, 7);
        let mut life = Self { jobs, policy, replay, trainers, taken: BTreeMap::new(), deaths: 0, what };
        (0..WORLD_SIZE).for_each(|rank| life.attach(rank));
        life
    }

    fn attach(&mut self, rank: u32) {
        match self.jobs {
            [job] => self.replay.attach(rank, rank, job),
            jobs => self.replay.attach_job(rank, &format!("job {rank}"), &jobs[rank as usize]),
        }
    }

    fn start(&mut self, rank: u32) {
        let trainer = &mut self.trainers[rank as usize];
        trainer.steps.push(Step::Started { epoch: trainer.epoch });
        trainer.next = 0;
        self.replay.start(rank, trainer.epoch, 0);
    }

    fn report(&mut self, taken: &Taken) {
        let Taken { session: rank, epoch, batch, .. } = *taken;
        let losses: Vec<f32> = taken.ids.iter().map(|&id| loss(id, epoch)).collect();
        let step = Step::Reported { epoch, batch, losses: losses.clone() };
        self.trainers[rank as usize].steps.push(step);
        self.replay.step(Event::Report { session: rank, epoch, batch, losses });
    }

    /// Trainers take what has come.
    fn take(&mut self) {
        for base in std::mem::take(&mut self.replay.bases) {
            for &rank in &base.sessions {
                self.trainers[rank as usize].begin(base.clone());
            }
        }
        for taken in std::mem::take(&mut self.replay.taken) {
            let Taken { session: rank, epoch, batch, .. } = taken;
            let trainer = &mut self.trainers[rank as usize];
            assert_eq!((epoch, batch), (trainer.epoch, trainer.next), "{}: rank {rank}", self.what);
            trainer.next = batch + 1;
            if trainer.base.is_some() {
                let row = |(&id, &flags): (&u32, &u32)| RedoRow { sample: SampleId(id), flags };
                let rows = taken.ids.iter().zip(&taken.flags).map(row).collect();
                trainer.steps.push(Step::Delivered { epoch, batch, rows });
            }
            match when(&taken) {
                When::Soon => trainer.soon.push(taken.clone()),
                When::Late => trainer.late.push(taken.clone()),
                When::Never => {}
            }
            let late: Vec<Taken> = trainer.late.extract_if(.., |late| late.epoch < epoch).collect();
            late.iter().for_each(|taken| self.report(taken));
            if batch.is_multiple_of(2) {
                let soon = std::mem::take(&mut self.trainers[rank as usize].soon);
                soon.iter().for_each(|taken| self.report(taken));
            }
            assert!(self.taken.insert((epoch, rank, batch), taken).is_none(), "{}: twice", self.what);
        }
        for (rank, epoch) in std::mem::take(&mut self.replay.ended_sessions) {
            let trainer = &mut self.trainers[rank as usize];
            if trainer.is_through || epoch != trainer.epoch {
                continue;
            }
            let soon = std::mem::take(&mut trainer.soon);
            trainer.epoch += 1;
            trainer.is_through = trainer.epoch == EPOCHS;
            soon.iter().for_each(|taken| self.report(taken));
            if !self.trainers[rank as usize].is_through {
                self.start(rank);
            }
        }
    }

    fn is_through(&self) -> bool {
        self.trainers.iter().all(|trainer| trainer.is_through)
    }

    /// The core is gone with all that it had. Ranks find the next one in any order, and it may die
    /// before they all have.
    fn die(&mut self, random: &mut ChaCha8Rng) {
        self.deaths += 1;
        self.replay = replay(self.policy, random.random());
        let mut ranks: Vec<u32> = (0..WORLD_SIZE).collect();
        ranks.shuffle(random);
        for rank in ranks {
            if random.random_ratio(1, 8) {
                return self.die(random);
            }
            self.attach(rank);
            let trainer = &self.trainers[rank as usize];
            if let Some(base) = &trainer.base {
                let version = BaseVersion { loads: 0, begun: base.epoch + 1 };
                let bytes = Vec::clone(&base.bytes);
                self.replay.step(Event::TakeBase { session: rank, version, bytes });
            }
            let bytes = redo_to_bytes(&trainer.steps);
            self.replay.step(Event::TakeRedo { session: rank, bytes });
            // A rank that is through asks for the rest of its last epoch: others need it here.
            self.replay.go_on(rank, trainer.epoch.min(EPOCHS - 1), trainer.next);
            for _ in 0..random.random_range(0..4) {
                self.replay.tick();
            }
        }
    }

    fn run(mut self, mut random: Option<ChaCha8Rng>) -> (BTreeMap<(u32, u32, u32), Taken>, u32) {
        (0..WORLD_SIZE).for_each(|rank| self.start(rank));
        while !self.is_through() {
            let has_news = self.replay.tick();
            // What is in a ring is taken whatever becomes of the daemon.
            self.take();
            if let Some(random) = random.as_mut()
                && random.random_ratio(1, 40)
            {
                self.die(random);
                self.take();
            } else {
                assert!(
                    has_news || self.is_through(),
                    "{}: it waits for ever: {:?}",
                    self.what,
                    self.replay.failed
                );
            }
        }
        assert!(self.replay.failed.is_empty(), "{}: {:?}", self.what, self.replay.failed);
        (self.taken, self.deaths)
    }
}

/// Without what differs with the place in the ring.
fn shown(taken: &Taken) -> (&[u32], &[f32], &[u32]) {
    (&taken.ids, &taken.weights, &taken.flags)
}

fn check(plan: PlanSpec, policy: Policy, seed: u64) -> u32 {
    let what = format!("{policy:?} {plan:?} seed {seed}");
    let jobs = [JobSpec { plan, ..spec(BATCH_SIZE, WORLD_SIZE) }];
    let life = || Life::new(&jobs, policy, what.clone());
    let (undisturbed, _) = life().run(None);
    let (disturbed, deaths) = life().run(Some(ChaCha8Rng::seed_from_u64(seed)));
    let exchanges = matches!(policy, Policy::Icache | Policy::Quiver);
    if !plan.depends_on_residents() && !exchanges {
        assert_eq!(undisturbed.len(), disturbed.len(), "{what}");
        for ((at, one), other) in undisturbed.iter().zip(disturbed.values()) {
            assert_eq!(shown(one), shown(other), "{what}: (epoch, rank, batch) {at:?} after {deaths} deaths");
        }
    } else if !plan.is_by_importance() && plan.rep <= 1.0 {
        // Other samples may have changed places, and still each comes as often.
        assert_eq!(uses(disturbed.values()), uses(undisturbed.values()), "{what}: after {deaths} deaths");
    }
    deaths
}

/// How often each sample comes in each epoch, with which weight.
fn uses<'a>(taken: impl IntoIterator<Item = &'a Taken>) -> BTreeMap<(u32, u32, u32), u32> {
    let mut uses = BTreeMap::new();
    for taken in taken {
        for ((&id, weight), &flags) in taken.ids.iter().zip(&taken.weights).zip(&taken.flags) {
            if flags & FLAG_PADDING == 0 {
                *uses.entry((taken.epoch, id, weight.to_bits())).or_default() += 1;
            }
        }
    }
    uses
}

fn plans() -> impl Iterator<Item = PlanSpec> {
    let orders = || Order::ALL.iter().copied();
    let of = Sampler::ALL.iter().flat_map(move |&sampler| orders().map(move |order| (sampler, order)));
    of.flat_map(|(sampler, order)| {
        [(1.0, 1), (2.0, 1), (1.0, 2), (1.0, 4)].into_iter().map(move |(rep, strata)| PlanSpec {
            sampler,
            order,
            rep,
            strata,
            seed: 5,
            ..PlanSpec::default()
        })
    })
}

fn is_possible(plan: PlanSpec) -> bool {
    JobSpec { plan, ..spec(BATCH_SIZE, WORLD_SIZE) }.validate().is_ok()
}

#[test]
fn every_plan_goes_on_as_if_nothing_had_happened() {
    let (mut deaths, mut seed) = (0, 0);
    for plan in plans().filter(|&plan| is_possible(plan)) {
        for policy in [Policy::Lookahead, Policy::App] {
            seed += 1;
            deaths += check(plan, policy, seed);
        }
    }
    assert!(deaths > 500, "{deaths} deaths");
}

#[test]
fn policies_that_exchange_samples_lose_none_and_give_none_twice() {
    for seed in 0..30 {
        for sampler in [Sampler::Uniform, Sampler::Replacement, Sampler::Balanced] {
            let of = |strata| PlanSpec { sampler, strata, ..PlanSpec::default() };
            for plan in [1, 2].map(of).into_iter().filter(|&plan| is_possible(plan)) {
                for policy in [Policy::Quiver, Policy::Icache] {
                    check(plan, policy, seed);
                }
            }
        }
    }
}

/// A core dies in the middle of an epoch in which samples of different weights have changed places.
#[test]
fn what_was_exchanged_keeps_its_weight() {
    let plan = PlanSpec { sampler: Sampler::Infobatch, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(BATCH_SIZE, 1) };
    for seed in 0..10 {
        let first_epochs = |policy| {
            let mut core = replay(policy, seed);
            core.attach(0, 0, &job);
            core.epoch(0);
            let mut learned = Importance::new(SAMPLES);
            (0..SAMPLES).for_each(|id| learned.set_score(SampleId(id), 2.0 + loss(id, 0) / 97.0));
            core.step(Event::Importance(0, Box::new(learned)));
            core.taken.clear();
            core.start(0, 1, 0);
            core
        };
        let mut as_planned = first_epochs(Policy::Lru);
        as_planned.run();
        let mut first = first_epochs(Policy::Quiver);
        while first.taken.len() < 5 {
            assert!(first.tick());
        }
        let (mut taken, base) = (std::mem::take(&mut first.taken), first.bases.pop().unwrap());
        let mut next = replay(Policy::Quiver, seed + 1);
        next.attach(0, 0, &job);
        let version = BaseVersion { loads: 0, begun: base.epoch + 1 };
        next.step(Event::TakeBase { session: 0, version, bytes: Vec::clone(&base.bytes) });
        let row = |(&id, &flags): (&u32, &u32)| RedoRow { sample: SampleId(id), flags };
        let delivered = |taken: &Taken| Step::Delivered {
            epoch: 1,
            batch: taken.batch,
            rows: taken.ids.iter().zip(&taken.flags).map(row).collect(),
        };
        let steps = std::iter::once(Step::Started { epoch: 1 }).chain(taken.iter().map(delivered));
        let bytes = redo_to_bytes(&steps.collect::<Vec<_>>());
        next.step(Event::TakeRedo { session: 0, bytes });
        next.go_on(0, 1, u32::try_from(taken.len()).unwrap());
        next.run();
        taken.append(&mut next.taken);
        assert_eq!(uses(&taken), uses(&as_planned.taken), "seed {seed}");
    }
}

#[test]
fn importance_survives_hundreds_of_deaths() {
    let samplers =
        [Sampler::Pads, Sampler::Iis, Sampler::Cis, Sampler::Infobatch, Sampler::Seta, Sampler::Replacement];
    for sampler in samplers {
        for seed in 0..40 {
            check(PlanSpec { sampler, ..PlanSpec::default() }, Policy::Lookahead, seed);
        }
    }
}

#[test]
fn jobs_side_by_side_go_on_each_from_its_own() {
    let of = |sampler, group| JobSpec {
        plan: PlanSpec { sampler, group, ..PlanSpec::default() },
        ..spec(BATCH_SIZE, 1)
    };
    for group in [0, 9] {
        for samplers in [
            [Sampler::Pads, Sampler::Uniform],
            [Sampler::Cis, Sampler::Pads],
            [Sampler::Echo, Sampler::Replacement],
        ] {
            for seed in 0..12 {
                let jobs = samplers.map(|sampler| of(sampler, group));
                let what = format!("{samplers:?} group {group} seed {seed}");
                let life = || Life::new(&jobs, Policy::Lookahead, what.clone());
                let (undisturbed, _) = life().run(None);
                let (disturbed, deaths) = life().run(Some(ChaCha8Rng::seed_from_u64(seed)));
                for ((at, one), other) in undisturbed.iter().zip(disturbed.values()) {
                    assert_eq!(shown(one), shown(other), "{what}: {at:?} after {deaths} deaths");
                }
                assert_eq!(undisturbed.len(), disturbed.len(), "{what}");
            }
        }
    }
}

/// A state that was loaded takes the place of a base until an epoch begins after it, also where the
/// core dies before all ranks have loaded it; and whether it was saved before the first plan, for
/// which seats are told, or in the middle of a later one.
#[test]
fn a_loaded_state_is_gone_on_from() {
    for sampler in [Sampler::Pads, Sampler::Uniform] {
        for strata in [1, 4] {
            let plan = PlanSpec { sampler, strata, ..PlanSpec::default() };
            let job = JobSpec { plan, ..spec(8, 2) };
            let seats = (strata > 1).then(|| Seats::new(vec![2, 0, 3, 1], SAMPLES).unwrap());
            for saved_at in [(0, 0), (1, 3)] {
                let mut first = replay(Policy::Lookahead, 2);
                attach_with(&mut first, &job, seats.as_ref());
                if saved_at.0 > 0 {
                    let taken = first.epoch(0);
                    first.report(&taken, |id| loss(id, 0));
                    first.epoch(1);
                }
                let state = first.save(saved_at.0, saved_at.1);
                check_loaded(&job, seats.as_ref(), &state, saved_at);
            }
        }
    }
}

/// Seats that were told are for the epoch after a state that is loaded, on a node whose daemon was
/// replaced as on any other.
#[test]
fn seats_that_were_told_are_for_plans_after_a_later_load() {
    let seats = Seats::new(vec![2, 0, 3, 1], SAMPLES).unwrap();
    for mix in [0.0, 0.5] {
        let job = JobSpec { plan: PlanSpec { strata: 4, mix, ..PlanSpec::default() }, ..spec(8, 2) };
        // This is of another training.
        let mut other = replay(Policy::Lookahead, 2);
        attach_with(&mut other, &job, Some(&Seats::IN_ORDER));
        other.epoch(0);
        let state = other.save(0, 3);
        let mut first = replay(Policy::Lookahead, 2);
        attach_with(&mut first, &job, Some(&seats));
        (0..3).for_each(|epoch| drop(first.epoch(epoch)));
        let base = first.bases.pop().unwrap();
        let mut next = replay(Policy::Lookahead, 4);
        attach_with(&mut next, &job, Some(&seats));
        for session in 0..2 {
            let version = BaseVersion { loads: 0, begun: base.epoch + 1 };
            next.step(Event::TakeBase { session, version, bytes: Vec::clone(&base.bytes) });
            next.step(Event::TakeRedo { session, bytes: redo_to_bytes([]) });
            next.go_on(session, base.epoch, 0);
        }
        next.run();
        let [expected, got] = [first, next].map(|mut core| {
            core.load(&state);
            (0..2).for_each(|rank| core.start(rank, 0, 3));
            core.run();
            assert!(core.failed.is_empty(), "{:?}", core.failed);
            sorted(core.epoch(1))
        });
        assert_eq!(got, expected, "mix {mix}");
    }
}

/// Rank, batch and samples of each batch, in order.
fn sorted(mut taken: Vec<Taken>) -> Vec<(u32, u32, Vec<u32>)> {
    taken.sort_by_key(|taken| (taken.epoch, taken.rank, taken.batch));
    taken.into_iter().map(|taken| (taken.rank, taken.batch, taken.ids)).collect()
}

fn attach_with(core: &mut Replay, job: &JobSpec, seats: Option<&Seats>) {
    core.attach_all(job, 0);
    for (session, seats) in (0..2).zip(seats.into_iter().cycle()) {
        core.step(Event::Seat { session, bytes: seats.to_bytes() });
    }
}

/// Asserts that a training goes on from a state as if its core had not died behind the load.
fn check_loaded(job: &JobSpec, seats: Option<&Seats>, state: &[u8], (epoch, batch): (u32, u32)) {
    let rest_and_next = |core: &mut Replay| {
        core.run();
        assert!(core.failed.is_empty(), "{:?}", core.failed);
        let rest = std::mem::take(&mut core.taken);
        core.report(&rest, |id| loss(id, epoch));
        (sorted(rest), sorted(core.epoch(epoch + 1)))
    };
    let mut resumed = replay(Policy::Lookahead, 4);
    attach_with(&mut resumed, job, seats);
    resumed.load(state);
    (0..2).for_each(|rank| resumed.start(rank, epoch, batch));
    let expected = rest_and_next(&mut resumed);
    let version = BaseVersion { loads: 1, begun: 0 };
    for has_both in [true, false] {
        let mut core = replay(Policy::Lookahead, 6);
        attach_with(&mut core, job, seats);
        for session in 0..2 {
            let bytes = state.to_vec();
            core.step(match has_both || session == 1 {
                true => Event::TakeBase { session, version, bytes },
                false => Event::LoadState { session, strata: 0, bytes },
            });
        }
        (0..2).rev().for_each(|rank| core.go_on(rank, epoch, batch));
        let what = format!("{:?} at {epoch}, {batch}; both: {has_both}", job.plan);
        assert_eq!(rest_and_next(&mut core), expected, "{what}");
    }
}

/// Forged or damaged, what is handed over ends its sender's session, or its job, and nothing else.
#[test]
fn what_is_handed_over_is_judged() {
    let job = JobSpec { plan: PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() }, ..spec(8, 1) };
    let mut first = replay(Policy::Lookahead, 2);
    first.attach(0, 0, &job);
    first.epoch(0);
    let base = first.bases.pop().unwrap();
    let mut forged = Vec::clone(&base.bytes);
    let at = forged.len() / 2;
    forged[at] ^= 1;
    let foreign =
        Step::Delivered { epoch: 0, batch: 0, rows: vec![RedoRow { sample: SampleId(SAMPLES), flags: 0 }] };
    let hand_over = |bytes: &[u8], begun: u32, redo: &[u8]| {
        let mut next = replay(Policy::Lookahead, 4);
        next.attach(0, 0, &job);
        let version = BaseVersion { loads: 0, begun };
        next.step(Event::TakeBase { session: 0, version, bytes: bytes.to_vec() });
        next.step(Event::TakeRedo { session: 0, bytes: redo.to_vec() });
        next.go_on(0, 0, 0);
        next.run();
        (std::mem::take(&mut next.failed), next.taken.len())
    };
    let nothing = redo_to_bytes([]);
    let (failed, taken) = hand_over(&base.bytes, 1, &nothing);
    assert!(failed.is_empty() && taken > 0, "{failed:?}");
    for (bytes, begun, redo, wrong) in [
        (&forged[..], 1, &nothing[..], "checksum"),
        (&base.bytes[..40], 1, &nothing, "state"),
        (&[], 1, &nothing, "header"),
        (&base.bytes, 3, &nothing, "epoch 0"),
        (&base.bytes, 0, &nothing, "checksum"),
        (&base.bytes, 1, b"no redo record", "redo record"),
        (&base.bytes, 1, &redo_to_bytes([&foreign]), "not of this job"),
    ] {
        let (failed, _) = hand_over(bytes, begun, redo);
        assert!(failed.iter().any(|text| text.contains(wrong)), "{wrong}: {failed:?}");
    }
}

#[test]
fn two_ranks_that_hand_over_different_bases_of_one_epoch_are_refused() {
    let job = JobSpec { plan: PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() }, ..spec(8, 2) };
    let mut first = replay(Policy::Lookahead, 2);
    first.attach_all(&job, 0);
    first.epoch(0);
    let base = first.bases.pop().unwrap();
    let mut next = replay(Policy::Lookahead, 4);
    next.attach_all(&job, 0);
    for (rank, end) in [(0, &[][..]), (1, &[0])] {
        let (version, bytes) = (BaseVersion { loads: 0, begun: 1 }, [&base.bytes, end].concat());
        next.step(Event::TakeBase { session: rank, version, bytes });
    }
    assert!(
        next.failed.iter().any(|text| text.contains("another state of the training")),
        "{:?}",
        next.failed
    );
}
