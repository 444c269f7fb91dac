//! The policy `quiver` (Kumar and Sivathanu, FAST 2020): evicts what the epoch has used, and keeps
//! what it has not used yet.
//!
//! Where every sample is used once an epoch, a used one has its next use in another epoch, and an
//! unused one is a hit to come. So all that is resident when an epoch begins is hit in it: no
//! policy has more hits. Batches take residents first, see
//! [`exchange`](crate::plan::Plan::exchange).

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Need, Offer, Properties, Search};
use crate::cache::queues::Queues;
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// Residents that wait for their use in this epoch.
const WAITING: usize = 0;
/// Residents that had it, or have none.
const USED: usize = 1;

/// Places by whether the epoch has used them, each queue from the least to the most recently used.
pub(crate) struct Quiver(Queues<2>);

impl Quiver {
    /// The order of an empty cache for samples `0..samples`.
    pub(crate) fn new(samples: u32) -> Self {
        Self(Queues::for_places(samples as usize))
    }

    /// Whether the place is in the order.
    pub(crate) fn contains(&self, place: u32) -> bool {
        self.0.queue_of(place).is_some()
    }
}

impl Eviction for Quiver {
    const PROPERTIES: Properties = Properties { exchanges: true, ..Properties::USUAL };

    /// What was used longest ago in this epoch leaves first.
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        self.0.oldest_unpinned(USED, need, |place| residents.bytes(place), is_pinned, victims)
    }

    /// Residents that wait for their use leave last.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        let Search { need: Need { bytes: mut missing, most }, residents, is_pinned, victims } = search;
        let bytes = |place| residents.bytes(place);
        [USED, WAITING].into_iter().any(|queue| {
            let before = victims.len();
            let is_enough =
                self.0.oldest_unpinned(queue, Need { bytes: missing, most }, bytes, &is_pinned, victims);
            missing -= victims.iter().skip(before).map(|&place| bytes(place)).sum::<u64>().min(missing);
            is_enough
        })
    }

    /// A newcomer was read for its use.
    fn insert(&mut self, place: u32, _offer: &Offer<'_>) {
        self.0.insert(USED, place);
    }

    fn remove(&mut self, place: u32, _bytes: u64) {
        self.0.remove(place);
    }

    fn hit<T>(&mut self, place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {
        self.0.renew(USED, place);
    }

    fn await_use(&mut self, place: u32) {
        self.0.renew(WAITING, place);
    }

    /// All residents wait for their use again, except those that have none: they leave first.
    fn begin_epoch<T>(
        &mut self,
        residents: &Residents<T>,
        may_use: impl Fn(SampleId) -> bool,
        _high: impl FnOnce() -> Vec<bool>,
    ) {
        self.0.append(WAITING, USED);
        let is_useless = |&place: &u32| residents.id(place).is_some_and(|id| !may_use(id));
        let useless: Vec<u32> = self.0.oldest_first(WAITING).filter(is_useless).collect();
        for place in useless {
            self.0.renew(USED, place);
        }
    }

    fn may_be_exchanged(&self, _id: SampleId) -> bool {
        true
    }
}
