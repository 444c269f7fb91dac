//! The resident samples with their values: a slab with dense places and a map from sample to place.
//!
//! A place is a number below the most residents and ghosts there ever were; it stays the sample's while it is one of these.
//! The policies' orders are arrays by place, so they need no map of their own. A ghost is a sample that was evicted and
//! that the policy remembers: it keeps its place and its bytes, and has no value.

use shade_formats::SampleId;

/// No place: the sample is not resident.
const NOWHERE: u32 = u32::MAX;

/// One resident sample, or a ghost, or a place that is free. Without a value it takes 16 bytes, and does not lie on two cache lines.
struct Resident<T> {
    bytes: u64,
    id: SampleId,
    /// `None` where there is a ghost, or the place is free.
    value: Option<T>,
}

/// All resident samples.
pub(super) struct Residents<T> {
    slab: Vec<Resident<T>>,
    free: Vec<u32>,
    /// By sample id, of residents and ghosts.
    places: Vec<u32>,
    len: usize,
    used_bytes: u64,
}

impl<T> Residents<T> {
    pub(super) fn new(samples: u32) -> Self {
        let places = vec![NOWHERE; samples as usize];
        Self { slab: Vec::new(), free: Vec::new(), places, len: 0, used_bytes: 0 }
    }

    /// Whether `id` is a sample of the dataset that is not resident.
    pub(super) fn is_absent(&self, id: SampleId) -> bool {
        id.index() < self.places.len() && self.place(id).is_none()
    }

    /// The place of a resident.
    pub(super) fn place(&self, id: SampleId) -> Option<u32> {
        self.find(id, |resident| resident.value.is_some())
    }

    /// The place of a ghost, and the bytes it took.
    pub(super) fn ghost(&self, id: SampleId) -> Option<(u32, u64)> {
        let place = self.find(id, |resident| resident.value.is_none())?;
        Some((place, self.bytes(place)))
    }

    fn find(&self, id: SampleId, is_it: impl FnOnce(&Resident<T>) -> bool) -> Option<u32> {
        let &place = self.places.get(id.index())?;
        self.slab.get(place as usize).is_some_and(is_it).then_some(place)
    }

    pub(super) fn value(&self, place: u32) -> Option<&T> {
        self.slab.get(place as usize)?.value.as_ref()
    }

    /// Bytes that the resident at `place` is charged, or that the ghost there took.
    pub(super) fn bytes(&self, place: u32) -> u64 {
        self.slab.get(place as usize).map_or(0, |resident| resident.bytes)
    }

    /// Of the residents.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Resident ids in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = SampleId> {
        self.slab.iter().filter(|resident| resident.value.is_some()).map(|resident| resident.id)
    }

    /// Stores an absent sample (see [`is_absent`](Self::is_absent)) and returns its place, which is the ghost's if it was one.
    pub(super) fn insert(&mut self, id: SampleId, bytes: u64, value: T) -> u32 {
        let resident = Resident { bytes, id, value: Some(value) };
        let known = self.places.get(id.index()).copied().filter(|&place| place != NOWHERE);
        let place = known.or_else(|| self.free.pop());
        // Fewer places than samples, whose ids are u32.
        let place = place.unwrap_or_else(|| u32::try_from(self.slab.len()).unwrap_or(NOWHERE));
        match self.slab.get_mut(place as usize) {
            Some(slot) => *slot = resident,
            None => self.slab.push(resident),
        }
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = place;
        }
        self.len += 1;
        self.used_bytes += bytes;
        place
    }

    /// Takes the resident's value out, and leaves a ghost.
    pub(super) fn retire(&mut self, place: u32) -> Option<(SampleId, T)> {
        let resident = self.slab.get_mut(place as usize)?;
        let value = resident.value.take()?;
        self.len -= 1;
        self.used_bytes -= resident.bytes;
        Some((resident.id, value))
    }

    /// Forgets a ghost; its place is free.
    pub(super) fn forget(&mut self, place: u32) {
        let ghost = self.slab.get(place as usize).filter(|resident| resident.value.is_none());
        if let Some(slot) = ghost.and_then(|ghost| self.places.get_mut(ghost.id.index())) {
            *slot = NOWHERE;
            self.free.push(place);
        }
    }
}
