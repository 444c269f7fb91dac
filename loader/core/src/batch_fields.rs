//! Room for the extra fields of a batch's rows.

use std::sync::Arc;

use shade_formats::ring::{COLUMN_ALIGN_BYTES, FieldColumns};
use shade_formats::{FormatError, ViewShape};
use shade_job::Fields;

/// Where the fields of a batch's rows go.
#[derive(Clone, Debug)]
pub struct BatchFields {
    /// The fields of the job.
    pub wanted: Arc<Fields>,
    /// Byte in the payload segment at which the fields begin.
    pub at: u64,
    /// Where each of them lies from there.
    pub columns: FieldColumns,
    /// The room of each row for fields that vary: row N has the bytes from `rooms[N]` to
    /// `rooms[N + 1]` of the columns' data.
    pub rooms: Vec<u64>,
}

impl BatchFields {
    /// Fields of rows with these views and with this much room each for those that vary, at the
    /// beginning of the payload.
    ///
    /// # Errors
    /// As for [`FieldColumns::new`].
    pub fn new(
        wanted: &Arc<Fields>,
        views: &[ViewShape],
        rooms: impl Iterator<Item = u64>,
    ) -> Result<Self, FormatError> {
        let mut end = 0_u64;
        let ends = rooms.map(|room| {
            end = end.saturating_add(room.next_multiple_of(COLUMN_ALIGN_BYTES));
            end
        });
        let rooms: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let capacity = u32::try_from(rooms.len() - 1).unwrap_or(u32::MAX).max(1);
        let columns = FieldColumns::new(&wanted.widths(views), capacity, end)?;
        Ok(Self { wanted: Arc::clone(wanted), at: 0, columns, rooms })
    }

    /// Room of a row for fields that vary, in bytes.
    pub(crate) fn room(&self, position: u32) -> u64 {
        let at = position as usize;
        self.rooms[at + 1] - self.rooms[at]
    }
}
