//! Writes the extra fields of a row beside it, and checks what is stored of a sample as a whole.

use shade_core::{BatchFields, Stored, WholeSamples};
use shade_dataset::Mismatch;
use shade_formats::SampleId;
use shade_formats::checksum::crc32c_append;
use shade_formats::ring::{COLUMN_ALIGN_BYTES, FieldColumn, NO_FIELD};
use shade_job::FieldKind;
use shade_reads::blocks::{Arena, Lent};
use shade_shm::Region;

use super::fault::FieldFault;
use super::{FillFault, LayoutFault, gather};

/// A record with its fields, as read.
pub(super) struct Piece<'a> {
    pub(super) arena: &'a Arena,
    pub(super) samples: &'a WholeSamples,
    pub(super) sample: SampleId,
    pub(super) record: &'a Lent,
    pub(super) stored: Stored,
}

impl<'a> Piece<'a> {
    /// What is stored of `sample`.
    pub(super) fn new(
        arena: &'a Arena,
        samples: &'a WholeSamples,
        sample: SampleId,
        record: &'a Lent,
    ) -> Result<Self, FillFault> {
        let stored = samples.stored(sample).ok_or(LayoutFault::NoRecord)?;
        Ok(Self { arena, samples, sample, record, stored })
    }

    /// The record alone, in one slice, checked.
    pub(super) fn record<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], FillFault> {
        self.check(buffer)?;
        gather::part(self.arena, self.record, self.stored.record_range(), buffer)
    }

    /// Compares checksums, unless that was done: that of the whole piece where it is known, else
    /// those of its parts. A record whose checksum nobody knows is as it is.
    fn check(&self, buffer: &mut Vec<u8>) -> Result<(), FillFault> {
        if self.record.is_checked() {
            return Ok(());
        }
        match self.stored.crc32c() {
            Some(whole) => {
                let slices = self.arena.slices_of(self.record, self.stored.bytes())?;
                Mismatch::compare(slices.fold(0, crc32c_append), Some(whole))?;
            }
            None => {
                let range = self.stored.record_range();
                let record = gather::part(self.arena, self.record, range, buffer)?;
                Mismatch::compare(crc32c_append(0, record), self.stored.record.crc32c)?;
                self.fields(buffer, |_, _| Ok(()))?;
            }
        }
        self.record.record().set_checked();
        Ok(())
    }

    /// Passes each field with its name to `each`.
    fn fields(
        &self,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&str, &[u8]) -> Result<(), FillFault>,
    ) -> Result<(), FillFault> {
        let Some(range) = self.stored.fields_range() else {
            return match self.samples.index().fields(self.sample) {
                None => Ok(()),
                Some(_) => Err(FieldFault::Damaged("they lie too far from its record".to_owned()).into()),
            };
        };
        let span = gather::part(self.arena, self.record, range, buffer)?;
        let fields = self.samples.index().fields_in(self.sample, span);
        let fields = fields.map_err(|error| FieldFault::Damaged(error.to_string()))?;
        fields.iter().try_for_each(|field| each(field.name, field.bytes))
    }

    /// Writes the wanted fields of row `position` to the payload, checked.
    pub(super) fn write(
        &self,
        wanted: &BatchFields,
        position: u32,
        payload: &Region,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FillFault> {
        self.check(buffer)?;
        let mut row = Row::new(wanted, position, payload);
        self.fields(buffer, |name, bytes| row.write(name, bytes))?;
        row.end()
    }
}

/// The fields of a row that is being written.
struct Row<'a> {
    wanted: &'a BatchFields,
    position: u64,
    payload: &'a Region,
    /// Whether each wanted field has come.
    came: Vec<bool>,
    /// Room that is left for fields that vary, from the start of the data.
    room: std::ops::Range<u64>,
}

impl<'a> Row<'a> {
    fn new(wanted: &'a BatchFields, position: u32, payload: &'a Region) -> Self {
        let came = vec![false; wanted.columns.columns.len()];
        let at = position as usize;
        let [start, end] = [at, at + 1].map(|at| wanted.rooms.get(at).copied().unwrap_or(0));
        Self { wanted, position: position.into(), payload, came, room: start..end }
    }

    /// Writes a field, if it is wanted.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), FillFault> {
        let Some((at, kind)) = self.wanted.wanted.find(name) else { return Ok(()) };
        let bytes = kind.content(name, bytes).map_err(|got| {
            let (name, kind) = (name.to_owned(), kind.clone());
            FieldFault::Kind { name, kind, got }
        })?;
        let place = match self.wanted.columns.columns.get(at) {
            Some(&FieldColumn::Fixed { at, bytes }) => at + self.position * u64::from(bytes),
            Some(FieldColumn::Varying { .. }) => {
                let len = bytes.len() as u64;
                let got = self.room.end - self.room.start;
                if len > got {
                    return Err(LayoutFault::Room { got, expected: len }.into());
                }
                let start = self.room.start;
                // Each begins where numbers of any type may.
                self.room.start = (start + len).next_multiple_of(COLUMN_ALIGN_BYTES).min(self.room.end);
                self.set(at, start, len)?;
                self.wanted.columns.data + start
            }
            None => return Err(LayoutFault::Room { got: 0, expected: bytes.len() as u64 }.into()),
        };
        self.payload.write(self.wanted.at.saturating_add(place), bytes)?;
        if let Some(came) = self.came.get_mut(at) {
            *came = true;
        }
        Ok(())
    }

    /// Says of the wanted fields that have not come that they are missing.
    fn end(self) -> Result<(), FillFault> {
        for (at, (name, kind)) in self.wanted.wanted.iter().enumerate() {
            if self.came.get(at) == Some(&true) {
                continue;
            }
            if let FieldKind::Fixed { .. } = kind {
                let (name, kind) = (name.to_owned(), kind.clone());
                return Err(FieldFault::Missing { name, kind }.into());
            }
            self.set(at, 0, NO_FIELD)?;
        }
        Ok(())
    }

    /// Sets offset and length of a field that varies.
    fn set(&self, field: usize, offset: u64, len: u64) -> Result<(), FillFault> {
        let Some(&FieldColumn::Varying { offsets, lens }) = self.wanted.columns.columns.get(field) else {
            return Ok(());
        };
        for (column, value) in [(offsets, offset), (lens, len)] {
            let place = self.wanted.at.saturating_add(column + 8 * self.position);
            self.payload.write(place, &value.to_le_bytes())?;
        }
        Ok(())
    }
}
