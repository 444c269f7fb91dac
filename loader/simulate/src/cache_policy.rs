//! The policy of a simulated cache, as the command line names it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_core::cache::Cache;
use shade_job::Policy;

/// Decides which samples stay: a policy of the daemon, or Belady's MIN, which knows the whole
/// training and so cannot run in a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// A policy of the daemon, which knows no plan but those that are drawn.
    Online(Policy),
    /// MIN. It refuses a newcomer that is used later than all residents, or admits everything.
    Min {
        /// Whether it may refuse.
        bypasses: bool,
    },
}

const MIN: &str = "min";
const MIN_ADMITS: &str = "min-admits";

impl CachePolicy {
    /// The name in options and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Online(policy) => policy.as_str(),
            Self::Min { bypasses: true } => MIN,
            Self::Min { bypasses: false } => MIN_ADMITS,
        }
    }

    /// An empty cache of its kind.
    pub(super) fn cache(self, capacity: u64, samples: u32) -> Cache<()> {
        match self {
            Self::Online(policy) => Cache::new(policy, capacity, samples),
            Self::Min { bypasses: true } => Cache::new(Policy::Lookahead, capacity, samples),
            Self::Min { bypasses: false } => Cache::that_admits_all(capacity, samples),
        }
    }

    /// The policy that the core is told.
    pub(super) fn online(self) -> Policy {
        match self {
            Self::Online(policy) => policy,
            Self::Min { .. } => Policy::Lookahead,
        }
    }

    /// Its sight in epochs, if `lookahead` is that of the policy of that name.
    pub(super) fn lookahead(self, lookahead: f64) -> f64 {
        match self {
            Self::Online(Policy::Lookahead) => lookahead,
            Self::Online(_) => 0.0,
            Self::Min { .. } => f64::INFINITY,
        }
    }
}

/// Reads the name of a policy or of MIN.
pub(super) fn cache_policy() -> impl TypedValueParser<Value = CachePolicy> {
    let policies = Policy::ALL.iter().map(|&policy| PossibleValue::new(policy.as_str()).help(policy.about()));
    let others = [
        (
            MIN,
            "Belady's MIN over the whole training, which may bypass: on its accesses no policy hits more often",
        ),
        (MIN_ADMITS, "Belady's MIN where every sample that was read must be admitted"),
    ];
    let others = others.map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(policies.chain(others)).map(|name| match name.parse::<Policy>() {
        Ok(policy) => CachePolicy::Online(policy),
        Err(_) => CachePolicy::Min { bypasses: name == MIN },
    })
}
