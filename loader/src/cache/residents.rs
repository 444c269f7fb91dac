//! The resident samples with their values: a slab with dense places and a map from sample to place.
//!
//! A place is a number below the most residents there ever were; it stays the sample's while it is resident. The
//! policies' orders are arrays by place, so they need no map of their own. ARC keeps its ghosts in a slab of this kind,
//! too: samples with their bytes and no value.

use shade_formats::SampleId;

/// No place: the sample is not resident.
const NOWHERE: u32 = u32::MAX;

/// One resident sample.
struct Resident<T> {
    id: SampleId,
    bytes: u64,
    value: T,
}

/// All resident samples.
pub(super) struct Residents<T> {
    slab: Vec<Option<Resident<T>>>,
    free: Vec<u32>,
    /// By sample id.
    places: Vec<u32>,
    used_bytes: u64,
}

impl<T> Residents<T> {
    pub(super) fn new(samples: u32) -> Self {
        Self { slab: Vec::new(), free: Vec::new(), places: vec![NOWHERE; samples as usize], used_bytes: 0 }
    }

    /// Whether `id` is a sample of the dataset that is not resident.
    pub(super) fn is_absent(&self, id: SampleId) -> bool {
        self.places.get(id.index()) == Some(&NOWHERE)
    }

    pub(super) fn place(&self, id: SampleId) -> Option<u32> {
        self.places.get(id.index()).copied().filter(|&place| place != NOWHERE)
    }

    pub(super) fn value(&self, place: u32) -> Option<&T> {
        self.resident(place).map(|resident| &resident.value)
    }

    /// Bytes the resident at `place` is charged; 0 where there is none.
    pub(super) fn bytes(&self, place: u32) -> u64 {
        self.resident(place).map_or(0, |resident| resident.bytes)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Resident ids in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = SampleId> {
        self.slab.iter().flatten().map(|resident| resident.id)
    }

    /// Stores an absent sample (see [`is_absent`](Self::is_absent)) and returns its place.
    pub(super) fn insert(&mut self, id: SampleId, bytes: u64, value: T) -> u32 {
        let resident = Some(Resident { id, bytes, value });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slab.push(None);
                // Fewer places than samples, whose ids are u32.
                u32::try_from(self.slab.len() - 1).unwrap_or(NOWHERE)
            }
        };
        if let Some(slot) = self.slab.get_mut(place as usize) {
            *slot = resident;
        }
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = place;
        }
        self.used_bytes += bytes;
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<(SampleId, T)> {
        let Resident { id, bytes, value } = self.slab.get_mut(place as usize)?.take()?;
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = NOWHERE;
        }
        self.free.push(place);
        self.used_bytes -= bytes;
        Some((id, value))
    }

    fn resident(&self, place: u32) -> Option<&Resident<T>> {
        self.slab.get(place as usize)?.as_ref()
    }
}
