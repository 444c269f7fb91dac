//! How the extra fields of a batch's samples lie in its block: behind all else of it.

use super::batch_layout::aligned;
use crate::FormatError;
use crate::limits::{BATCH_SAMPLES_MAX, FIELD_COLUMNS_MAX, PAYLOAD_BYTES_MAX};

/// What a row's length says in [`FieldColumn::Varying`] where the sample has no such field.
pub const NO_FIELD: u64 = u64::MAX;

/// Bytes that a field has in each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldWidth {
    /// The same in all: the rows are one tensor.
    Fixed(u32),
    /// Any number.
    Varying,
}

/// Where a field of all rows lies, in bytes from the start of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldColumn {
    /// `u8[capacity][bytes]` from `at` on.
    Fixed {
        /// The first row's bytes.
        at: u64,
        /// Bytes of a row.
        bytes: u32,
    },
    /// Rows of their own lengths, somewhere in the data.
    Varying {
        /// The first byte of each row, from the start of the data: `u64[capacity]`.
        offsets: u64,
        /// Bytes of each row, `u64[capacity]`; [`NO_FIELD`] where the sample has no such field.
        lens: u64,
    },
}

/// The part of a batch's block that has its fields: their columns, then the bytes of those that
/// vary. Both ends compute it in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldColumns {
    /// The fields in the order of the job's document, each with a column for each view if it
    /// follows the image.
    pub columns: Vec<FieldColumn>,
    /// Rows that every column has room for.
    pub capacity: u32,
    /// Start of the data.
    pub data: u64,
    /// Length of the data.
    pub data_len: u64,
    /// Length of the whole part.
    pub total: u64,
}

impl FieldColumns {
    /// Lays out fields of these widths for up to `capacity` rows, with `data_len` bytes of those
    /// that vary.
    ///
    /// # Errors
    /// When there are more than [`FIELD_COLUMNS_MAX`] columns, `capacity` is 0 or over
    /// [`BATCH_SAMPLES_MAX`], or the part would be longer than the largest payload.
    pub fn new(widths: &[FieldWidth], capacity: u32, data_len: u64) -> Result<Self, FormatError> {
        if widths.len() > FIELD_COLUMNS_MAX {
            let expected = format_args!("at most {FIELD_COLUMNS_MAX}");
            return Err(FormatError::new("columns of fields", 0, widths.len(), expected));
        }
        if capacity == 0 || capacity > BATCH_SAMPLES_MAX {
            let expected = format_args!("1 to {BATCH_SAMPLES_MAX} rows");
            return Err(FormatError::new("batch capacity", 0, capacity, expected));
        }
        // Below 2^55: 256 columns of 2^15 rows of less than 2^32 bytes.
        let (rows, mut end) = (u64::from(capacity), 0);
        let mut column = |width: u64| {
            let start = end;
            end = aligned(start + rows * width);
            start
        };
        let columns = widths.iter().map(|width| match *width {
            FieldWidth::Fixed(bytes) => FieldColumn::Fixed { at: column(bytes.into()), bytes },
            FieldWidth::Varying => FieldColumn::Varying { offsets: column(8), lens: column(8) },
        });
        let columns: Vec<_> = columns.collect();
        match end.checked_add(data_len) {
            Some(total) if total <= PAYLOAD_BYTES_MAX => {
                Ok(Self { columns, capacity, data: end, data_len, total })
            }
            _ => {
                let expected = format_args!("at most {PAYLOAD_BYTES_MAX} bytes");
                Err(FormatError::new("fields of a batch", end, data_len, expected))
            }
        }
    }

    /// The layout of a part of `total` bytes, for its reader.
    ///
    /// # Errors
    /// As for [`FieldColumns::new`], and when `total` is shorter than the columns.
    pub fn of_part(widths: &[FieldWidth], capacity: u32, total: u64) -> Result<Self, FormatError> {
        let columns = Self::new(widths, capacity, 0)?;
        match total.checked_sub(columns.data) {
            Some(data_len) => Self::new(widths, capacity, data_len),
            None => {
                let expected = format_args!("at least {} bytes, the columns", columns.data);
                Err(FormatError::new("fields of a batch", 0, total, expected))
            }
        }
    }

    /// What workers write by position, in bytes from the start of the fields: the first row's
    /// place, and the bytes of a row.
    pub fn by_position(&self) -> impl Iterator<Item = (u64, u64)> {
        self.columns
            .iter()
            .flat_map(|column| match *column {
                FieldColumn::Fixed { at, bytes } => [Some((at, bytes.into())), None],
                FieldColumn::Varying { offsets, lens } => [Some((offsets, 8)), Some((lens, 8))],
            })
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn width() -> impl Strategy<Value = FieldWidth> {
        prop_oneof![(1..5000_u32).prop_map(FieldWidth::Fixed), Just(FieldWidth::Varying)]
    }

    proptest! {
        #[test]
        fn columns_are_aligned_disjoint_and_in_order(
            widths in prop::collection::vec(width(), 0..=FIELD_COLUMNS_MAX),
            capacity in 1..=BATCH_SAMPLES_MAX, data_len in 0..1_u64 << 30,
        ) {
            let fields = FieldColumns::new(&widths, capacity, data_len).unwrap();
            let mut end = 0;
            for (at, bytes) in fields.by_position() {
                prop_assert!(at >= end && at.is_multiple_of(64), "{:?}", fields);
                end = at + bytes * u64::from(capacity);
            }
            prop_assert!(fields.data >= end && fields.data + data_len == fields.total);
            prop_assert_eq!(FieldColumns::of_part(&widths, capacity, fields.total).unwrap(), fields.clone());
            if fields.data > 0 {
                prop_assert!(FieldColumns::of_part(&widths, capacity, fields.data - 1).is_err());
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(FieldColumns::new(&[FieldWidth::Varying; FIELD_COLUMNS_MAX + 1], 1, 0).is_err());
        assert!(FieldColumns::new(&[FieldWidth::Varying], 0, 0).is_err());
        assert!(FieldColumns::new(&[FieldWidth::Varying], BATCH_SAMPLES_MAX + 1, 0).is_err());
        assert!(FieldColumns::new(&[FieldWidth::Varying], 1, u64::MAX).is_err());
        assert!(FieldColumns::new(&[FieldWidth::Fixed(u32::MAX)], BATCH_SAMPLES_MAX, 0).is_err());
    }
}
