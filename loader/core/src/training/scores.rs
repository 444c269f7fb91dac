//! Scores of a training on several nodes. Each node draws its strata from its own. Once it has
//! drawn an epoch, it tells the others what it drew from, so that each of them may save the whole
//! training: with the scores of all strata, and the CRC32C of each list that was drawn.
#![warn(clippy::indexing_slicing)]

use shade_formats::SampleId;
use shade_formats::control::{Member, OfStratum, Pooled, Scores};

use super::Training;
use super::job::Job;
use super::lists::{Known, Lists, SharedScores};
use crate::ids::SessionId;
use crate::plan::Part;
use crate::portable_scores::{score_of_step, step_of_score};

impl Training {
    /// What other nodes need to know of `epoch`: nothing if it is not drawn or they need nothing.
    pub(crate) fn tell_scores(&self, session: SessionId, epoch: u32) -> Vec<u8> {
        let job = self.job_of(session);
        if let Some(told) = job.and_then(|job| job.told_pooled(epoch)) {
            return told;
        }
        let shared = job.and_then(|job| job.shared_scores.as_ref());
        let told = shared.filter(|shared| shared.lists.epoch == epoch);
        told.map_or_else(Vec::new, |shared| shared.told.clone())
    }

    /// Takes what another node has told. Returns the samples whose score matters here and is
    /// another one. `None` if the session is not there.
    pub(crate) fn take_scores(
        &mut self,
        session: SessionId,
        bytes: &[u8],
    ) -> Option<Result<Vec<SampleId>, String>> {
        if Pooled::is(bytes) {
            self.rank(session)?;
            return Some(self.take_pooled(session, bytes));
        }
        let content_id = self.index.content_id().0;
        let job = self.job_of_mut(session)?;
        let scores = Scores::from_bytes(bytes, job.importance.len()).map_err(|error| error.to_string());
        Some(scores.and_then(|scores| job.take(&scores, content_id).map(|()| Vec::new())))
    }
}

impl Job {
    /// A rank has attached here.
    pub(super) fn has_rank(&mut self, rank: u32) {
        let world_size = self.spec.world_size;
        if let Some(shared) = &mut self.shared_scores {
            let known = shared.part.ranks().map_or(&[][..], |(ranks, _)| ranks);
            shared.part = Part::of(known.iter().copied().chain([rank]).collect(), world_size);
        }
    }

    /// Whether other nodes tell what they have learned and delivered.
    pub(crate) fn shares_scores(&self) -> bool {
        self.shared_scores.is_some()
    }

    /// Whether a state of the current epoch is bound to this node, as others have not told yet.
    pub(crate) fn misses_scores(&self) -> bool {
        let is_part = self.plan().is_some_and(|plan| !plan.part.is_whole());
        is_part && self.shared_scores.as_ref().is_some_and(|shared| shared.lists.all().is_none())
    }

    /// Whether the sample's score is this node's affair: the lists of later epochs that have it are
    /// drawn here. The others would not hear of another score.
    pub(super) fn keeps_score_of(&self, sample: SampleId) -> bool {
        let Some(SharedScores { part, .. }) = &self.shared_scores else { return true };
        let (strata, seats, _) = self.next_strata();
        part.has(seats.seat(strata.of(sample)) % self.spec.world_size)
    }

    /// The sample has another score.
    pub(super) fn has_scored(&mut self, sample: SampleId) {
        let known = self.shared_scores.as_mut().and_then(|shared| shared.known.get_mut(sample.index()));
        known.into_iter().for_each(|known| *known = Known::No);
        self.pool.iter_mut().for_each(|pool| pool.note_score(sample));
    }

    /// A plan was drawn, after epoch `ended`. Prepares what the others are told.
    pub(super) fn note_lists(&mut self, epoch: u32, lists: &[(u32, u32)], by_losses: bool, content_id: u128) {
        let ended = self.epoch();
        let Some(mut shared) = self.shared_scores.take() else { return };
        // All nodes decide together whether they tell, so what came from all went to all.
        let was_told = shared.lists.all().is_some_and(|all| !all.is_empty());
        for known in &mut shared.known {
            *known = match *known {
                Known::No => Known::Told,
                Known::Told if was_told => Known::Yes,
                as_before => as_before,
            };
        }
        let strata = &self.strata;
        let (mut crcs, mut of) = (vec![None; strata.count() as usize], Vec::new());
        for &(seat, crc) in lists {
            let stratum = self.seats.stratum(seat);
            crcs.get_mut(stratum as usize).into_iter().for_each(|slot| *slot = Some(crc));
            let member = |id: SampleId| Member {
                delivered: ended.is_some() && self.importance.last_epoch(id) == ended,
                score: (shared.known.get(id.index()) == Some(&Known::Told))
                    .then(|| step_of_score(self.importance.score(id)))
                    .flatten(),
            };
            let members = strata.members(stratum).into_iter().map(member).collect();
            of.push(OfStratum { stratum, list_crc32c: crc, members });
        }
        of.sort_unstable_by_key(|of| of.stratum);
        let scores = Scores {
            content_id,
            plan_digest: self.spec.plan.digest(),
            epoch,
            ended: ended.unwrap_or(u32::MAX),
            strata: strata.count(),
            of,
        };
        shared.told = scores.to_bytes();
        shared.lists = Lists { epoch, by_losses, crcs };
        self.shared_scores = Some(shared);
    }

    /// Goes on with what a daemon that died has told others of `epoch`.
    pub(super) fn tell_again(
        &mut self,
        epoch: u32,
        by_losses: bool,
        told: &[u8],
        content_id: u128,
    ) -> Result<(), String> {
        let scores = Scores::from_bytes(told, self.importance.len()).map_err(|error| error.to_string())?;
        let theirs = (scores.content_id, scores.plan_digest, scores.strata, scores.epoch);
        let own = (content_id, self.spec.plan.digest(), self.strata.count(), epoch);
        if own != theirs {
            return Err(format!(
                "a base with scores of another plan, dataset or epoch: {theirs:?}, not {own:?}"
            ));
        }
        let Some(shared) = &mut self.shared_scores else { return Ok(()) };
        let mut crcs = vec![None; self.strata.count() as usize];
        for OfStratum { stratum, list_crc32c, members } in &scores.of {
            crcs.get_mut(*stratum as usize).into_iter().for_each(|slot| *slot = Some(*list_crc32c));
            for (id, member) in self.strata.members(*stratum).into_iter().zip(members) {
                let known = if member.score.is_some() { Known::Told } else { Known::Yes };
                shared.known.get_mut(id.index()).into_iter().for_each(|slot| *slot = known);
            }
        }
        shared.lists = Lists { epoch, by_losses, crcs };
        shared.told = told.to_vec();
        Ok(())
    }

    /// A state was loaded, which all nodes have.
    pub(super) fn forget_lists(&mut self) {
        if let Some(shared) = &mut self.shared_scores {
            shared.known.fill(Known::Yes);
            (shared.lists, shared.told) = (Lists::default(), Vec::new());
        }
    }

    fn take(&mut self, scores: &Scores, content_id: u128) -> Result<(), String> {
        let Some(shared) = &mut self.shared_scores else {
            return Err("scores of another node, which this job has no use for".to_owned());
        };
        if shared.lists.crcs.is_empty() {
            // A state was loaded since it was told: the table is that of the state.
            return Ok(());
        }
        let own = (content_id, self.spec.plan.digest(), self.strata.count());
        let theirs = (scores.content_id, scores.plan_digest, scores.strata);
        if own != theirs {
            return Err(format!(
                "scores of another node for another plan or dataset: {theirs:?}, this has {own:?}"
            ));
        }
        let world_size = self.spec.world_size;
        let of_here = |of: &&OfStratum| shared.part.has(self.seats.seat(of.stratum) % world_size);
        if let Some(of) = scores.of.iter().find(of_here) {
            return Err(format!("scores of another node for stratum {}, which is this node's", of.stratum));
        }
        for OfStratum { stratum, list_crc32c, members } in &scores.of {
            if scores.epoch == shared.lists.epoch {
                let slot = shared.lists.crcs.get_mut(*stratum as usize);
                slot.into_iter().for_each(|slot| *slot = Some(*list_crc32c));
            }
            for (id, member) in self.strata.members(*stratum).into_iter().zip(members) {
                if let Some(step) = member.score {
                    self.importance.set_score(id, score_of_step(step));
                }
                if member.delivered {
                    self.importance.record_delivery(id, scores.ended);
                }
            }
        }
        Ok(())
    }
}
