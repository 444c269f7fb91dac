//! The room alone: no records, no batches, no rings. Two jobs of two ranks each train, leave, save
//! and load in any order, while their orders are carried out whenever the test likes.

use std::sync::Arc;

use proptest::prelude::*;
use shade_formats::SampleId;
use shade_job::{JobSpec, PlanSpec, Sampler, Tables, Tail};

use super::{EpochBegun, EpochRequest, LoadAnswer, Training};
use crate::aside::{AsideOrder, AsideResult};
use crate::event::Attach;
use crate::ids::{BatchId, JobId, SessionId};
use crate::lens::{Lens, SAMPLES};

/// Two jobs of two ranks.
const SLOTS: usize = 4;

/// What happens next, to one of the four ranks or to one of what waits.
#[derive(Clone, Copy, Debug)]
enum Act {
    Attach(usize),
    Detach(usize),
    /// It asks for the epoch that comes next.
    Start(usize),
    /// It takes its next batch.
    Take(usize),
    /// Losses come for one of the batches that were ever taken.
    Report(usize),
    Save(usize),
    /// It hands in one of the states that were saved.
    Load(usize, usize),
    /// Plans are ordered, as far as they are due or near.
    Order,
    /// One of the orders is carried out.
    CarryOut(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let (slot, at) = (|| 0..SLOTS, any::<usize>);
    prop_oneof![
        4 => slot().prop_map(Act::Attach),
        1 => slot().prop_map(Act::Detach),
        10 => slot().prop_map(Act::Start),
        30 => slot().prop_map(Act::Take),
        6 => at().prop_map(Act::Report),
        2 => slot().prop_map(Act::Save),
        2 => (slot(), at()).prop_map(|(slot, state)| Act::Load(slot, state)),
        10 => Just(Act::Order),
        10 => at().prop_map(Act::CarryOut),
    ]
}

/// A batch that a rank has taken.
struct Taken {
    session: SessionId,
    batch: BatchId,
    samples: Vec<SampleId>,
}

/// A state, with the rest of its epoch as it was planned: the batches of both ranks.
struct Saved {
    slot: usize,
    bytes: Vec<u8>,
    rest: Vec<Vec<SampleId>>,
}

struct World {
    training: Training,
    /// By slot: its session while it is attached.
    sessions: [Option<SessionId>; SLOTS],
    next_session: SessionId,
    /// By job: the epoch and the batch that its ranks ask for next.
    next: [(u32, u32); 2],
    /// By job: what its ranks have taken of the epoch, if they have taken it from its beginning.
    epoch: [Option<Vec<SampleId>>; 2],
    taken: Vec<Taken>,
    saved: Vec<Saved>,
    orders: Vec<AsideOrder>,
}

fn job_of(slot: usize) -> usize {
    slot / 2
}

impl World {
    fn new() -> Self {
        Self {
            training: Training::new(Arc::new(Lens), 1.0, true),
            sessions: [None; SLOTS],
            next_session: 0,
            next: [(0, 0); 2],
            epoch: [None, None],
            taken: Vec::new(),
            saved: Vec::new(),
            orders: Vec::new(),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Attach(slot) => self.attach(slot),
            Act::Detach(slot) => self.detach(slot),
            Act::Start(slot) => self.start(slot),
            Act::Take(slot) => self.take(slot),
            Act::Report(at) if !self.taken.is_empty() => self.report(at % self.taken.len()),
            Act::Save(slot) => self.save(slot),
            Act::Load(slot, at) if !self.saved.is_empty() => self.load(slot, at % self.saved.len()),
            Act::Order => self.order(),
            Act::CarryOut(at) if !self.orders.is_empty() => {
                let order = self.orders.swap_remove(at % self.orders.len());
                self.carried_out(order.carry_out());
            }
            Act::Report(_) | Act::Load(..) | Act::CarryOut(_) => {}
        }
        self.training.check_books();
    }

    fn attach(&mut self, slot: usize) {
        let sampler = if job_of(slot) == 0 { Sampler::Uniform } else { Sampler::Pads };
        let plan = PlanSpec { sampler, ..PlanSpec::default() };
        let spec = JobSpec { plan, batch_size: 3, world_size: 2, tail: Tail::Even, ..JobSpec::default() };
        let (session, rank, job) =
            (self.next_session, u32::try_from(slot % 2).unwrap(), format!("job {}", job_of(slot)));
        let attach = Attach { session, job, rank, spec, tables: Tables::default(), survives: false };
        let (is_there, other) = (self.sessions[slot].is_some(), self.sessions[slot ^ 1].is_some());
        match self.training.attach(0, attach, 0) {
            Err(refusal) => assert!(is_there, "{}", refusal.text),
            Ok(attached) => {
                assert!(!is_there && attached.begun.is_some() != other, "the first rank begins a job");
                (self.sessions[slot], self.next_session) = (Some(session), session + 1);
                if !other {
                    (self.next[job_of(slot)], self.epoch[job_of(slot)]) = ((0, 0), None);
                }
            }
        }
    }

    fn detach(&mut self, slot: usize) {
        let Some(session) = self.sessions[slot].take() else { return };
        let left = self.training.detach(session);
        let ended = left.and_then(|left| left.ended_admitted);
        assert_eq!(ended, self.sessions[slot ^ 1].is_none().then_some(true), "the last rank ends a job");
        // Nobody takes its batches: what is taken from now on is no whole epoch.
        self.epoch[job_of(slot)] = None;
    }

    /// A session that may speak: its job does not wait for an order.
    fn heard(&self, slot: usize) -> Option<(SessionId, JobId)> {
        let session = self.sessions[slot]?;
        let job = self.training.job_of(session)?;
        (!job.is_postponed()).then_some((session, job.id()))
    }

    fn start(&mut self, slot: usize) {
        let Some((session, job)) = self.heard(slot) else { return };
        let (epoch, next_batch) = self.next[job_of(slot)];
        let request = EpochRequest { generation: 1, epoch, next_batch, ended: false };
        self.training.note_taken(session);
        self.training.check_request(session, request).unwrap();
        let is_begun = self.training.job(job).unwrap().epoch() == Some(epoch);
        assert_eq!(self.training.start_epoch(0, session, request, 0).is_some(), is_begun);
    }

    /// The samples of a rank's batch of the current epoch, without padding.
    fn batch(&self, job: JobId, number: u32, rank: u32) -> Vec<SampleId> {
        let planned = self.training.job(job).unwrap().planned(false).unwrap();
        let slots = planned.batch(number, rank);
        slots.iter().filter(|slot| !slot.padding).filter_map(|slot| planned.sample(slot)).collect()
    }

    fn take(&mut self, slot: usize) {
        let Some((session, id)) = self.heard(slot) else { return };
        let job = self.training.job(id).unwrap();
        let rank = self.training.rank(session).unwrap();
        let current = rank.request().filter(|request| job.epoch() == Some(request.epoch));
        let left = current.filter(|request| request.next_batch < job.batches_per_epoch());
        let Some(EpochRequest { epoch, next_batch: number, .. }) = left else { return };
        let (batch, samples) = (BatchId { epoch, number }, self.batch(id, number, rank.number()));
        assert_eq!(self.training.begin_batch(session), 1);
        self.training.deliver(session, batch, samples.iter().copied(), samples.clone(), true);
        let of_epoch = &mut self.epoch[job_of(slot)];
        of_epoch.iter_mut().for_each(|all| all.extend(&samples));
        self.taken.push(Taken { session, batch, samples });
        self.check_whole(slot, id);
    }

    /// Once both ranks have taken all of an epoch, they have its plan, and each sample once where
    /// nothing is drawn by importance.
    fn check_whole(&mut self, slot: usize, id: JobId) {
        let job = self.training.job(id).unwrap();
        let is_done = |request: EpochRequest| {
            job.epoch() == Some(request.epoch) && request.next_batch == job.batches_per_epoch()
        };
        let ranks = self.training.ranks_of(id);
        if ranks.filter(|rank| rank.request().is_some_and(is_done)).count() < 2 {
            return;
        }
        let Some(mut taken) = self.epoch[job_of(slot)].take() else { return };
        let mut planned = job.plan().unwrap().ids.clone();
        taken.sort_unstable();
        planned.sort_unstable();
        assert_eq!(taken, planned);
        assert!(job_of(slot) == 1 || taken.into_iter().eq((0..SAMPLES).map(SampleId)));
    }

    fn report(&mut self, at: usize) {
        let Taken { session, batch, ref samples } = self.taken[at];
        let losses: Vec<f32> = samples.iter().map(|sample| sample.0 as f32).collect();
        let is_there = self.sessions.contains(&Some(session));
        let Some(reported) = self.training.report(session, batch, &losses) else {
            return assert!(!is_there, "session {session} is attached");
        };
        let job = self.training.job(reported.job).unwrap();
        let Some(losses) = reported.losses else { return };
        assert_eq!(losses.is_current, job.epoch() == Some(batch.epoch));
        assert!(losses.rescored.iter().all(|sample| samples.contains(sample)));
        assert!(losses.new_rows == 0 || losses.new_rows == samples.len() as u64);
    }

    fn save(&mut self, slot: usize) {
        let Some((session, id)) = self.heard(slot) else { return };
        let job = self.training.job(id).unwrap();
        let request = self.training.rank(session).unwrap().request();
        let current = request.filter(|request| job.epoch() == Some(request.epoch));
        let Some(EpochRequest { epoch, next_batch, .. }) = current else { return };
        let batches = next_batch..job.batches_per_epoch();
        let rest = batches.flat_map(|number| [0, 1].map(|rank| self.batch(id, number, rank))).collect();
        let order = self.training.save_state(session, epoch, next_batch).unwrap();
        let AsideResult::Saved(saved) = AsideOrder::Save(order).carry_out() else { panic!("a state") };
        self.saved.push(Saved { slot, bytes: saved.bytes, rest });
    }

    fn load(&mut self, slot: usize, at: usize) {
        let Some((session, _)) = self.heard(slot) else { return };
        let Saved { slot: of, ref bytes, .. } = self.saved[at];
        if job_of(of) != job_of(slot) {
            return;
        }
        match self.training.load_state(session, 0, bytes.clone()) {
            Some(LoadAnswer::Ordered(order)) => self.orders.push(AsideOrder::Load(order)),
            Some(LoadAnswer::Loaded(_) | LoadAnswer::Differs(_)) => {}
            None => panic!("session {session} is attached"),
        }
    }

    fn order(&mut self) {
        if let Some(job) = self.training.due_plan(0) {
            let ordered = self.training.order_plan(job, |_| false, true, false);
            if let Some(order) = ordered.draw {
                self.training.drop_ahead(job);
                self.orders.push(AsideOrder::Draw(order));
            }
        }
        for job in self.training.jobs_near_their_ends() {
            let order = self.training.order_next_plan(job, true);
            self.orders.extend(order.map(AsideOrder::Draw));
        }
        self.begin();
    }

    fn carried_out(&mut self, result: AsideResult) {
        match result {
            AsideResult::Drawn(drawn) => {
                self.training.drawn(drawn);
            }
            AsideResult::Saved(_) => unreachable!("states are saved at once"),
            AsideResult::Loaded(loaded) => self.loaded(*loaded),
        }
        self.begin();
    }

    fn begin(&mut self) {
        for drawn in self.training.take_drawn() {
            let epoch = drawn.plan().epoch;
            let Some(EpochBegun { job: id, .. }) = self.training.begin_epoch(drawn, false) else { continue };
            let job = self.training.job(id).unwrap();
            let of = usize::from(job.name() != "job 0");
            let wants_it = |rank: &super::Rank| rank.request().is_some_and(|request| request.epoch == epoch);
            let wanting = self.training.ranks_of(id).filter(|rank| wants_it(rank)).count();
            // One that has left since may have come again, and asks later.
            let attached = self.sessions[2 * of..2 * of + 2].iter().flatten().count();
            assert!(wanting <= attached && job.epoch() == Some(epoch) && !job.is_postponed());
            (self.next[of], self.epoch[of]) = ((epoch + 1, 0), (wanting == 2).then(Vec::new));
        }
    }

    fn loaded(&mut self, loaded: super::LoadedState) {
        let session = loaded.session;
        let Some(restored) = self.training.loaded(loaded) else { return };
        let restored = restored.unwrap();
        let job = self.training.job(restored.job).unwrap();
        let of = usize::from(job.name() != "job 0");
        let (epoch, first, batches) =
            (restored.resumed.epoch, restored.resumed.first_batch, restored.resumed.batches);
        (self.next[of], self.epoch[of]) = ((epoch, first), None);
        assert!(!restored.interrupted.contains(&session));
        assert!(self.training.ranks_of(restored.job).all(|rank| rank.request().is_none()));
        let rest: Vec<_> =
            (first..batches).flat_map(|at| [0, 1].map(|rank| self.batch(restored.job, at, rank))).collect();
        assert!(self.saved.iter().any(|saved| job_of(saved.slot) == of && saved.rest == rest), "as saved");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn epochs_are_whole_whoever_comes_and_goes(acts in prop::collection::vec(act(), 0..400)) {
        let mut world = World::new();
        // Most runs begin with all ranks.
        (0..SLOTS).for_each(|slot| world.act(Act::Attach(slot)));
        acts.into_iter().for_each(|act| world.act(act));
    }
}
