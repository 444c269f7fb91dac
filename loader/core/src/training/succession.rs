//! A successor of a daemon that died goes on with its jobs.
//!
//! The daemon hands each rank a *base* as an epoch begins: all that the rest of the job depends on.
//! Ranks keep it, and a redo record of what happened to them since. They hand both to the
//! successor, which waits until every rank here has asked for an epoch. Then it restores the newest
//! base and takes all redo records in. `CONTROL.md` of `shade-formats` has the layouts.
//!
//! Where a plan and all later ones follow from the job's document there is no base: the successor
//! draws the same ones.
#![warn(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::control::{RedoRow, Step};
use shade_formats::ring::{FLAG_PADDING, FLAG_SUBSTITUTED};

use super::Training;
use super::base::{Base, BaseOrder, BaseVersion, Parts};
use super::drawing::Awaited;
use super::gathering::{Gathering, Handed};
use super::job::{Job, Loaded};
use super::loading::{LoadOrder, LoadedState, state_digest};
use super::rank::Rank;
use super::states::Loader;
use super::stop::Next;
use crate::ids::{BatchId, JobId, SessionId};
use crate::plan::{Origin, Slot, gap_follows_from_cache, spec_now};

/// What was handed over is complete.
pub(crate) enum Gathered {
    /// The state in it is read first.
    Read(Box<LoadOrder>),
    /// Nobody had a base.
    Nothing,
}

/// A job goes on where another daemon has left it.
pub(crate) struct Succeeded {
    /// The base for the ranks that had an older one.
    pub(crate) base: Option<Base>,
}

/// What a rank was given and said, to take it in.
pub(crate) struct Redo {
    pub(crate) session: SessionId,
    pub(crate) steps: Vec<Step>,
}

/// The redo records of a job.
pub(crate) struct Redos {
    /// The epoch of the base: what was said before a rank asked for it is in the base.
    pub(crate) epoch: Option<u32>,
    /// In the order of ranks.
    pub(crate) of_ranks: Vec<Redo>,
}

/// Where samples are in a plan; found when it is first asked for.
#[derive(Default)]
pub(crate) struct Places {
    of: Option<HashMap<SampleId, usize>>,
}

impl Training {
    /// A rank hands in a base, or the state that it has loaded. `None` if the session is not there.
    ///
    /// # Errors
    /// It cannot be what a daemon of this job gave.
    pub(crate) fn take_base(
        &mut self,
        session: SessionId,
        version: BaseVersion,
        bytes: Vec<u8>,
    ) -> Option<Result<(), String>> {
        let Rank { rank, job, .. } = *self.rank(session)?;
        let job = self.jobs.get_mut(job)?;
        if let Some(epoch) = job.epoch() {
            // This very daemon may have given it: it hung up on this rank alone.
            let text =
                format!("rank {rank} hands over the base of a later epoch than {epoch}, which goes on here");
            return Some(if version.epoch().is_none_or(|of| of <= epoch) { Ok(()) } else { Err(text) });
        }
        if let Some(epoch) = version.epoch() {
            let of = match Parts::of(&bytes) {
                Ok(parts) => parts.epoch,
                Err(error) => return Some(Err(error.to_string())),
            };
            if of != epoch {
                return Some(Err(format!(
                    "rank {rank} hands over the base of epoch {of} as that of epoch {epoch}"
                )));
            }
        }
        let digest = state_digest(&bytes);
        let gathering = job.gathering.get_or_insert_default();
        gathering.versions.insert(session, version);
        match &gathering.newest {
            Some(newest) if newest.version > version => {}
            Some(newest) if newest.version == version => {
                if newest.digest != digest {
                    let text = format!(
                        "rank {rank} hands over another state of the training than rank {}, for the same place",
                        newest.rank
                    );
                    return Some(Err(text));
                }
            }
            _ => gathering.newest = Some(Handed { version, digest, rank, bytes: Arc::new(bytes) }),
        }
        Some(Ok(()))
    }

    /// A rank hands in its redo record. Returns it if its job has begun: then it is taken in at
    /// once. `None`, too, if the session is not there.
    pub(crate) fn take_redo(&mut self, session: SessionId, steps: Vec<Step>) -> Option<Redos> {
        let id = self.rank(session)?.job;
        let job = self.jobs.get_mut(id)?;
        if let Some(epoch) = job.epoch() {
            return Some(Redos { epoch: Some(epoch), of_ranks: vec![Redo { session, steps }] });
        }
        job.gathering.get_or_insert_default().redos.insert(session, steps);
        None
    }

    /// A rank's request waits for what others hand over, if its job gathers that.
    pub(crate) fn note_asked(&mut self, session: SessionId) {
        let gathering = self.job_of_mut(session).and_then(|job| job.gathering.as_mut());
        gathering.into_iter().for_each(|gathering| _ = gathering.asked.insert(session));
    }

    /// A session has ended: what it handed over goes, except for a base, which others may have.
    pub(super) fn forget_handed(&mut self, job: JobId, session: SessionId) {
        if let Some(gathering) = self.jobs.get_mut(job).and_then(|job| job.gathering.as_mut()) {
            gathering.versions.remove(&session);
            gathering.redos.remove(&session);
            gathering.asked.remove(&session);
        }
    }

    /// What ranks have handed over to the job, once each rank here waits. `None`: not yet.
    pub(crate) fn gathered(&mut self, id: JobId) -> Option<Gathered> {
        let job = self.jobs.get(id)?;
        let gathering = job.gathering.as_ref().filter(|_| job.awaits.is_none())?;
        // A rank that has loaded a state may begin only when others have loaded theirs.
        let has_loaded = |rank: &Rank| {
            let version = gathering.versions.get(&rank.id);
            let had = version.is_some_and(|version| version.epoch().is_none());
            let has = job.loaded.as_ref().is_some_and(|loaded| loaded.ranks.contains(&rank.rank));
            has || (had && gathering.redos.contains_key(&rank.id))
        };
        let has_asked = |rank: &Rank| rank.request.is_some() || gathering.asked.contains(&rank.id);
        let waits = |rank: &Rank| has_asked(rank) || has_loaded(rank);
        if self.ranks_to_attach(job) > 0 || !self.ranks_of(id).all(waits) {
            return None;
        }
        let Some(Handed { version, bytes, .. }) = &gathering.newest else { return Some(Gathered::Nothing) };
        let (version, bytes) = (*version, Arc::clone(bytes));
        let first = self.ranks_of(id).min_by_key(|rank| rank.rank)?;
        let (session, rank) = (first.id, first.rank);
        let state = match version.epoch().map(|_| Parts::of(&bytes)) {
            Some(Ok(parts)) => parts.state.to_vec(),
            Some(Err(error)) => unreachable!("a base that was judged: {error}"),
            None => bytes.to_vec(),
        };
        let order = self.next_order(id);
        let index = Arc::clone(&self.index);
        let job = self.jobs.get_mut(id)?;
        job.awaits = Some(Awaited::Order(order));
        job.gathering.get_or_insert_default().reads = Some(order);
        Some(Gathered::Read(Box::new(job.load_order(order, Loader { session, rank }, 0, state, &*index))))
    }

    /// Whether the state was read for a job that gathers what was handed over.
    pub(crate) fn is_handed_over(&self, loaded: &LoadedState) -> bool {
        let gathering = self.jobs.get(loaded.id.job).and_then(|job| job.gathering.as_ref());
        gathering.is_some_and(|gathering| gathering.reads == Some(loaded.id))
    }

    /// A rank has loaded a state while others hand over what they have. Whether that is at an end:
    /// they had loaded it, too, and had begun nothing since.
    pub(crate) fn has_loaded_as_they_did(&mut self, id: JobId) -> bool {
        let ranks: HashMap<SessionId, u32> = self.ranks_of(id).map(|rank| (rank.id, rank.rank)).collect();
        let Some(job) = self.jobs.get_mut(id) else { return false };
        let Some(gathering) = job.gathering.as_ref() else { return false };
        if gathering.newest.as_ref().is_some_and(|newest| newest.version.epoch().is_some()) {
            return false;
        }
        let had_loaded = gathering.versions.keys().filter_map(|session| ranks.get(session).copied());
        job.loaded.iter_mut().for_each(|loaded| loaded.ranks.extend(had_loaded.clone()));
        true
    }

    /// The state of a base was read: the job goes on there. `None` if it has ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn succeed(&mut self, loaded: LoadedState) -> Option<Result<Succeeded, String>> {
        let LoadedState { id, state, .. } = loaded;
        let content_id = self.index.content_id().0;
        let numbers: HashMap<SessionId, u32> =
            self.ranks_of(id.job).map(|rank| (rank.id, rank.rank)).collect();
        let surviving: Vec<SessionId> =
            self.ranks_of(id.job).filter(|rank| rank.survives).map(|rank| rank.id).collect();
        let job = self.jobs.get_mut(id.job)?;
        assert!(job.awaits_order(id), "a job reads one state at a time");
        job.awaits = None;
        let gathering = job.gathering.as_mut()?;
        let handed = gathering.newest.take()?;
        let versions = std::mem::take(&mut gathering.versions);
        let of_ranks = |is_wanted: &dyn Fn(BaseVersion) -> bool| -> Vec<SessionId> {
            let wanted = |session: &SessionId| is_wanted(versions.get(session).copied().unwrap_or_default());
            surviving.iter().copied().filter(wanted).collect()
        };
        let done = state.map_err(|error| error.to_string()).and_then(|state| {
            let resumed = job.restore(state);
            if let Some(epoch) = handed.version.epoch() {
                // The base has the seats of this epoch's plan, and later ones follow from them.
                // Those that were told are for own strata, and a state may have brought others.
                let is_own = job.strata == job.own_strata;
                if let Some(told) = job.told.as_mut().filter(|_| is_own) {
                    told.drawn = Some((epoch, job.seats.clone()));
                }
                let parts = Parts::of(&handed.bytes).map_err(|error| error.to_string())?;
                job.go_on_from(epoch, &parts, content_id)?;
                job.gathering.get_or_insert_default().restored = Some(epoch);
                let sessions = of_ranks(&|version| version < handed.version);
                let base = Base { epoch, sessions, bytes: handed.bytes };
                return Ok(Some(base).filter(|base| !base.sessions.is_empty()));
            }
            let ranks = of_ranks(&|version| version == handed.version);
            let ranks = ranks.iter().filter_map(|session| numbers.get(session).copied()).collect();
            job.forget_pooled(handed.digest);
            job.loaded = Some(Loaded { digest: handed.digest, ranks, resumed });
            Ok(None)
        });
        Some(done.map(|base| Succeeded { base }))
    }

    /// The redo records that were handed over to the job, which gathers no more.
    pub(crate) fn take_redos(&mut self, id: JobId) -> Redos {
        let gathering = self.jobs.get_mut(id).and_then(|job| job.gathering.take());
        let Gathering { mut redos, restored, .. } = gathering.unwrap_or_default();
        let mut ranks: Vec<&Rank> = self.ranks_of(id).collect();
        ranks.sort_unstable_by_key(|rank| rank.rank);
        let redo = |rank: &Rank| redos.remove(&rank.id).map(|steps| Redo { session: rank.id, steps });
        let of_ranks = ranks.into_iter().filter_map(redo).collect();
        Redos { epoch: restored, of_ranks }
    }

    /// A daemon that died has delivered this batch.
    ///
    /// # Errors
    /// It cannot be a batch of this job.
    pub(crate) fn redeliver(
        &mut self,
        session: SessionId,
        batch: BatchId,
        rows: &[RedoRow],
        places: &mut Places,
    ) -> Result<(), String> {
        let Some(number) = self.rank(session).map(|rank| rank.rank) else { return Ok(()) };
        let samples = self.index.len();
        let Some(job) = self.job_of_mut(session) else { return Ok(()) };
        let is_of_job = |row: &RedoRow| row.sample.0 < samples && job.strata.has(row.sample);
        if let Some(row) = rows.iter().find(|row| !is_of_job(row)) {
            return Err(format!("a redo record with sample {}, which is not of this job", row.sample));
        }
        if job.epoch() == Some(batch.epoch) {
            job.reports.use_plan();
            for row in rows {
                if job.keeps_score_of(row.sample) {
                    job.record_delivery(row.sample, batch.epoch);
                }
            }
            job.exchange_as_delivered(batch.number, number, rows, places);
        }
        let real = rows.iter().filter(|row| row.flags & FLAG_PADDING == 0).map(|row| row.sample).collect();
        if let Some(rank) = self.rank_mut(session) {
            rank.deliver(batch, real, true);
        }
        Ok(())
    }
}

impl Job {
    /// Whether its ranks need bases. `exchanges`: the cache's policy puts residents in the place of
    /// planned samples.
    pub(super) fn needs_base(&self, exchanges: bool) -> bool {
        let depends = self.spec.plan.depends_on_its_node() || (exchanges && self.spec.admit);
        // A successor may have another cache.
        depends || gap_follows_from_cache(&self.spec) || self.is_restored || self.told.is_some()
    }

    /// The order to write the base of `epoch`, as the job is now, for a plan that is drawn with it.
    pub(super) fn base_order(&self, epoch: u32, content_id: u128) -> Box<BaseOrder> {
        let (batch_size, world_size) = (self.spec.batch_size, self.spec.world_size);
        let next = Next { epoch, batch: 0, position: 0, origin: Origin::default(), batch_size, world_size };
        let mut state = self.state_to_save(content_id, next);
        (state.plan, state.next_plan, state.has_reports) = (None, None, false);
        // Nodes that pool their scores have ended it together.
        if self.pool.is_none() {
            state.scored_at.end_epoch();
        }
        Box::new(BaseOrder { had_come: self.reports.had_come(), state })
    }

    /// What the base says beside its state.
    fn go_on_from(&mut self, epoch: u32, parts: &Parts<'_>, content_id: u128) -> Result<(), String> {
        let of = self.epoch();
        if of != Some(epoch) {
            return Err(format!("a base of epoch {epoch} with the plan of epoch {of:?}"));
        }
        self.reports.go_on(parts.had_come);
        if self.pool.is_some() {
            let state = parts.told.try_into().map_err(|_| "a base without the state that was loaded last")?;
            self.forget_pooled(u64::from_le_bytes(state));
            return Ok(());
        }
        if self.shared_scores.is_none() || parts.told.is_empty() {
            return Ok(());
        }
        let by_losses = spec_now(&self.spec.plan, parts.had_come) == self.spec.plan;
        self.tell_again(epoch, by_losses, parts.told, content_id)
    }

    /// The plan as far as a daemon that died has delivered it: what was exchanged there changes
    /// places here, so that each sample still comes once.
    fn exchange_as_delivered(&mut self, number: u32, rank: u32, rows: &[RedoRow], places: &mut Places) {
        let Some(planned) = self.planned(false) else { return };
        let slots = planned.batch(number, rank);
        let differs = |(slot, row): &(&Slot, &RedoRow)| {
            row.flags & (FLAG_SUBSTITUTED | FLAG_PADDING) == 0 && planned.sample(slot) != Some(row.sample)
        };
        let pairs = aligned(&slots, rows, |slot| planned.sample(slot));
        let exchanged: Vec<(u32, SampleId)> =
            pairs.into_iter().filter(differs).map(|(slot, row)| (slot.place, row.sample)).collect();
        let Some(plan) = self.current.plan.as_mut().filter(|_| !exchanged.is_empty()) else { return };
        let ids = &plan.ids;
        let place_of =
            places.of.get_or_insert_with(|| ids.iter().enumerate().map(|(at, &id)| (id, at)).collect());
        for (place, sample) in exchanged {
            let here = place as usize;
            // It may be an earlier place: of a batch that its rank was not given, where another
            // rank was given the later one.
            let there = place_of.get(&sample).copied().filter(|&there| there != here);
            if let Some((there, &planned)) = there.zip(plan.ids.get(here)) {
                plan.swap(here, there);
                place_of.extend([(sample, here), (planned, there)]);
            }
        }
        self.current.next_accesses = None;
    }
}

/// The rows of a batch with the slots that they are of, which stand in the same order. Rows may
/// have been skipped: those that are as planned say where.
fn aligned<'a>(
    slots: &'a [Slot],
    rows: &'a [RedoRow],
    planned: impl Fn(&Slot) -> Option<SampleId>,
) -> Vec<(&'a Slot, &'a RedoRow)> {
    let (mut pairs, mut slots, mut others) = (Vec::with_capacity(rows.len()), slots, Vec::new());
    for row in rows {
        match slots.iter().position(|slot| planned(slot) == Some(row.sample)) {
            Some(at) => {
                let (before, from) = slots.split_at(at);
                pairs.extend(before.iter().zip(others.drain(..)));
                pairs.extend(from.first().map(|slot| (slot, row)));
                slots = from.get(1..).unwrap_or_default();
            }
            None => others.push(row),
        }
    }
    pairs.extend(slots.iter().zip(others));
    pairs
}
