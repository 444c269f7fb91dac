//! What strata are compared with: one plan of the whole dataset, whose positions go to the ranks by
//! turns, whatever their nodes have cached.
//!
//! The plans are drawn first, all of them: they do not depend on what is cached. Then each node
//! follows its ranks' accesses with a cache of its own.

use shade_core::plan::Strata;
use shade_formats::SampleId;
use shade_job::{PlanSpec, Policy};

use crate::error::SimulateError;
use crate::keeper::Keeper;
use crate::nodes::cluster::{Cluster, EpochOutcome};
use crate::nodes::node::Node;
use crate::nodes::seats::Seats;
use crate::nodes::training::{Played, Training};
use crate::play::{Setup, follow};
use crate::script::{Epoch, Script};
use crate::watch::Watch;

impl Training<'_> {
    /// Plays it with a plan for all nodes. The counts are those of all epochs that count, together.
    ///
    /// # Errors
    /// The plans depend on what is cached, the core refuses the workload, or Ctrl-C.
    pub(super) fn play_sliced(&self, watch: &Watch) -> Result<Played, SimulateError> {
        if self.node.plan.depends_on_residents() {
            let what = "--global-plan: these plans depend on what is cached, and each node has other samples \
                        cached; leave out --rep, --pace and orders that go by residents";
            return Err(SimulateError::Usage(what.to_owned()));
        }
        let mut outcome = EpochOutcome::default();
        for script in self.scripts(watch)? {
            let batch_size = self.node.batch_size * self.ranks_per_node;
            let shortest = script.epochs.iter().map(|epoch| epoch.accesses.len()).min().unwrap_or(1);
            let batch_size = batch_size.min(u32::try_from(shortest).unwrap_or(batch_size)).max(1);
            let setup = Setup { batch_size, ring: 1, ahead: 1, ..self.node };
            outcome.count(&follow(setup, &script, watch)?.counts());
        }
        Ok(Played { epochs: vec![outcome], reads: None })
    }

    /// What each node's ranks are given.
    fn scripts(&self, watch: &Watch) -> Result<Vec<Script>, SimulateError> {
        let plan = PlanSpec { strata: 1, ..self.node.plan };
        let setup = Setup { keeper: Keeper::Policy(Policy::Static), capacity: 0, plan, ..self.node };
        let world_size = self.nodes * self.ranks_per_node;
        let all = Seats::new(1, world_size, 1, self.node.dataset.samples)?.of(0);
        let planner = Node::new(&setup, &Strata::one(self.node.dataset.samples), all, 0)?;
        let mut cluster = Cluster::new(vec![planner], None, self.steps(), self.losses(), watch);
        let mut scripts = vec![Script::default(); self.nodes as usize];
        for epoch in 0..self.epochs {
            let from: Vec<usize> = scripts.iter().map(|script| script.accesses.len()).collect();
            cluster.epoch(epoch, &mut |rank, ids, losses| {
                if let Some(script) = scripts.get_mut(rank / self.ranks_per_node as usize) {
                    script.accesses.extend(ids.iter().copied().map(SampleId));
                    script.losses.extend_from_slice(losses);
                }
            })?;
            for (script, from) in scripts.iter_mut().zip(from) {
                let accesses = from..script.accesses.len();
                script.epochs.push(Epoch { accesses, ..Epoch::default() });
            }
        }
        Ok(scripts)
    }
}
