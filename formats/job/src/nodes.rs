//! Which jobs several nodes can serve: each draws its part of a plan from what it knows itself, or
//! all of it from what all of them know.

use crate::Sampler;
use crate::SpecError;
use crate::{JobSpec, PlanSpec};

impl JobSpec {
    /// Refuses plans that nodes cannot draw each on its own.
    pub(crate) fn check_strata(&self) -> Result<(), SpecError> {
        let &Self { plan, world_size, ranks_here, .. } = self;
        if ranks_here > world_size {
            let expected = format_args!("at most world_size, {world_size}");
            return Err(SpecError::new("ranks_here", ranks_here, expected));
        }
        let strata = plan.strata;
        if let Some(why) = plan.drawn_whole().filter(|_| strata > 1) {
            return Err(SpecError::new("strata", strata, format_args!("1 with {why}")));
        }
        if !self.draws_alike() || self.pools_scores() {
            return Ok(());
        }
        // The remedy, where there is one.
        let pooled = match plan.depends_on_residents() {
            true => "",
            false => ", or pool_scores, which Python's Loader has where torch.distributed carries them",
        };
        let is_whole = plan.subset_digest != 0 || !plan.parts.is_empty() || !plan.bucket.is_empty();
        if is_whole {
            let expected = format_args!(
                "one that goes by no losses, deliveries or caches, where ranks are on several nodes and indices, \
                 buckets or a mixture are given: these are drawn as a whole, and each node knows its own{pooled}"
            );
            return Err(SpecError::new("sampler", plan.by_its_node(), expected));
        }
        let expected = format_args!(
            "a multiple of world_size, {world_size}, where ranks are on several nodes and the plan depends on \
             losses, deliveries or caches: each node knows its own{pooled}"
        );
        Err(SpecError::new("strata", strata, expected))
    }

    /// Whether nodes must draw one plan that depends on what each of them has seen: it does, and
    /// the strata are not the ranks' own.
    fn draws_alike(&self) -> bool {
        let is_on_several = self.local_ranks() < self.world_size;
        let is_divided = self.plan.strata.is_multiple_of(self.world_size);
        is_on_several && !is_divided && self.plan.depends_on_its_node()
    }

    /// Whether the nodes pool their scores before each epoch, and draw one plan from them. What is
    /// cached differs from node to node, and is not pooled.
    #[must_use]
    pub fn pools_scores(&self) -> bool {
        self.pool_scores && self.draws_alike() && !self.plan.depends_on_residents()
    }
}

impl PlanSpec {
    /// Why a plan has one stratum only; `None` if it may have several.
    #[must_use]
    pub fn drawn_whole(&self) -> Option<&'static str> {
        match self.sampler {
            Sampler::Sequential => Some("the sampler sequential, which keeps the dataset's order"),
            Sampler::Iis | Sampler::Infobatch | Sampler::Seta => {
                Some("the samplers iis, infobatch and seta: how long an epoch is depends on all losses")
            }
            Sampler::Weighted | Sampler::Balanced => Some(
                "the samplers weighted and balanced: strata weigh unequally, and have equally many draws",
            ),
            _ if !self.parts.is_empty() => Some("a mixture: its parts are in one ratio in each batch"),
            _ if !self.bucket.is_empty() => Some("buckets: a batch of all ranks has one size"),
            _ if self.subset_digest != 0 => Some("indices: a subset is drawn as a whole"),
            _ if self.pace => Some("pace, which goes by whole batches"),
            _ => None,
        }
    }

    /// The sampler by which a plan depends on its node, if one does: of a mixture it may be that of
    /// one dataset.
    fn by_its_node(&self) -> Sampler {
        let goes_by_node =
            |of: &Sampler| of.is_by_importance() || *of == Sampler::Replacement && self.cover > 0;
        self.samplers().find(goes_by_node).unwrap_or(self.sampler)
    }

    /// Whether a plan depends on what the daemon that draws it has seen: losses, deliveries, cached
    /// samples.
    #[must_use]
    pub fn depends_on_its_node(&self) -> bool {
        self.is_by_importance() || self.is_by_deliveries() || self.depends_on_residents()
    }
}
