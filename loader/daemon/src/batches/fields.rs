//! Writes the extra fields of a row beside it, and checks what is stored of a sample as a whole.

use shade_core::{BatchFields, Stored, WholeSamples};
use shade_dataset::Mismatch;
use shade_formats::checksum::crc32c_append;
use shade_formats::ring::{COLUMN_ALIGN_BYTES, FieldColumn, NO_FIELD};
use shade_formats::{SampleId, Size};
use shade_images::{ImageFault, Levels, MaskDecoder, MaskFile, Shown, shrink};
use shade_job::{BoxFormat, FieldKind};
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
                self.check_members(buffer)?;
                self.fields(buffer, |_, _| Ok(()))?;
            }
        }
        self.record.record().set_checked();
        Ok(())
    }

    /// Compares the checksums of fields that have their own: of tars of others.
    fn check_members(&self, buffer: &mut Vec<u8>) -> Result<(), FillFault> {
        let (Some(range), Some(fields)) = (self.stored.fields_range(), self.stored.fields) else {
            return Ok(());
        };
        let span = gather::part(self.arena, self.record, range, buffer)?;
        for place in self.samples.field_places(self.sample) {
            let from = place.offset.checked_sub(fields.offset).and_then(|from| usize::try_from(from).ok());
            let bytes = from.and_then(|from| span.get(from..)?.get(..place.bytes as usize));
            // One that is not there is told with its name.
            let Some(bytes) = bytes else { return Ok(()) };
            Mismatch::compare(crc32c_append(0, bytes), place.crc32c)?;
        }
        Ok(())
    }

    /// Passes each field with its name to `each`.
    fn fields(
        &self,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&str, &[u8]) -> Result<(), FillFault>,
    ) -> Result<(), FillFault> {
        let Some(range) = self.stored.fields_range() else {
            return match self.samples.fields_span(self.sample) {
                None => Ok(()),
                Some(_) => Err(FieldFault::Damaged("they lie too far from its record".to_owned()).into()),
            };
        };
        let span = gather::part(self.arena, self.record, range, buffer)?;
        let fields = self.samples.fields_in(self.sample, span);
        let fields = fields.map_err(|error| FieldFault::Damaged(error.to_string()))?;
        fields.iter().try_for_each(|field| each(field.name, field.bytes))
    }

    /// Writes the wanted fields of row `position` to the payload, checked. What follows the image
    /// follows each view that is `shown`.
    pub(super) fn write(
        &self,
        wanted: &BatchFields,
        position: u32,
        shown: &[Shown],
        payload: &Region,
        buffers: &mut FieldBuffers,
    ) -> Result<(), FillFault> {
        let FieldBuffers { stored, masks, row } = buffers;
        self.check(stored)?;
        let mut fields = Row::new(wanted, position, shown, payload);
        self.fields(stored, |name, bytes| fields.write(name, bytes, masks, row))?;
        // What belongs to boxes may lie before them.
        if wanted.wanted.iter().any(|(_, kind)| kind.beside().is_some()) {
            self.fields(stored, |name, bytes| fields.write_beside(name, bytes, row))?;
        }
        fields.end()
    }
}

/// A worker's buffers for fields.
#[derive(Default)]
pub(super) struct FieldBuffers {
    /// Stored bytes, where they are scattered.
    stored: Vec<u8>,
    masks: MaskDecoder,
    /// What a view has of a field.
    row: Vec<u8>,
}

impl FieldBuffers {
    /// Frees memory that one large sample needed.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.stored);
        shrink(&mut self.row);
        self.masks.shrink();
    }
}

/// The fields of a row that is being written.
struct Row<'a> {
    wanted: &'a BatchFields,
    position: u64,
    shown: &'a [Shown],
    payload: &'a Region,
    /// Whether each wanted field has come.
    came: Vec<bool>,
    /// By field and view: which of its boxes are left.
    left: Vec<Vec<Vec<bool>>>,
    /// Room that is left for fields that vary, from the start of the data.
    room: std::ops::Range<u64>,
}

impl<'a> Row<'a> {
    fn new(wanted: &'a BatchFields, position: u32, shown: &'a [Shown], payload: &'a Region) -> Self {
        let fields = wanted.wanted.iter().count();
        let (came, left) = (vec![false; fields], vec![Vec::new(); fields]);
        let at = position as usize;
        let [start, end] = [at, at + 1].map(|at| wanted.rooms.get(at).copied().unwrap_or(0));
        Self { wanted, position: position.into(), shown, payload, came, left, room: start..end }
    }

    /// Writes a field, if it is wanted and does not belong to boxes. `buffer` is for its bytes.
    fn write(
        &mut self,
        name: &str,
        bytes: &[u8],
        masks: &mut MaskDecoder,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FillFault> {
        let found = self.wanted.wanted.find(name).filter(|(_, kind)| kind.beside().is_none());
        let Some((field, kind)) = found else { return Ok(()) };
        let content = content(kind, name, bytes)?;
        match *kind {
            FieldKind::Mask { fill } => {
                let no_mask = |fault: ImageFault| unlike(kind, name, fault.to_string());
                let file = MaskFile::open(content).map_err(no_mask)?;
                // First: a small file may have many pixels.
                if let Some(shown) = self.shown.iter().find(|shown| shown.source() != file.size()) {
                    return Err(unlike(kind, name, other_size(file.size(), shown.source())));
                }
                let mask = masks.decode(file).map_err(no_mask)?;
                self.write_mask(field, &mask, fill, buffer)?;
            }
            FieldKind::Boxes(format) => self.write_boxes(field, content, format, buffer)?,
            FieldKind::Keypoints { .. } => {
                for (view, shown) in self.shown.iter().enumerate() {
                    buffer.clear();
                    buffer.extend_from_slice(content);
                    move_points(shown, buffer);
                    self.put(field, view, buffer)?;
                }
            }
            _ => self.put(field, 0, content)?,
        }
        self.has_come(field);
        Ok(())
    }

    /// Writes what each view shows of a mask of the image's size.
    fn write_mask(
        &mut self,
        field: usize,
        mask: &Levels<'_>,
        fill: u8,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FillFault> {
        for (view, shown) in self.shown.iter().enumerate() {
            shown.mask(mask, fill, buffer);
            self.put(field, view, buffer)?;
        }
        Ok(())
    }

    /// Writes the boxes that each view shows.
    fn write_boxes(
        &mut self,
        field: usize,
        bytes: &[u8],
        format: BoxFormat,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FillFault> {
        let (boxes, _) = bytes.as_chunks::<16>();
        for (view, shown) in self.shown.iter().enumerate() {
            let moved = boxes.iter().map(|found| {
                let mut numbers = found.as_chunks::<4>().0.iter().map(|&number| f32::from_le_bytes(number));
                // There are four of them.
                shown.moved(format, [(); 4].map(|()| numbers.next().unwrap_or(f32::NAN)))
            });
            let moved: Vec<Option<[f32; 4]>> = moved.collect();
            buffer.clear();
            let numbers = moved.iter().flatten().flatten();
            buffer.extend(numbers.flat_map(|number| number.to_le_bytes()));
            self.put(field, view, buffer)?;
            if let Some(left) = self.left.get_mut(field) {
                left.push(moved.iter().map(Option::is_some).collect());
            }
        }
        Ok(())
    }

    /// Writes a field, if it is wanted and belongs to boxes, all of which have been written.
    fn write_beside(&mut self, name: &str, bytes: &[u8], buffer: &mut Vec<u8>) -> Result<(), FillFault> {
        let Some((field, kind)) = self.wanted.wanted.find(name) else { return Ok(()) };
        let Some((boxes, row_bytes)) = kind.beside().zip(kind.row_bytes()) else { return Ok(()) };
        let content = content(kind, name, bytes)?;
        let rows = content.len() / row_bytes;
        let of_boxes = self.wanted.wanted.find(boxes).and_then(|(boxes, _)| self.left.get(boxes));
        let of_boxes = of_boxes.cloned().unwrap_or_default();
        for (view, shown) in self.shown.iter().enumerate() {
            let left = of_boxes.get(view).map_or(&[][..], Vec::as_slice);
            if left.len() != rows {
                let got = format!("of {rows} rows, where {boxes:?} has {}", left.len());
                return Err(unlike(kind, name, got));
            }
            buffer.clear();
            let kept = content.chunks_exact(row_bytes).zip(left).filter(|(_, is_left)| **is_left);
            kept.for_each(|(row, _)| buffer.extend_from_slice(row));
            if let FieldKind::Keypoints { .. } = kind {
                move_points(shown, buffer);
            }
            self.put(field, view, buffer)?;
        }
        self.has_come(field);
        Ok(())
    }

    fn has_come(&mut self, field: usize) {
        if let Some(came) = self.came.get_mut(field) {
            *came = true;
        }
    }

    /// Where a field lies in a view.
    fn column(&self, field: usize, view: usize) -> Option<FieldColumn> {
        let column = self.wanted.wanted.column(field, view, self.shown.len())?;
        self.wanted.columns.columns.get(column).copied()
    }

    /// Writes what a view has of a field; 0 is the view of those that do not follow the image.
    fn put(&mut self, field: usize, view: usize, bytes: &[u8]) -> Result<(), FillFault> {
        let place = match self.column(field, view) {
            Some(FieldColumn::Fixed { at, bytes }) => at + self.position * u64::from(bytes),
            Some(FieldColumn::Varying { .. }) => {
                let len = bytes.len() as u64;
                let got = self.room.end - self.room.start;
                if len > got {
                    return Err(LayoutFault::Room { got, expected: len }.into());
                }
                let start = self.room.start;
                // Each begins where numbers of any type may.
                self.room.start = (start + len).next_multiple_of(COLUMN_ALIGN_BYTES).min(self.room.end);
                self.set(field, view, start, len)?;
                self.wanted.columns.data + start
            }
            None => return Err(LayoutFault::Room { got: 0, expected: bytes.len() as u64 }.into()),
        };
        Ok(self.payload.write(self.wanted.at.saturating_add(place), bytes)?)
    }

    /// Says of the wanted fields that have not come that they are missing.
    fn end(self) -> Result<(), FillFault> {
        for (field, (name, kind)) in self.wanted.wanted.iter().enumerate() {
            if self.came.get(field) == Some(&true) {
                continue;
            }
            if let FieldKind::Fixed { .. } | FieldKind::Mask { .. } = kind {
                let (name, kind) = (name.to_owned(), kind.clone());
                return Err(FieldFault::Missing { name, kind }.into());
            }
            if let Some(boxes) = kind.beside() {
                let of_boxes = self.wanted.wanted.find(boxes).and_then(|(boxes, _)| self.left.get(boxes));
                let rows = of_boxes.and_then(|views| views.first()).map_or(0, Vec::len);
                if rows > 0 {
                    return Err(unlike(kind, name, format!("of 0 rows, where {boxes:?} has {rows}")));
                }
            }
            let views = if kind.follows() { self.shown.len() } else { 1 };
            (0..views).try_for_each(|view| self.set(field, view, 0, NO_FIELD))?;
        }
        Ok(())
    }

    /// Sets offset and length of a field that varies.
    fn set(&self, field: usize, view: usize, offset: u64, len: u64) -> Result<(), FillFault> {
        let Some(FieldColumn::Varying { offsets, lens }) = self.column(field, view) else {
            return Ok(());
        };
        for (column, value) in [(offsets, offset), (lens, len)] {
            let place = self.wanted.at.saturating_add(column + 8 * self.position);
            self.payload.write(place, &value.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Moves points as a view shows them.
fn move_points(shown: &Shown, points: &mut [u8]) {
    for point in points.as_chunks_mut::<8>().0 {
        let [a, b, c, d, e, f, g, h] = *point;
        let [x, y] = shown.point([f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h])]);
        point
            .iter_mut()
            .zip([x, y].iter().flat_map(|number| number.to_le_bytes()))
            .for_each(|(to, byte)| *to = byte);
    }
}

/// What a sample has of a field with these bytes.
fn content<'b>(kind: &FieldKind, name: &str, bytes: &'b [u8]) -> Result<&'b [u8], FillFault> {
    kind.content(name, bytes).map_err(|got| unlike(kind, name, got))
}

fn unlike(kind: &FieldKind, name: &str, got: String) -> FillFault {
    FieldFault::Kind { name: name.to_owned(), kind: kind.clone(), got }.into()
}

/// What a mask is that has not its image's size.
fn other_size(mask: Size, image: Size) -> String {
    format!("{} x {} pixels, where its image is {} x {}", mask.width, mask.height, image.width, image.height)
}
