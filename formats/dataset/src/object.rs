//! A shard that is an object in a bucket.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use shade_store::{Answer, Found, Objects, StoreFault};

use crate::identity::version_of;
use crate::refusal::Refusal;

/// A shard's object. All reads are of the version that was read first.
#[derive(Debug)]
pub struct Object {
    objects: Arc<Objects>,
    name: String,
    /// Its length in bytes as the index has it.
    bytes: u64,
    /// The version that an index of places has.
    indexed: Option<i64>,
    /// The version that was read first, if the store has versions.
    etag: OnceLock<String>,
}

impl Object {
    pub(crate) fn new(objects: Arc<Objects>, name: &str, bytes: u64, indexed: Option<i64>) -> Self {
        Self { objects, name: name.to_owned(), bytes, indexed, etag: OnceLock::new() }
    }

    /// Reads some bytes of `range`, as many from its beginning as come, into `room`. Returns how
    /// many these are, at least one.
    ///
    /// # Errors
    /// What the store answers instead, or the object is not the one that was read first.
    pub async fn read(&self, range: Range<u64>, room: &mut Room<'_>) -> Result<u64, Refusal> {
        let etag = self.known();
        let outcome = self.objects.read(&self.name, range, etag, |piece| room.put(piece)).await;
        self.judged(outcome, etag.is_some(), room.filled)
    }

    /// As [`read`](Self::read), and waits for it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_now(&self, range: Range<u64>, room: &mut Room<'_>) -> Result<u64, Refusal> {
        let etag = self.known();
        let outcome = self.objects.read_now(&self.name, range, etag, |piece| room.put(piece));
        self.judged(outcome, etag.is_some(), room.filled)
    }

    /// The version that is asked for. Weak ETags say nothing of bytes, so by RFC 9110 a server
    /// finds none equal; they are compared with what comes.
    fn known(&self) -> Option<&str> {
        self.etag.get().map(String::as_str).filter(|etag| !etag.starts_with("W/"))
    }

    /// `is_known` says that the store was asked for a known version: then what came before a cut is
    /// of it.
    fn judged(
        &self,
        outcome: Result<Found, StoreFault>,
        is_known: bool,
        filled: u64,
    ) -> Result<u64, Refusal> {
        match outcome {
            Ok(found) => {
                self.check(&found)?;
                Ok(filled)
            }
            Err(fault) if is_known && filled > 0 && fault.answer == Answer::Cut => Ok(filled),
            // All that is asked for lies within the length that the index says.
            Err(fault) if fault.answer == Answer::OutOfRange => {
                let words = format!("it is shorter than the {} bytes that the index says", self.bytes);
                Err(StoreFault { answer: Answer::Changed, words, ..fault }.into())
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Checks that bytes came from the version that was read first.
    fn check(&self, found: &Found) -> Result<(), StoreFault> {
        let changed = |words| StoreFault { answer: Answer::Changed, status: None, wait: None, words };
        if found.bytes != self.bytes {
            return Err(changed(format!("it has {} bytes, the index says {}", found.bytes, self.bytes)));
        }
        let version = found.etag.as_deref().map(version_of);
        if self.indexed.is_some_and(|indexed| version != Some(indexed)) {
            return Err(changed(format!("its ETag is {}", found.etag.as_deref().unwrap_or("none"))));
        }
        let Some(etag) = &found.etag else { return Ok(()) };
        let first = self.etag.get_or_init(|| etag.clone());
        if first == etag {
            return Ok(());
        }
        Err(changed(format!("its ETag is {etag}, it was {first}")))
    }
}

/// Memory that bytes of an object are copied into, piece after piece.
#[derive(Debug)]
pub struct Room<'a> {
    slices: Vec<&'a mut [u8]>,
    /// Slices that are full.
    full: usize,
    /// Bytes in the first that is not.
    at: usize,
    filled: u64,
}

impl<'a> Room<'a> {
    /// The memory of these slices, one behind the other.
    #[must_use]
    pub fn new(slices: Vec<&'a mut [u8]>) -> Self {
        Self { slices, full: 0, at: 0, filled: 0 }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.len() as u64).sum()
    }

    /// Takes a piece. What has no room is dropped: the caller asked for no more than fits.
    fn put(&mut self, mut piece: &[u8]) {
        while let Some(slice) = self.slices.get_mut(self.full)
            && !piece.is_empty()
        {
            let room = slice.get_mut(self.at..).unwrap_or_default();
            let count = room.len().min(piece.len());
            let (now, later) = piece.split_at(count);
            room.split_at_mut(count).0.copy_from_slice(now);
            self.filled += count as u64;
            self.at += count;
            piece = later;
            if self.at == slice.len() {
                (self.full, self.at) = (self.full + 1, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_slices_in_their_order_and_nothing_is_written_behind_them() {
        for cut in 1..10 {
            let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
            let mut room = Room::new(vec![&mut a, &mut b, &mut c]);
            assert_eq!(room.bytes(), 7);
            [1, 2, 3, 4, 5, 6, 7, 8, 9].chunks(cut).for_each(|piece| room.put(piece));
            assert_eq!(room.filled, 7);
            assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7]), "pieces of {cut}");
        }
    }
}
