//! How one batch lies in the payload: columns that a tensor can view in place, then the samples'
//! bytes.

use crate::FormatError;
use crate::limits::{BATCH_SAMPLES_MAX, PAYLOAD_BYTES_MAX};

/// Bit of a row's `flags`: another sample stands in for one that could not be read.
pub const FLAG_SUBSTITUTED: u32 = 1 << 0;
/// Bit of a row's `flags`: the row only fills up the epoch's last batch; do not count it.
pub const FLAG_PADDING: u32 = 1 << 1;

/// Every column starts at a multiple of this: the widest vector register, and the line size of most
/// CPUs.
pub const COLUMN_ALIGN_BYTES: u64 = 64;

/// What the data of a batch is. The numbers are those of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Layout {
    /// Each sample's record bytes, at its row's `offsets` and `lens`.
    #[default]
    Raw = 1,
    /// Images of one size, `u8[records][3][height][width]`.
    U8Nchw = 2,
    /// Images of one size, `u8[records][height][width][3]`.
    U8Nhwc = 3,
    /// Images in their own sizes, `u8[3][height][width]` each, at its row's `offsets`, `heights`
    /// and `widths`.
    RaggedChw = 4,
    /// Images in their own sizes, `u8[height][width][3]` each.
    RaggedHwc = 5,
}

impl Layout {
    pub(super) const ALL: [Self; 5] =
        [Self::Raw, Self::U8Nchw, Self::U8Nhwc, Self::RaggedChw, Self::RaggedHwc];

    /// Whether the data are images in their own sizes.
    #[must_use]
    pub fn is_ragged(self) -> bool {
        matches!(self, Self::RaggedChw | Self::RaggedHwc)
    }

    pub(super) fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| *layout as u16 == code)
    }
}

/// Offsets, in bytes from the start of the batch's block, of its columns and data. Both ends
/// compute it in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// What the data is.
    pub layout: Layout,
    /// Rows that every column has room for.
    pub capacity: u32,
    /// Sample ids, `i64`.
    pub ids: u64,
    /// Class labels, `i64`.
    pub labels: u64,
    /// Loss weights, `f32`.
    pub weights: u64,
    /// [`FLAG_SUBSTITUTED`] and [`FLAG_PADDING`], `u32`.
    pub flags: u64,
    extents: Extents,
    /// The samples' bytes.
    pub data: u64,
    /// Length of the data.
    pub data_len: u64,
    /// Length of the whole block.
    pub total: u64,
}

/// The columns that say where in the data each sample's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extents {
    /// None: all are equally long, one after another.
    Uniform,
    Records {
        offsets: u64,
        lens: u64,
    },
    Images {
        offsets: u64,
        heights: u64,
        widths: u64,
    },
}

impl BatchLayout {
    /// Lays out a batch of up to `capacity` rows with `data_len` bytes of samples.
    ///
    /// # Errors
    /// When `capacity` is 0 or over [`BATCH_SAMPLES_MAX`], or the block would be longer than the
    /// largest payload.
    pub fn new(layout: Layout, capacity: u32, data_len: u64) -> Result<Self, FormatError> {
        if capacity == 0 || capacity > BATCH_SAMPLES_MAX {
            let expected = format_args!("1 to {BATCH_SAMPLES_MAX} rows");
            return Err(FormatError::new("batch capacity", 0, capacity, expected));
        }
        // Below 2^21 with the largest capacity: no sum here can overflow.
        let rows = u64::from(capacity);
        let mut end = 0;
        let mut column = |width: u64| {
            let start = end;
            end = (start + rows * width).next_multiple_of(COLUMN_ALIGN_BYTES);
            start
        };
        let (ids, labels, weights, flags) = (column(8), column(8), column(4), column(4));
        let extents = match layout {
            Layout::U8Nchw | Layout::U8Nhwc => Extents::Uniform,
            Layout::Raw => Extents::Records { offsets: column(8), lens: column(8) },
            Layout::RaggedChw | Layout::RaggedHwc => {
                Extents::Images { offsets: column(8), heights: column(4), widths: column(4) }
            }
        };
        let data = end;
        match data.checked_add(data_len) {
            Some(total) if total <= PAYLOAD_BYTES_MAX => {
                Ok(Self { layout, capacity, ids, labels, weights, flags, extents, data, data_len, total })
            }
            _ => Err(FormatError::new(
                "batch data length",
                data,
                data_len,
                format_args!("at most {} bytes", PAYLOAD_BYTES_MAX - data),
            )),
        }
    }

    /// Where each sample's bytes begin, from the start of the data, `u64`; `None` where images are
    /// of one size.
    #[must_use]
    pub fn offsets(&self) -> Option<u64> {
        match self.extents {
            Extents::Records { offsets, .. } | Extents::Images { offsets, .. } => Some(offsets),
            Extents::Uniform => None,
        }
    }

    /// How many bytes each sample has, `u64`; raw batches only.
    #[must_use]
    pub fn lens(&self) -> Option<u64> {
        match self.extents {
            Extents::Records { lens, .. } => Some(lens),
            Extents::Uniform | Extents::Images { .. } => None,
        }
    }

    /// Rows of pixels of each image, `u32`; images of their own sizes only.
    #[must_use]
    pub fn heights(&self) -> Option<u64> {
        match self.extents {
            Extents::Images { heights, .. } => Some(heights),
            Extents::Uniform | Extents::Records { .. } => None,
        }
    }

    /// Columns of pixels of each image, `u32`; images of their own sizes only.
    #[must_use]
    pub fn widths(&self) -> Option<u64> {
        match self.extents {
            Extents::Images { widths, .. } => Some(widths),
            Extents::Uniform | Extents::Records { .. } => None,
        }
    }

    /// The layout of a block of `total` bytes, for its reader.
    ///
    /// # Errors
    /// The same as for [`BatchLayout::new`], and when `total` has no room for the columns.
    pub fn of_block(layout: Layout, capacity: u32, total: u64) -> Result<Self, FormatError> {
        let empty = Self::new(layout, capacity, 0)?;
        let Some(data_len) = total.checked_sub(empty.data) else {
            let expected = format_args!("at least {} bytes, the columns of {capacity} rows", empty.data);
            return Err(FormatError::new("batch block length", 0, total, expected));
        };
        Self::new(layout, capacity, data_len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn columns_are_aligned_disjoint_and_in_order(
            layout in prop::sample::select(&Layout::ALL[..]), capacity in 1..=BATCH_SAMPLES_MAX, data_len in 0..1_u64 << 39,
        ) {
            let batch = BatchLayout::new(layout, capacity, data_len).unwrap();
            let mut columns = vec![(batch.ids, 8), (batch.labels, 8), (batch.weights, 4), (batch.flags, 4)];
            columns.extend(batch.offsets().map(|at| (at, 8)));
            columns.extend(batch.lens().map(|at| (at, 8)));
            columns.extend(batch.heights().map(|at| (at, 4)));
            columns.extend(batch.widths().map(|at| (at, 4)));
            columns.push((batch.data, 0));
            for pair in columns.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 * u64::from(capacity) <= pair[1].0);
            }
            prop_assert!(columns.iter().all(|(at, _)| at % 64 == 0));
            let raw = layout == Layout::Raw;
            let ragged = layout.is_ragged();
            prop_assert_eq!((batch.offsets().is_some(), batch.lens().is_some()), (raw || ragged, raw));
            prop_assert_eq!((batch.heights().is_some(), batch.widths().is_some()), (ragged, ragged));
            prop_assert_eq!(batch.total, batch.data + data_len);
            prop_assert_eq!(BatchLayout::of_block(layout, capacity, batch.total).unwrap(), batch);
        }
    }

    #[test]
    fn impossible_batches_are_refused() {
        assert!(BatchLayout::new(Layout::Raw, 0, 10).is_err());
        assert!(BatchLayout::new(Layout::Raw, BATCH_SAMPLES_MAX + 1, 10).is_err());
        assert!(BatchLayout::new(Layout::Raw, 1, u64::MAX).is_err());
        assert!(BatchLayout::of_block(Layout::Raw, 1, 64).is_err());
    }
}
