//! The systems to compare: a cache policy with its sampler and order.

use shade_job::{Order, PlanSpec, Preset, Sampler};

use crate::cache_policy::CachePolicy;
use crate::cli::Simulate;
use crate::error::SimulateError;

/// One line of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    /// Its name in the result.
    pub(super) name: &'static str,
    pub(super) policy: CachePolicy,
    pub(super) sampler: Sampler,
    pub(super) order: Order,
    /// Whether jobs at the same time are a group.
    pub(super) is_group: bool,
}

impl System {
    /// The systems that `args` name.
    ///
    /// # Errors
    /// MIN is asked for and the plans depend on what is cached.
    pub(super) fn all(args: &Simulate) -> Result<Vec<Self>, SimulateError> {
        let training = &args.training;
        let of = |name, policy, preset: Preset| {
            let PlanSpec { sampler, order, .. } = training.plan.of(preset);
            Self { name, policy, sampler, order, is_group: preset.is_group() }
        };
        let systems: Vec<Self> = if training.preset.is_empty() {
            args.policy.iter().map(|&policy| of(policy.name(), policy, Preset::default())).collect()
        } else {
            let preset = |&preset: &Preset| of(preset.as_str(), CachePolicy::Online(preset.policy()), preset);
            training.preset.iter().map(preset).collect()
        };
        for system in &systems {
            let plan = system.plan(&training.plan());
            let is_min = matches!(system.policy, CachePolicy::Min { .. });
            if is_min && plan.depends_on_residents() && args.trace.is_none() {
                let what = format!(
                    "--policy {}: these plans depend on what is cached, so the training cannot be known in \
                     advance; leave out --rep, --pace and orders that go by residents",
                    system.name
                );
                return Err(SimulateError::Usage(what));
            }
        }
        Ok(systems)
    }

    /// `plan` with this system's sampler and order.
    pub(super) fn plan(&self, plan: &PlanSpec) -> PlanSpec {
        PlanSpec { sampler: self.sampler, order: self.order, ..*plan }
    }
}
