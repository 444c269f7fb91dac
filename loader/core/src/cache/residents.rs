//! The resident samples with their values: columns with dense places and a map from sample to
//! place.
//!
//! A place is a number below the largest number of residents and ghosts so far. A sample keeps its
//! place while it is one of these. The orders of the policies are arrays by place, so they need no
//! map of their own. A ghost is an evicted sample that the policy remembers: it keeps its place and
//! its bytes, and has no value.
//!
//! A hit needs the value alone, so values lie by themselves: more of them share a cache line.

use shade_formats::SampleId;

use crate::number::to_u32;

/// No place: the sample is not resident.
const NOWHERE: u32 = u32::MAX;

/// The sample at a place, and the bytes it is charged: 8 bytes.
#[derive(Clone, Copy)]
struct Owner {
    id: SampleId,
    bytes: u32,
}

/// All resident samples.
pub(super) struct Residents<T> {
    /// By place. `None` where there is a ghost, or the place is free.
    values: Vec<Option<T>>,
    /// By place.
    owners: Vec<Owner>,
    free: Vec<u32>,
    /// By sample id, of residents and ghosts.
    places: Vec<u32>,
    len: usize,
    used_bytes: u64,
}

impl<T> Residents<T> {
    pub(super) fn new(samples: u32) -> Self {
        // Room for all, here and in the orders of the policies: what is never written takes no
        // memory, and what grows by doubling leaves holes behind.
        let samples = samples as usize;
        let (values, owners) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
        let places = vec![NOWHERE; samples];
        Self { values, owners, free: Vec::new(), places, len: 0, used_bytes: 0 }
    }

    /// Whether `id` is a sample of the dataset that is not resident.
    pub(super) fn is_absent(&self, id: SampleId) -> bool {
        id.index() < self.places.len() && self.resident(id).is_none()
    }

    /// The place of a resident, and its value.
    pub(super) fn resident(&self, id: SampleId) -> Option<(u32, &T)> {
        let &place = self.places.get(id.index())?;
        Some((place, self.value(place)?))
    }

    /// The place of a resident.
    pub(super) fn place(&self, id: SampleId) -> Option<u32> {
        self.resident(id).map(|(place, _)| place)
    }

    /// The place of a ghost, and the bytes it took.
    pub(super) fn ghost(&self, id: SampleId) -> Option<(u32, u64)> {
        let &place = self.places.get(id.index())?;
        self.values.get(place as usize)?.is_none().then(|| (place, self.bytes(place)))
    }

    pub(super) fn value(&self, place: u32) -> Option<&T> {
        self.values.get(place as usize)?.as_ref()
    }

    /// The resident at a place.
    pub(super) fn id(&self, place: u32) -> Option<SampleId> {
        self.value(place)?;
        self.owners.get(place as usize).map(|owner| owner.id)
    }

    /// The value at a place, to change it; `None` if there is no resident.
    pub(super) fn value_mut(&mut self, place: u32) -> Option<&mut T> {
        self.values.get_mut(place as usize)?.as_mut()
    }

    /// Number of places, of which some may be free.
    pub(super) fn places(&self) -> u32 {
        // Fewer than samples, whose ids are u32.
        to_u32(self.owners.len())
    }

    /// Bytes that the resident at `place` is charged, or that the ghost there took.
    pub(super) fn bytes(&self, place: u32) -> u64 {
        self.owners.get(place as usize).map_or(0, |owner| u64::from(owner.bytes))
    }

    /// Bytes of all residents.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Places and ids of all residents, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, SampleId)> {
        let places = (0..).zip(self.owners.iter().zip(&self.values));
        places.filter(|(_, (_, value))| value.is_some()).map(|(place, (owner, _))| (place, owner.id))
    }

    /// Stores an absent sample (see [`is_absent`](Self::is_absent)) and returns its place: that of
    /// its `ghost`, if it has one.
    #[inline(always)]
    pub(super) fn insert(&mut self, id: SampleId, ghost: Option<u32>, bytes: u32, value: T) -> u32 {
        let owner = Owner { id, bytes };
        self.len += 1;
        self.used_bytes += u64::from(bytes);
        let place = ghost.or_else(|| self.free.pop());
        // Fewer places than samples, whose ids are u32.
        let place = place.unwrap_or_else(|| to_u32(self.owners.len()));
        let slots = self.values.get_mut(place as usize).zip(self.owners.get_mut(place as usize));
        if let Some((value_slot, owner_slot)) = slots {
            (*value_slot, *owner_slot) = (Some(value), owner);
        } else {
            self.values.push(Some(value));
            self.owners.push(owner);
        }
        if let Some(slot) = self.places.get_mut(id.index()) {
            *slot = place;
        }
        place
    }

    /// Takes the resident's value out, and leaves a ghost.
    pub(super) fn retire(&mut self, place: u32) -> Option<(SampleId, T)> {
        let value = self.values.get_mut(place as usize)?.take()?;
        let owner = self.owners.get(place as usize)?;
        self.len -= 1;
        self.used_bytes -= u64::from(owner.bytes);
        Some((owner.id, value))
    }

    /// Takes a resident out; its place is free.
    pub(super) fn remove(&mut self, place: u32) -> Option<(SampleId, T)> {
        let resident = self.retire(place)?;
        self.forget(place);
        Some(resident)
    }

    /// Forgets a ghost; its place is free.
    pub(super) fn forget(&mut self, ghost: u32) {
        let owner = self.owners.get(ghost as usize);
        if let Some(slot) = owner.and_then(|owner| self.places.get_mut(owner.id.index())) {
            *slot = NOWHERE;
            self.free.push(ghost);
        }
    }
}
