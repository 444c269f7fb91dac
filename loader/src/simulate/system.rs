//! What is simulated beside what: a cache policy with its sampler and order.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_formats::control::{Order, PlanSpec, Policy, Preset, Sampler};

use super::cli::Simulate;
use super::error::SimulateError;
use crate::cache::Cache;
use crate::plan::depends_on_residents;

/// Who keeps samples: a policy of the daemon, or Belady's MIN, which knows the whole training and which no daemon can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A policy of the daemon.
    Policy(Policy),
    /// MIN, which refuses a newcomer that is used later than all it would displace, or must admit everything.
    Min {
        /// Whether it may refuse.
        bypasses: bool,
    },
}

const MIN: &str = "min";
const MIN_ADMITS: &str = "min-admits";

impl Keeper {
    /// The name in options and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.as_str(),
            Self::Min { bypasses: true } => MIN,
            Self::Min { bypasses: false } => MIN_ADMITS,
        }
    }

    /// An empty cache of its kind.
    pub(super) fn cache(self, capacity: u64, samples: u32) -> Cache<()> {
        match self {
            Self::Policy(policy) => Cache::new(policy, capacity, samples),
            Self::Min { bypasses: true } => Cache::new(Policy::Lookahead, capacity, samples),
            Self::Min { bypasses: false } => Cache::that_admits_all(capacity, samples),
        }
    }

    /// How many epochs it sees ahead, where `lookahead` is what the policy of that name does; `None` if it does not look.
    pub(super) fn lookahead(self, lookahead: f64) -> Option<f64> {
        match self {
            Self::Policy(Policy::Lookahead) => Some(lookahead),
            Self::Policy(_) => None,
            Self::Min { .. } => Some(f64::INFINITY),
        }
    }
}

/// Reads the name of a policy or of MIN.
pub(super) fn keeper() -> impl TypedValueParser<Value = Keeper> {
    let policies = Policy::ALL.iter().map(|policy| PossibleValue::new(policy.as_str()).help(policy.about()));
    let others = [
        (
            MIN,
            "Belady's MIN over the whole training, which may bypass: on its accesses no policy hits more often",
        ),
        (MIN_ADMITS, "Belady's MIN where every sample that was read must be admitted"),
    ];
    let others = others.map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(policies.chain(others)).map(|name| match name.parse::<Policy>() {
        Ok(policy) => Keeper::Policy(policy),
        Err(_) => Keeper::Min { bypasses: name == MIN },
    })
}

/// One line of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    /// What it is called in the result.
    pub(super) name: &'static str,
    pub(super) keeper: Keeper,
    pub(super) sampler: Sampler,
    pub(super) order: Order,
}

impl System {
    /// The systems that `args` name.
    ///
    /// # Errors
    /// MIN is asked for and the plans depend on what is cached.
    pub(super) fn all(args: &Simulate) -> Result<Vec<Self>, SimulateError> {
        let training = &args.training;
        let of = |name, keeper, preset: Preset| {
            let PlanSpec { sampler, order, .. } = training.plan.of(preset);
            Self { name, keeper, sampler, order }
        };
        let systems: Vec<Self> = if training.preset.is_empty() {
            args.policy.iter().map(|&keeper| of(keeper.name(), keeper, Preset::default())).collect()
        } else {
            let preset = |&preset: &Preset| of(preset.as_str(), Keeper::Policy(preset.policy()), preset);
            training.preset.iter().map(preset).collect()
        };
        for system in &systems {
            let plan = system.plan(&training.plan());
            let is_min = matches!(system.keeper, Keeper::Min { .. });
            if is_min && depends_on_residents(&plan) && args.trace.is_none() {
                let what = format!(
                    "--policy {}: these plans depend on what is cached, so there is no training to know in advance; leave \
                     out --rep, --pace and orders that go by residents",
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
