//! A batch: viewed in place in shared memory and given back when dropped, or a copy of what lay there.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use shade_formats::FormatError;
use shade_formats::ring::{BatchLayout, Descriptor};
use shade_shm::{Region, Releaser};

use crate::ClientError;
use crate::dialogue::lock;
use crate::fork::Owner;
use crate::held::Held;

/// What releasing needs. Batches hold it, so it and the mapping outlive the session if they do.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) owner: Owner,
    pub(crate) releaser: Releaser,
    /// The daemon's doorbell, not blocking.
    pub(crate) doorbell: OwnedFd,
    pub(crate) payload: Region,
    pub(crate) held: Mutex<Held>,
}

/// What rings an eventfd once.
#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel reads an eventfd's number in the machine's own order"
)]
const ONE_RING: [u8; 8] = 1_u64.to_ne_bytes();

impl Slots {
    /// Gives a descriptor back and tells the daemon. In a forked child it does neither: the slot is the parent's.
    pub(crate) fn release(&self, descriptor: &Descriptor) {
        if !self.owner.is_here() {
            return;
        }
        // The release mark lies in a mapped segment: there is no way to fail. A doorbell that cannot be rung is a daemon
        // that is gone, or a counter at its maximum, which is as good as one more.
        let _ = self.releaser.release(descriptor);
        let _ = rustix::io::write(&self.doorbell, &ONE_RING);
    }

    /// The ring's payload.
    pub(crate) fn payload(&self) -> Column<u8> {
        Column { ptr: self.payload.as_ptr(), count: to_usize(self.payload.len()) }
    }

    /// Gives a batch back that was kept in the ring.
    fn give_back(&self, descriptor: &Descriptor) {
        // In a forked child the lock may be another thread's, which the child does not have.
        if self.owner.is_here() {
            // Before the release: after it the place may come back with the next batch, and be counted anew.
            lock(&self.held).forget(descriptor);
            self.release(descriptor);
        }
    }
}

/// One batch. Its memory is this process's alone, to read and to write, until the batch is dropped.
///
/// It lies in the ring, in its slot; or, where the trainer holds so many that the daemon would run out of room, it is a
/// copy, whose slot is free already. Either is read in the same way.
#[derive(Debug)]
pub struct Batch {
    /// What the slot is given back to; none for a copy.
    slots: Option<Arc<Slots>>,
    /// The ring's payload, or the copy.
    memory: Region,
    /// Where in it the block begins.
    start: u64,
    /// Apart, so that a batch is cheap to pass on.
    descriptor: Box<Descriptor>,
    layout: BatchLayout,
}

/// A column of a batch: `count` values in a row. The pointer is valid as long as the batch lives, and aligned to 64 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Column<T> {
    /// The first value.
    pub ptr: *mut T,
    /// How many there are.
    pub count: usize,
}

impl Batch {
    /// A descriptor's batch, in the ring if it may stay there. The caller has checked the descriptor (`Consumer::poll` does).
    pub(crate) fn new(slots: &Arc<Slots>, descriptor: Descriptor) -> Result<Self, ClientError> {
        let layout = descriptor.batch_layout()?;
        let descriptor = Box::new(descriptor);
        if lock(&slots.held).hold(&descriptor) {
            let (memory, start) = (slots.payload.clone(), descriptor.offset);
            return Ok(Self { slots: Some(Arc::clone(slots)), memory, start, descriptor, layout });
        }
        let copy = slots.payload.copy_out(descriptor.offset, descriptor.len);
        slots.release(&descriptor);
        let memory = copy?.ok_or(ClientError::System { what: "copying a batch", source: Errno::NOMEM })?;
        Ok(Self { slots: None, memory, start: 0, descriptor, layout })
    }

    /// Whether it is a copy and holds no slot.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.slots.is_none()
    }

    /// What the daemon says about the batch: epoch, number, counts, image size and times.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Rows delivered.
    #[must_use]
    pub fn records(&self) -> usize {
        self.descriptor.records as usize
    }

    /// Sample ids.
    #[must_use]
    pub fn ids(&self) -> Column<i64> {
        self.rows(self.layout.ids)
    }

    /// Class labels.
    #[must_use]
    pub fn labels(&self) -> Column<i64> {
        self.rows(self.layout.labels)
    }

    /// Loss weights.
    #[must_use]
    pub fn weights(&self) -> Column<f32> {
        self.rows(self.layout.weights)
    }

    /// [`FLAG_SUBSTITUTED`](crate::FLAG_SUBSTITUTED) and [`FLAG_PADDING`](crate::FLAG_PADDING).
    #[must_use]
    pub fn flags(&self) -> Column<u32> {
        self.rows(self.layout.flags)
    }

    /// Where each record or image begins in [`Batch::data`]; `None` where images are of one size. To be checked against the
    /// data's length.
    #[must_use]
    pub fn offsets(&self) -> Option<Column<u64>> {
        self.layout.offsets().map(|at| self.rows(at))
    }

    /// How long each record is; raw batches only.
    #[must_use]
    pub fn lens(&self) -> Option<Column<u64>> {
        self.layout.lens().map(|at| self.rows(at))
    }

    /// How many rows of pixels each image has; images of their own sizes only.
    #[must_use]
    pub fn heights(&self) -> Option<Column<u32>> {
        self.layout.heights().map(|at| self.rows(at))
    }

    /// How many columns of pixels each image has; images of their own sizes only.
    #[must_use]
    pub fn widths(&self) -> Option<Column<u32>> {
        self.layout.widths().map(|at| self.rows(at))
    }

    /// The records' bytes one after another, or the images as [`Layout`](crate::Layout) says.
    #[must_use]
    pub fn data(&self) -> Column<u8> {
        Column { ptr: self.address(self.layout.data), count: to_usize(self.layout.data_len) }
    }

    /// A copy of the bytes of one row of a raw batch; `None` for a row that is not there and for decoded batches.
    ///
    /// # Errors
    /// When the row's offset and length point outside the batch's data.
    pub fn record(&self, row: usize) -> Result<Option<Vec<u8>>, FormatError> {
        let Some((at, len)) = self.locate(row)? else { return Ok(None) };
        // Within the block, so it fits into memory: it is there already.
        let mut bytes = vec![0; to_usize(len)];
        self.memory.read(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The bytes of one row of a raw batch in place; `None` as for [`Batch::record`].
    ///
    /// # Errors
    /// As for [`Batch::record`].
    pub fn record_in_place(&self, row: usize) -> Result<Option<Column<u8>>, FormatError> {
        let found = self.locate(row)?;
        Ok(found.map(|(at, len)| {
            let ptr = self.memory.as_ptr().wrapping_add(to_usize(at));
            Column { ptr, count: to_usize(len) }
        }))
    }

    /// Offset and length of a row's record in the batch's memory.
    fn locate(&self, row: usize) -> Result<Option<(u64, u64)>, FormatError> {
        let (Some(offsets), Some(lens)) = (self.layout.offsets(), self.layout.lens()) else {
            return Ok(None);
        };
        if row >= self.records() {
            return Ok(None);
        }
        let (offset, len) = (self.word(offsets, row)?, self.word(lens, row)?);
        // Columns are writable memory: whatever stands there must not lead out of the data.
        if offset.checked_add(len).is_none_or(|end| end > self.layout.data_len) {
            return Err(FormatError::new(
                "record in a raw batch",
                offset,
                format_args!("{len} bytes"),
                format_args!("a range within {} bytes", self.layout.data_len),
            ));
        }
        Ok(Some((self.start + self.layout.data + offset, len)))
    }

    /// One value of a column of offsets or lengths.
    fn word(&self, column: u64, row: usize) -> Result<u64, FormatError> {
        let mut word = [0; 8];
        self.memory.read(self.start + column + row as u64 * 8, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn rows<T>(&self, at: u64) -> Column<T> {
        Column { ptr: self.address(at).cast(), count: self.records() }
    }

    /// Address of a place in the batch's block: `Descriptor::check` saw the block, the layout the place, and a copy is as long.
    fn address(&self, at: u64) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(to_usize(self.start + at))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(slots) = &self.slots {
            slots.give_back(&self.descriptor);
        }
    }
}

/// A length or place in memory, which a `usize` always holds.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Tensors pass batches between threads.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>(_: PhantomData<T>) {}
    is_send_and_sync(PhantomData::<Batch>);
};
