//! Scores of a training whose nodes draw one plan together, by losses or deliveries. Before an
//! epoch is drawn each node tells the others what it has learned since the last draw. So all have
//! one table, and draw the same plan from it; nothing of a plan travels.
//!
//! The latest of a sample's scores counts, in the order of plans, as on one node
//! ([`ScoredAt`](super::scored_at::ScoredAt)). So it does not matter in which order nodes are
//! heard, nor whether one is heard twice. From the moment when a node tells until the epoch begins
//! nothing else may change its table: what its ranks report meanwhile waits
//! ([`Training::waits_for_pool`]).
#![warn(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use shade_formats::SampleId;
use shade_formats::checksum::crc32c_append;
use shade_formats::control::{PlacedScore, Pooled, PooledSample};

use super::Training;
use super::job::Job;
use super::pool::Told;
use crate::ids::{JobId, SessionId};
use crate::importance::{SCORE_MAX, SCORE_MIN};

impl Training {
    /// Whether the job's due epoch can be drawn. If its nodes pool their scores, this one tells its
    /// own at the first call, and then waits for the others'.
    pub(super) fn has_pooled(&mut self, id: JobId) -> bool {
        let epoch = self.jobs.get(id).and_then(|job| self.due_epoch(job));
        let here: BTreeSet<u32> = self.ranks_of(id).map(|rank| rank.rank).collect();
        let content_id = self.index.content_id().0;
        let Some((job, epoch)) = self.jobs.get_mut(id).zip(epoch) else {
            unreachable!("job {id} is due, and no epoch of it")
        };
        let can_be_drawn = job.pool.as_ref().is_none_or(|pool| pool.ready == Some(epoch));
        if !can_be_drawn {
            job.tell(epoch, &here, content_id);
        }
        can_be_drawn
    }

    /// The ranks of other nodes whose scores the job's next epoch waits for.
    pub(crate) fn waiting_for_scores_of(&self, job: &Job) -> Vec<u32> {
        let told = job.pool.as_ref().and_then(|pool| pool.told.as_ref());
        let here = || self.ranks_of(job.id).map(|rank| rank.rank).collect();
        told.map_or_else(Vec::new, |told| job.awaited_nodes(told.epoch, &here()))
    }

    /// Whether a report of this session waits until the next epoch begins: it would change a table
    /// that others have been told, or are about to be.
    pub(crate) fn waits_for_pool(&self, session: SessionId) -> bool {
        let Some((rank, job)) = self.rank(session).zip(self.job_of(session)) else { return false };
        let has_asked = rank.request.is_some_and(|request| Some(request.epoch) != job.epoch());
        job.pool.is_some() && has_asked
    }

    /// Whether what a session reported after it had asked for epoch `started` waits for that, too:
    /// a daemon that died may have told its scores before.
    pub(crate) fn reports_late(&self, session: SessionId, started: Option<u32>) -> bool {
        self.job_of(session).is_some_and(|job| job.pool.is_some() && started != job.epoch())
    }

    /// Takes what another node has told. Returns the samples that have another score.
    pub(super) fn take_pooled(&mut self, session: SessionId, bytes: &[u8]) -> Result<Vec<SampleId>, String> {
        let content_id = self.index.content_id().0;
        let Some(id) = self.rank(session).map(|rank| rank.job) else { return Ok(Vec::new()) };
        let here: BTreeSet<u32> = self.ranks_of(id).map(|rank| rank.rank).collect();
        let Some(job) = self.jobs.get_mut(id) else { return Ok(Vec::new()) };
        let pooled = Pooled::from_bytes(bytes, job.importance.len()).map_err(|error| error.to_string())?;
        job.check_pooled(&pooled, &here, content_id)?;
        let rescored = job.hear(&pooled, &here);
        if !self.jobs.admits_job(id) {
            return Ok(Vec::new());
        }
        rescored.iter().for_each(|&sample| self.jobs.aggregate(sample));
        Ok(rescored)
    }
}

impl Job {
    /// Prepares what other nodes are told before `epoch` is drawn.
    fn tell(&mut self, epoch: u32, here: &BTreeSet<u32>, content_id: u128) {
        let ended = self.epoch();
        let (has_losses, plan_digest) = (self.reports.will_have_come(), self.spec.plan.digest());
        let Some(pool) = &mut self.pool else { return };
        if pool.told.as_ref().is_some_and(|told| told.epoch == epoch) {
            return;
        }
        let of_sample = |(id, (&place, (&delivered, &is_scored))): (u32, (&u32, (&bool, &bool)))| {
            let score = || PlacedScore { place, score: self.importance.score(SampleId(id)) };
            PooledSample { delivered, scored: is_scored.then(score) }
        };
        let news = pool.delivered.iter().zip(&pool.scored);
        let pooled = Pooled {
            content_id,
            plan_digest,
            state: pool.state,
            epoch,
            ended,
            list_crc32c: pool.list_crc32c,
            has_losses,
            ranks: here.iter().copied().collect(),
            samples: (0..).zip(self.scored_at.places().iter().zip(news)).map(of_sample).collect(),
        };
        (pool.told, pool.ready) = (Some(Told { epoch, bytes: pooled.to_bytes() }), None);
    }

    /// What other nodes need to know before `epoch` is drawn; nothing if it is not due.
    pub(super) fn told_pooled(&self, epoch: u32) -> Option<Vec<u8>> {
        let told = self.pool.as_ref()?.told.as_ref();
        Some(told.filter(|told| told.epoch == epoch).map_or_else(Vec::new, |told| told.bytes.clone()))
    }

    /// The ranks of other nodes that were not heard before `epoch` is drawn.
    fn awaited_nodes(&self, epoch: u32, here: &BTreeSet<u32>) -> Vec<u32> {
        let heard = self.pool.as_ref().and_then(|pool| pool.heard.get(&epoch));
        let is_heard = |rank: &u32| heard.is_some_and(|heard| heard.contains(rank));
        (0..self.spec.world_size).filter(|rank| !here.contains(rank) && !is_heard(rank)).collect()
    }

    fn check_pooled(&self, pooled: &Pooled, here: &BTreeSet<u32>, content_id: u128) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Err("pooled scores of another node, which this job has no use for".to_owned());
        };
        let own = (content_id, self.spec.plan.digest());
        let theirs = (pooled.content_id, pooled.plan_digest);
        if own != theirs {
            return Err(format!(
                "pooled scores of another node for another plan or dataset: {theirs:?}, this has {own:?}"
            ));
        }
        let is_strange = |rank: &&u32| **rank >= self.spec.world_size || here.contains(*rank);
        let is_own = pooled.ranks.iter().eq(here);
        if let Some(rank) = pooled.ranks.iter().find(is_strange).filter(|_| !is_own) {
            return Err(format!("pooled scores of another node for rank {rank}, which is no rank of others"));
        }
        let mut scores = pooled.samples.iter().filter_map(|sample| sample.scored);
        if let Some(bad) = scores.find(|scored| !(SCORE_MIN..=SCORE_MAX).contains(&scored.score)) {
            return Err(format!("pooled scores of another node with the score {}", bad.score));
        }
        let lists = pool.list_crc32c.zip(pooled.list_crc32c).filter(|_| pooled.ended == self.epoch());
        match lists.filter(|(own, theirs)| own != theirs) {
            Some(_) => Err(format!(
                "the node of ranks {:?} has drawn another plan of epoch {} than this one: give all ranks the same \
                 arguments, and let all load the state that one of them saved",
                pooled.ranks,
                self.epoch().unwrap_or_default()
            )),
            None => Ok(()),
        }
    }

    /// Takes in what a node has told: another one, or this one before its daemon died. Returns the
    /// samples that have another score. What was told before the current epoch began, or a state
    /// was loaded, is in its table.
    fn hear(&mut self, pooled: &Pooled, here: &BTreeSet<u32>) -> Vec<SampleId> {
        let is_of_now = self.pool.as_ref().is_some_and(|pool| pool.state == pooled.state);
        if !is_of_now || self.epoch() == Some(pooled.epoch) {
            return Vec::new();
        }
        let is_own = pooled.ranks.iter().eq(here);
        let mut rescored = Vec::new();
        for (id, sample) in (0..).map(SampleId).zip(&pooled.samples) {
            if let Some(ended) = pooled.ended.filter(|_| sample.delivered) {
                self.importance.record_delivery(id, ended);
                self.pool.iter_mut().filter(|_| is_own).for_each(|pool| pool.note_delivery(id));
            }
            if let Some(PlacedScore { place, score }) = sample.scored
                && self.scored_at.hears(id.index(), place)
            {
                self.importance.set_score(id, score);
                rescored.push(id);
            }
        }
        if pooled.has_losses {
            self.reports.come();
        }
        let pool = self.pool.as_mut().filter(|_| !is_own);
        let heard = pool.map(|pool| pool.heard.entry(pooled.epoch).or_default());
        heard.into_iter().for_each(|heard| heard.extend(&pooled.ranks));
        self.settle(pooled.epoch, here);
        rescored
    }

    /// If all nodes were heard before `epoch`, all have one table from now on, also if the ranks
    /// here want another epoch by now. Scores of what is delivered from here on are later.
    fn settle(&mut self, epoch: u32, here: &BTreeSet<u32>) {
        if !self.awaited_nodes(epoch, here).is_empty() {
            return;
        }
        self.scored_at.end_epoch();
        self.pool.iter_mut().for_each(|pool| pool.settle(Some(epoch)));
    }

    /// A rank goes on with the current epoch: what was told for the next one is no longer all.
    pub(super) fn go_back(&mut self) {
        self.pool.iter_mut().for_each(|pool| (pool.told, pool.ready) = (None, None));
    }

    /// The sample was delivered in the current epoch.
    pub(super) fn record_delivery(&mut self, sample: SampleId, epoch: u32) {
        self.importance.record_delivery(sample, epoch);
        self.pool.iter_mut().for_each(|pool| pool.note_delivery(sample));
    }

    /// An epoch begins whose plan was drawn from the scores of all, with these lists.
    pub(super) fn begin_pooled(&mut self, lists: &[(u32, u32)]) {
        if let Some(pool) = &mut self.pool {
            let crc = lists.iter().fold(0, |crc, (_, list)| crc32c_append(crc, &list.to_le_bytes()));
            (pool.list_crc32c, pool.ready) = (Some(crc), None);
        }
    }

    /// A state was loaded, which all nodes have: that of a user with this digest, or a base.
    pub(super) fn forget_pooled(&mut self, state: u64) {
        if let Some(pool) = &mut self.pool {
            pool.settle(None);
            (pool.state, pool.list_crc32c) = (state, None);
        }
    }

    /// What a base says of it beside its state.
    pub(super) fn pooled_in_base(&self) -> Option<[u8; 8]> {
        Some(self.pool.as_ref()?.state.to_le_bytes())
    }
}
