//! The table of policies: the type of each and how it begins. Names and help lines stand in
//! `formats/job/src/preset.rs`.

use shade_formats::SampleId;
use shade_job::Policy;

use super::eviction::{Eviction, Offer, Properties, Search};
use super::lookahead::ByNextUse;
use super::next_uses::NextUses;
use super::published::arc::Adaptive;
use super::published::icache::Icache;
use super::published::lfu::Lfu;
use super::published::quiver::Quiver;
use super::published::r#static::Static;
use super::queue::{Fifo, Lru};
use super::ranking::{ByScore, ByUses, Ranking};
use super::residents::Residents;
use crate::importance::Importance;

/// Declares [`AnyPolicy`] from the table below. The choice is an enum and no trait object, so that
/// the compiler inlines a policy into the cache.
macro_rules! policies {
    (|$capacity_bytes:ident, $samples:ident| $($name:ident: $policy:ty = $new:expr;)+) => {
        /// The policy of a cache.
        pub(super) enum AnyPolicy { $($name($policy)),+ }

        impl AnyPolicy {
            /// The policy of an empty cache of `capacity_bytes` for samples `0..samples`.
            pub(super) fn new(policy: Policy, $capacity_bytes: u64, $samples: u32) -> Self {
                match policy { $(Policy::$name => Self::$name($new)),+ }
            }
        }

        impl Properties {
            /// The properties of `policy`.
            #[must_use]
            pub fn of(policy: Policy) -> Self {
                match policy { $(Policy::$name => <$policy>::PROPERTIES),+ }
            }
        }

        /// The methods of [`Eviction`], of the policy at hand.
        impl AnyPolicy {
            pub(super) fn victims<T, P>(&mut self, offer: &Offer<'_>, search: Search<'_, T, P>) -> bool
            where
                P: Fn(u32) -> bool,
            {
                match self { $(Self::$name(policy) => policy.victims(offer, search)),+ }
            }

            pub(super) fn surplus<T, P>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool
            where
                P: Fn(u32) -> bool,
            {
                match self { $(Self::$name(policy) => policy.surplus(search, importance)),+ }
            }

            pub(super) fn evict<T>(
                &mut self,
                residents: &mut Residents<T>,
                victims: &[u32],
                evicted: &mut Vec<(SampleId, T)>,
            ) {
                match self { $(Self::$name(policy) => policy.evict(residents, victims, evicted)),+ }
            }

            pub(super) fn remove(&mut self, place: u32, bytes: u64) {
                match self { $(Self::$name(policy) => policy.remove(place, bytes)),+ }
            }

            pub(super) fn admit<T>(
                &mut self,
                offer: &Offer<'_>,
                value: T,
                residents: &mut Residents<T>,
                victims: &[u32],
                evicted: &mut Vec<(SampleId, T)>,
            ) {
                match self {
                    $(Self::$name(policy) => policy.admit(offer, value, residents, victims, evicted)),+
                }
            }

            pub(super) fn hit<T>(
                &mut self,
                place: u32,
                id: SampleId,
                importance: &Importance,
                residents: &Residents<T>,
            ) {
                match self { $(Self::$name(policy) => policy.hit(place, id, importance, residents)),+ }
            }

            pub(super) fn await_use(&mut self, place: u32) {
                match self { $(Self::$name(policy) => policy.await_use(place)),+ }
            }

            pub(super) fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
                match self { $(Self::$name(policy) => policy.rescore(place, id, importance)),+ }
            }

            pub(super) fn resize(&mut self, capacity_bytes: u64) {
                match self { $(Self::$name(policy) => policy.resize(capacity_bytes)),+ }
            }

            pub(super) fn rank_anew(&mut self) {
                match self { $(Self::$name(policy) => policy.rank_anew()),+ }
            }

            pub(super) fn keep_ranked(&mut self, is_kept: bool) {
                match self { $(Self::$name(policy) => policy.keep_ranked(is_kept)),+ }
            }

            pub(super) fn rank_on<T>(
                &mut self,
                most: u32,
                residents: &Residents<T>,
                importance: &Importance,
            ) -> bool {
                match self { $(Self::$name(policy) => policy.rank_on(most, residents, importance)),+ }
            }

            pub(super) fn begin_epoch<T>(
                &mut self,
                residents: &Residents<T>,
                may_use: impl Fn(SampleId) -> bool,
                high: impl FnOnce() -> Vec<bool>,
            ) {
                match self { $(Self::$name(policy) => policy.begin_epoch(residents, may_use, high)),+ }
            }

            pub(super) fn next_uses(&mut self) -> Option<&mut NextUses> {
                match self { $(Self::$name(policy) => policy.next_uses()),+ }
            }

            pub(super) fn unused<T, P>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool
            where
                P: Fn(u32) -> bool,
            {
                match self { $(Self::$name(policy) => policy.unused(search, importance)),+ }
            }

            pub(super) fn may_be_exchanged(&self, id: SampleId) -> bool {
                match self { $(Self::$name(policy) => policy.may_be_exchanged(id)),+ }
            }
        }
    };
}

policies! { |capacity_bytes, samples|
    Lookahead: Ranking<ByNextUse> = Ranking::new(samples, ByNextUse::new(samples));
    App: Ranking<ByUses> = Ranking::new(samples, ByUses);
    TopC: Ranking<ByScore> = Ranking::new(samples, ByScore);
    Lru: Lru = Lru::new(samples);
    Fifo: Fifo = Fifo::new(samples);
    Lfu: Lfu = Lfu::new(samples);
    Arc: Adaptive = Adaptive::new(capacity_bytes, samples);
    Static: Static = Static::default();
    Icache: Icache = Icache::new(capacity_bytes, samples);
    Quiver: Quiver = Quiver::new(samples);
}

impl AnyPolicy {
    /// `lookahead` that admits every newcomer: Belady's MIN without bypass.
    pub(super) fn min_that_admits_all(samples: u32) -> Self {
        Self::Lookahead(Ranking::new(samples, ByNextUse::that_admits_all(samples)))
    }
}
