//! The resident samples with their values: a slab with dense places and a map from sample to place.
//!
//! A place is a number below the most residents there ever were; it stays the sample's while it is resident. The
//! policies' orders are arrays by place, so they need no map of their own. ARC keeps its ghosts in a slab of this kind,
//! too: samples with their bytes and no value.

use shade_formats::SampleId;

/// No place: the sample is not resident.
const NOWHERE: u32 = u32::MAX;

/// One resident sample, or a place that is free. Without a value it takes 16 bytes, and does not lie on two cache lines.
struct Resident<T> {
    /// 0 where the place is free.
    bytes: u64,
    id: SampleId,
    /// `None` where the place is free.
    value: Option<T>,
}

/// All resident samples.
pub(super) struct Residents<T> {
    slab: Vec<Resident<T>>,
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
        self.slab.get(place as usize)?.value.as_ref()
    }

    /// Bytes the resident at `place` is charged; 0 where there is none.
    pub(super) fn bytes(&self, place: u32) -> u64 {
        self.slab.get(place as usize).map_or(0, |resident| resident.bytes)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Resident ids in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = SampleId> {
        self.slab.iter().filter(|resident| resident.value.is_some()).map(|resident| resident.id)
    }

    /// Stores an absent sample (see [`is_absent`](Self::is_absent)) and returns its place.
    pub(super) fn insert(&mut self, id: SampleId, bytes: u64, value: T) -> u32 {
        let resident = Resident { bytes, id, value: Some(value) };
        let free = self.free.pop();
        // Fewer places than samples, whose ids are u32.
        let place = free.unwrap_or_else(|| u32::try_from(self.slab.len()).unwrap_or(NOWHERE));
        match self.slab.get_mut(place as usize) {
            Some(slot) => *slot = resident,
            None => self.slab.push(resident),
        }
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = place;
        }
        self.used_bytes += bytes;
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<(SampleId, T)> {
        let resident = self.slab.get_mut(place as usize)?;
        let (value, id) = (resident.value.take()?, resident.id);
        self.used_bytes -= std::mem::take(&mut resident.bytes);
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = NOWHERE;
        }
        self.free.push(place);
        Some((id, value))
    }
}
