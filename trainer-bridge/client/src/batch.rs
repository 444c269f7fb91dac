//! A batch: a view of shared memory that is released when dropped, or a copy. A report is about a
//! [`BatchId`].

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use shade_formats::control::RedoRow;
use shade_formats::ring::{BatchLayout, Descriptor, FieldColumn, FieldColumns, NO_FIELD};
use shade_formats::{FormatError, SampleId, ViewShape};
use shade_job::{FieldKind, Fields};
use shade_shm::{Doorbell, Region, Releaser};

use crate::ClientError;
use crate::fork::{Owner, lock};
use crate::held::Held;

/// Everything needed to release batches. Each batch shares it, so it and the mapping live as long
/// as the last batch.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The session that they are of.
    pub(crate) session: SessionNumber,
    pub(crate) owner: Owner,
    pub(crate) releaser: Releaser,
    /// This end of the doorbells.
    pub(crate) doorbell: Doorbell,
    pub(crate) payload: Region,
    /// The extra fields that its batches have.
    pub(crate) fields: Fields,
    pub(crate) held: Mutex<Held>,
}

impl Slots {
    /// Releases a descriptor and tells the daemon. Does nothing in a forked child: the slot is the
    /// parent's.
    pub(crate) fn release(&self, descriptor: &Descriptor) {
        if !self.owner.is_here() {
            return;
        }
        // The release mark is in a mapped segment, so this cannot fail.
        let _ = self.releaser.release(descriptor);
        self.ring_daemon();
    }

    /// Wakes the daemon: something was released, or is waited for.
    pub(crate) fn ring_daemon(&self) {
        // Fails only where the kernel has no memory; the next release rings again.
        let _ = self.doorbell.ring();
    }

    /// The ring's payload.
    pub(crate) fn payload(&self) -> Column<u8> {
        Column { ptr: self.payload.as_ptr(), count: to_usize(self.payload.len()) }
    }

    /// Releases a batch that was kept in the ring.
    fn give_back(&self, descriptor: &Descriptor) {
        // In a forked child a thread that does not exist there may hold the lock.
        if self.owner.is_here() {
            // Before the release: after it the next batch may get the same place and be counted.
            lock(&self.held).forget(descriptor);
            self.release(descriptor);
        }
    }
}

/// One batch. Until it is dropped, only this process reads and writes its memory.
///
/// It is in its slot in the ring. Where the trainer keeps more batches than leave the daemon room,
/// it is a copy, whose slot is free already. Both are read in the same way.
#[derive(Debug)]
pub struct Batch {
    session: SessionNumber,
    /// Releases the slot; none for a copy.
    slots: Option<Arc<Slots>>,
    /// The ring's payload, or the copy.
    memory: Region,
    /// Offset of the batch's block.
    start: u64,
    /// Boxed like the layout, so that a batch is cheap to move.
    descriptor: Box<Descriptor>,
    layout: Box<BatchLayout>,
    /// The extra fields of its rows.
    fields: Option<Box<RowFields>>,
}

/// The extra fields of a batch's rows, and where they lie from the descriptor's place on.
#[derive(Debug)]
struct RowFields {
    kinds: Fields,
    columns: FieldColumns,
}

/// A column of a batch: `count` contiguous values. The pointer is valid as long as the batch lives,
/// and aligned to 64 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Column<T> {
    /// The first value.
    pub ptr: *mut T,
    /// Number of values.
    pub count: usize,
}

impl Batch {
    /// A descriptor's batch, in the ring if it may stay there. `Consumer::poll` has checked the
    /// descriptor.
    pub(crate) fn new(slots: &Arc<Slots>, descriptor: Descriptor) -> Result<Self, ClientError> {
        // Read once: it is writable memory.
        let (at, len) = descriptor.view_table().unwrap_or_default();
        let mut table = vec![0; len];
        slots.payload.read(descriptor.offset.saturating_add(at), &mut table)?;
        let layout = Box::new(descriptor.batch_layout(&table)?);
        let columns = descriptor.field_columns(&slots.fields.widths(layout.views()))?;
        let fields = columns.map(|columns| Box::new(RowFields { kinds: slots.fields.clone(), columns }));
        let descriptor = Box::new(descriptor);
        let session = slots.session;
        if lock(&slots.held).hold(&descriptor) {
            let (memory, start) = (slots.payload.clone(), descriptor.offset);
            let slots = Some(Arc::clone(slots));
            return Ok(Self { session, slots, memory, start, descriptor, layout, fields });
        }
        let copy = slots.payload.copy_out(descriptor.offset, descriptor.len);
        slots.release(&descriptor);
        let memory = copy?.ok_or(ClientError::System { what: "copying a batch", source: Errno::NOMEM })?;
        Ok(Self { session, slots: None, memory, start: 0, descriptor, layout, fields })
    }

    /// Whether it is a copy, without a slot.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.slots.is_none()
    }

    /// Which batch it is, for [`Session::report`](crate::Session::report). It may outlive the
    /// batch.
    #[must_use]
    pub fn id(&self) -> BatchId {
        let Descriptor { generation, epoch, batch, records, .. } = *self.descriptor;
        BatchId { session: self.session, generation, epoch, batch, rows: records }
    }

    /// The daemon's description of the batch: epoch, number, counts, image size and times.
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

    /// Sample and flags of each row.
    ///
    /// # Errors
    /// The daemon has written an id that no sample can have.
    pub(crate) fn redo_rows(&self) -> Result<Vec<RedoRow>, ClientError> {
        let count = self.records();
        let (mut ids, mut flags) = (vec![0; count * 8], vec![0; count * 4]);
        self.memory.read(self.start.saturating_add(self.layout.ids), &mut ids)?;
        self.memory.read(self.start.saturating_add(self.layout.flags), &mut flags)?;
        let rows = ids.as_chunks().0.iter().zip(flags.as_chunks().0);
        let row = |(id, flags): (&[u8; 8], &[u8; 4])| {
            let id = i64::from_le_bytes(*id);
            let sample = u32::try_from(id).map(SampleId);
            let sample = sample.map_err(|_| FormatError::new("batch", 0, id, "the id of a sample"))?;
            Ok(RedoRow { sample, flags: u32::from_le_bytes(*flags) })
        };
        rows.map(row).collect()
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

    /// Shapes of the views of each image; none of records, and of images of their own sizes.
    #[must_use]
    pub fn views(&self) -> &[ViewShape] {
        self.layout.views()
    }

    /// The bytes of the images of a view, as [`Layout`](crate::Layout) says.
    #[must_use]
    pub fn images(&self, view: usize) -> Option<Column<u8>> {
        let (at, shape) = (self.layout.images(view)?, self.views().get(view)?);
        // The layout has checked that the block has room for `capacity` rows of it.
        Some(Column { ptr: self.address(at), count: self.records() * to_usize(shape.bytes()) })
    }

    /// Left, top, width and height of the part of the source that each image of a view shows.
    #[must_use]
    pub fn crops(&self, view: usize) -> Option<Column<[f32; 4]>> {
        self.layout.crops(view).map(|at| self.rows(at))
    }

    /// How each image of a view is mirrored: [`MIRRORED`](crate::MIRRORED) and
    /// [`UPSIDE_DOWN`](crate::UPSIDE_DOWN), added, or 0.
    #[must_use]
    pub fn flipped(&self, view: usize) -> Option<Column<u8>> {
        self.layout.flipped(view).map(|at| self.rows(at))
    }

    /// Offset of each record or image in [`Batch::data`]; `None` where images are of one size.
    /// Check them against the data's length.
    #[must_use]
    pub fn offsets(&self) -> Option<Column<u64>> {
        self.layout.offsets().map(|at| self.rows(at))
    }

    /// Length of each record; raw batches only.
    #[must_use]
    pub fn lens(&self) -> Option<Column<u64>> {
        self.layout.lens().map(|at| self.rows(at))
    }

    /// Rows of pixels of each image; only where images have their own sizes.
    #[must_use]
    pub fn heights(&self) -> Option<Column<u32>> {
        self.layout.heights().map(|at| self.rows(at))
    }

    /// Columns of pixels of each image; only where images have their own sizes.
    #[must_use]
    pub fn widths(&self) -> Option<Column<u32>> {
        self.layout.widths().map(|at| self.rows(at))
    }

    /// The records' bytes one after another, or the images as [`Layout`](crate::Layout) says.
    #[must_use]
    pub fn data(&self) -> Column<u8> {
        Column { ptr: self.address(self.layout.data), count: to_usize(self.layout.data_len) }
    }

    /// A copy of the record in one row of a raw batch; `None` for a missing row and for decoded
    /// batches.
    ///
    /// # Errors
    /// The row's offset and length point outside the batch's data.
    pub fn record(&self, row: usize) -> Result<Option<Vec<u8>>, FormatError> {
        let Some((at, len)) = self.locate(row)? else { return Ok(None) };
        // The length fits into memory, as the record is in the block.
        let mut bytes = vec![0; to_usize(len)];
        self.memory.read(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The record in one row of a raw batch, in place; `None` as for [`Batch::record`].
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

    /// Names and kinds of the extra fields of its rows.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &FieldKind)> {
        self.fields.iter().flat_map(|fields| fields.kinds.iter())
    }

    /// Where an extra field lies. `view` is 0 for one that does not follow the image.
    fn field_column(&self, field: usize, view: usize) -> Option<FieldColumn> {
        let RowFields { kinds, columns } = self.fields.as_deref()?;
        columns.columns.get(kinds.column(field, view, self.views().len())?).copied()
    }

    /// The extra field at this position of [`Batch::fields`], of all rows, if it has as many bytes
    /// in each. One that follows the image has each of its views, any other the view 0.
    #[must_use]
    pub fn fixed_field(&self, field: usize, view: usize) -> Option<Column<u8>> {
        let FieldColumn::Fixed { at, bytes } = self.field_column(field, view)? else { return None };
        Some(Column {
            ptr: self.address(self.descriptor.fields + at),
            count: self.records() * bytes as usize,
        })
    }

    /// The extra field at this position of [`Batch::fields`], of one row, if its bytes vary; `None`
    /// where the sample has no such field, for others, and for a missing row. Views as for
    /// [`Batch::fixed_field`].
    ///
    /// # Errors
    /// The row's offset and length point outside the batch's data.
    pub fn varying_field(
        &self,
        field: usize,
        view: usize,
        row: usize,
    ) -> Result<Option<Column<u8>>, FormatError> {
        let Some(fields) = self.fields.as_ref().filter(|_| row < self.records()) else { return Ok(None) };
        let Some(FieldColumn::Varying { offsets, lens }) = self.field_column(field, view) else {
            return Ok(None);
        };
        let start = self.descriptor.fields;
        let (offset, len) = (self.word(start + offsets, row)?, self.word(start + lens, row)?);
        if len == NO_FIELD {
            return Ok(None);
        }
        // Columns are writable memory: no value there may lead outside the data.
        if offset.checked_add(len).is_none_or(|end| end > fields.columns.data_len) {
            return Err(FormatError::new(
                "field of a row",
                offset,
                format_args!("{len} bytes"),
                format_args!("a range within {} bytes", fields.columns.data_len),
            ));
        }
        let ptr = self.address(start + fields.columns.data + offset);
        Ok(Some(Column { ptr, count: to_usize(len) }))
    }

    /// A copy of bytes of this batch's memory.
    ///
    /// # Errors
    /// They are not in it.
    pub fn copy(&self, column: Column<u8>) -> Result<Vec<u8>, FormatError> {
        let mut bytes = vec![0; column.count];
        let at = column.ptr.addr().wrapping_sub(self.memory.as_ptr().addr());
        self.memory.read(at as u64, &mut bytes)?;
        Ok(bytes)
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
        // Columns are writable memory: no value there may lead outside the data.
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

    /// Address of an offset in the batch's block. `Descriptor::check` has checked the block, the
    /// layout has checked the offset, and a copy is as long.
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

/// A length or offset in memory, which always fits into a `usize`.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Tensors pass batches between threads.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>(_: PhantomData<T>) {}
    is_send_and_sync(PhantomData::<Batch>);
};

/// Number of a session in this process. No other one ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionNumber(u64);

impl SessionNumber {
    /// The number of a new session.
    pub(crate) fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A batch that a session has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId {
    pub(crate) session: SessionNumber,
    /// Start of an epoch in which it was delivered.
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    pub(crate) batch: u32,
    pub(crate) rows: u32,
}
