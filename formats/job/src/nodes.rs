//! Which jobs several nodes can serve: each draws its part of a plan from what it knows itself.

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
        let is_on_several = self.local_ranks() < world_size;
        let is_whole = plan.subset_digest != 0 || !plan.parts.is_empty() || !plan.bucket.is_empty();
        if is_on_several && is_whole && plan.depends_on_its_node() {
            let expected = "one that goes by no losses, deliveries or caches, where ranks are on several nodes and \
                            indices, buckets or a mixture are given: these are drawn as a whole, and each node knows \
                            its own";
            return Err(SpecError::new("sampler", plan.by_its_node(), expected));
        }
        let is_divided = strata.is_multiple_of(world_size);
        if is_on_several && !is_divided && plan.depends_on_its_node() {
            let expected = format_args!(
                "a multiple of world_size, {world_size}, where ranks are on several nodes and the plan depends on \
                 losses, deliveries or caches: each node knows its own"
            );
            return Err(SpecError::new("strata", strata, expected));
        }
        Ok(())
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
