//! How one batch lies in the payload: columns that a tensor can view in place, then the samples'
//! bytes.

use super::view_table::{ENTRY_BYTES, Shapes, views_fault};
use crate::limits::{BATCH_SAMPLES_MAX, PAYLOAD_BYTES_MAX, VIEWS_MAX};
use crate::{FormatError, ViewShape};

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
    /// Images of one size in each view, `[records][channels][height][width]` of the view's
    /// type of values.
    Nchw = 2,
    /// Images of one size in each view, `[records][height][width][channels]`.
    Nhwc = 3,
    /// Images in their own sizes, `u8[3][height][width]` each, at its row's `offsets`, `heights`
    /// and `widths`.
    RaggedChw = 4,
    /// Images in their own sizes, `u8[height][width][3]` each.
    RaggedHwc = 5,
}

impl Layout {
    pub(super) const ALL: [Self; 5] = [Self::Raw, Self::Nchw, Self::Nhwc, Self::RaggedChw, Self::RaggedHwc];

    /// Whether the data are images in their own sizes.
    #[must_use]
    pub fn is_ragged(self) -> bool {
        matches!(self, Self::RaggedChw | Self::RaggedHwc)
    }

    /// Whether the data are images of one size in each view.
    #[must_use]
    pub fn has_views(self) -> bool {
        matches!(self, Self::Nchw | Self::Nhwc)
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
    shapes: Shapes,
    /// The samples' bytes.
    pub data: u64,
    /// Length of the data.
    pub data_len: u64,
    /// Length of the whole block.
    pub total: u64,
}

/// The columns that say what each sample's bytes are, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extents {
    /// All images of a view are equally long, one after another.
    Views {
        /// The views' shapes: see `view_table`.
        table: u64,
        /// The crops of the first view; the other views' follow.
        crops: u64,
        /// The flips of the first view; the other views' follow.
        flipped: u64,
    },
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
    /// Lays out a batch of up to `capacity` records, or images of their own sizes, with `data_len`
    /// bytes of samples.
    ///
    /// # Errors
    /// When the layout has views, `capacity` is 0 or over [`BATCH_SAMPLES_MAX`], or the block would
    /// be longer than the largest payload.
    pub fn new(layout: Layout, capacity: u32, data_len: u64) -> Result<Self, FormatError> {
        Self::columns(layout, capacity, 0)?.with_data(data_len)
    }

    /// Lays out a batch of up to `capacity` rows with an image of each of these views.
    ///
    /// # Errors
    /// When the layout has no views, their number or a shape is impossible, and as for
    /// [`BatchLayout::new`].
    pub fn of_views(layout: Layout, capacity: u32, views: &[ViewShape]) -> Result<Self, FormatError> {
        let shapes = Shapes::new(views)?;
        let columns = Self { shapes, ..Self::columns(layout, capacity, views.len())? };
        // Below 2^51: 16 views of 2^15 images of 3 x 2^28 values of 4 bytes.
        columns.with_data(views.iter().map(|&view| view_bytes(view, capacity)).sum())
    }

    /// The layout of a batch without data. Its shapes are not known yet, and move no column.
    fn columns(layout: Layout, capacity: u32, views: usize) -> Result<Self, FormatError> {
        if capacity == 0 || capacity > BATCH_SAMPLES_MAX {
            let expected = format_args!("1 to {BATCH_SAMPLES_MAX} rows");
            return Err(FormatError::new("batch capacity", 0, capacity, expected));
        }
        if layout.has_views() != (1..=VIEWS_MAX).contains(&views) {
            return Err(views_fault(views));
        }
        // Below 2^25 with the largest capacity and all views: no sum here can overflow.
        let (rows, views) = (u64::from(capacity), views as u64);
        let mut end = 0;
        let mut bytes = |bytes: u64| {
            let start = end;
            end = aligned(start + bytes);
            start
        };
        let mut column = |width: u64| bytes(rows * width);
        let (ids, labels, weights, flags) = (column(8), column(8), column(4), column(4));
        let extents = match layout {
            Layout::Nchw | Layout::Nhwc => Extents::Views {
                table: bytes(views * ENTRY_BYTES as u64),
                crops: bytes(views * crops_bytes(capacity)),
                flipped: bytes(views * flipped_bytes(capacity)),
            },
            Layout::Raw => Extents::Records { offsets: column(8), lens: column(8) },
            Layout::RaggedChw | Layout::RaggedHwc => {
                Extents::Images { offsets: column(8), heights: column(4), widths: column(4) }
            }
        };
        let (data, shapes) = (end, Shapes::default());
        let (data_len, total) = (0, data);
        Ok(Self { layout, capacity, ids, labels, weights, flags, extents, shapes, data, data_len, total })
    }

    fn with_data(self, data_len: u64) -> Result<Self, FormatError> {
        match self.data.checked_add(data_len) {
            Some(total) if total <= PAYLOAD_BYTES_MAX => Ok(Self { data_len, total, ..self }),
            _ => Err(FormatError::new(
                "batch data length",
                self.data,
                data_len,
                format_args!("at most {} bytes", PAYLOAD_BYTES_MAX - self.data),
            )),
        }
    }

    /// Number of bytes before the data, for a batch with this many views.
    pub(super) fn columns_bytes(layout: Layout, capacity: u32, views: usize) -> Result<u64, FormatError> {
        Self::columns(layout, capacity, views).map(|columns| columns.data)
    }

    /// Place and length of the table of views in the block of a batch with this many.
    pub(super) fn table_place(layout: Layout, capacity: u32, views: usize) -> Option<(u64, usize)> {
        match Self::columns(layout, capacity, views).ok()?.extents {
            Extents::Views { table, .. } => Some((table, views * ENTRY_BYTES)),
            Extents::Records { .. } | Extents::Images { .. } => None,
        }
    }

    /// The shapes of the views; none of a batch of records, or of images of their own sizes.
    #[must_use]
    pub fn views(&self) -> &[ViewShape] {
        self.shapes.as_slice()
    }

    /// The table of views and its place.
    #[must_use]
    pub fn table(&self) -> Option<(u64, Vec<u8>)> {
        match self.extents {
            Extents::Views { table, .. } => Some((table, self.shapes.encode())),
            Extents::Records { .. } | Extents::Images { .. } => None,
        }
    }

    /// Crops of a view, `f32[capacity][4]`: the left, top, width and height of each image's part of
    /// its source.
    #[must_use]
    pub fn crops(&self, view: usize) -> Option<u64> {
        match self.extents {
            Extents::Views { crops, .. } if view < self.views().len() => {
                Some(crops + view as u64 * crops_bytes(self.capacity))
            }
            _ => None,
        }
    }

    /// How the images of a view are mirrored, `u8`:
    /// [`Geometry::flipped`](crate::Geometry::flipped).
    #[must_use]
    pub fn flipped(&self, view: usize) -> Option<u64> {
        match self.extents {
            Extents::Views { flipped, .. } if view < self.views().len() => {
                Some(flipped + view as u64 * flipped_bytes(self.capacity))
            }
            _ => None,
        }
    }

    /// The images of a view: within the data.
    #[must_use]
    pub fn images(&self, view: usize) -> Option<u64> {
        let before = self.views().get(..view).filter(|_| view < self.views().len())?;
        Some(self.data + before.iter().map(|&shape| view_bytes(shape, self.capacity)).sum::<u64>())
    }

    /// Where each sample's bytes begin, from the start of the data, `u64`; `None` where images are
    /// of one size.
    #[must_use]
    pub fn offsets(&self) -> Option<u64> {
        match self.extents {
            Extents::Records { offsets, .. } | Extents::Images { offsets, .. } => Some(offsets),
            Extents::Views { .. } => None,
        }
    }

    /// How many bytes each sample has, `u64`; raw batches only.
    #[must_use]
    pub fn lens(&self) -> Option<u64> {
        match self.extents {
            Extents::Records { lens, .. } => Some(lens),
            Extents::Views { .. } | Extents::Images { .. } => None,
        }
    }

    /// Rows of pixels of each image, `u32`; images of their own sizes only.
    #[must_use]
    pub fn heights(&self) -> Option<u64> {
        match self.extents {
            Extents::Images { heights, .. } => Some(heights),
            Extents::Views { .. } | Extents::Records { .. } => None,
        }
    }

    /// Columns of pixels of each image, `u32`; images of their own sizes only.
    #[must_use]
    pub fn widths(&self) -> Option<u64> {
        match self.extents {
            Extents::Images { widths, .. } => Some(widths),
            Extents::Views { .. } | Extents::Records { .. } => None,
        }
    }

    /// Where the extra fields of the rows begin, if there are some: behind all else.
    #[must_use]
    pub fn fields_at(&self) -> u64 {
        aligned(self.total)
    }

    /// The layout of a block of `total` bytes, for its reader. `table` is the table of views, empty
    /// for a layout without them.
    ///
    /// # Errors
    /// As for [`BatchLayout::new`] and [`BatchLayout::of_views`], and when `total` is not the
    /// block's length.
    pub fn of_block(layout: Layout, capacity: u32, total: u64, table: &[u8]) -> Result<Self, FormatError> {
        let block = if layout.has_views() {
            Self::of_views(layout, capacity, Shapes::decode(table)?.as_slice())?
        } else {
            let columns = Self::new(layout, capacity, 0)?;
            columns.with_data(total.saturating_sub(columns.data))?
        };
        if block.total != total {
            let expected = format_args!("{} bytes of {capacity} rows", block.total);
            return Err(FormatError::new("batch block length", 0, total, expected));
        }
        Ok(block)
    }
}

/// Bytes of a view's crops.
fn crops_bytes(capacity: u32) -> u64 {
    aligned(u64::from(capacity) * 4 * size_of::<f32>() as u64)
}

/// Bytes of a view's flags of mirroring.
fn flipped_bytes(capacity: u32) -> u64 {
    aligned(capacity.into())
}

/// Bytes of the images of a view.
fn view_bytes(shape: ViewShape, capacity: u32) -> u64 {
    aligned(u64::from(capacity) * shape.bytes())
}

/// The next place at which a column may begin.
pub(super) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(COLUMN_ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Dtype;

    /// Every column of a layout: its place and the bytes of a row.
    fn columns(batch: &BatchLayout) -> Vec<(u64, u64)> {
        let mut columns = vec![(batch.ids, 8), (batch.labels, 8), (batch.weights, 4), (batch.flags, 4)];
        columns.extend(batch.offsets().map(|at| (at, 8)));
        columns.extend(batch.lens().map(|at| (at, 8)));
        columns.extend(batch.heights().map(|at| (at, 4)));
        columns.extend(batch.widths().map(|at| (at, 4)));
        columns.extend((0..VIEWS_MAX).map_while(|view| batch.crops(view)).map(|at| (at, 16)));
        columns.extend((0..VIEWS_MAX).map_while(|view| batch.flipped(view)).map(|at| (at, 1)));
        match batch.views() {
            [] => columns.push((batch.data, 0)),
            views => {
                columns.extend((0..).zip(views).map(|(at, view)| (batch.images(at).unwrap(), view.bytes())))
            }
        }
        columns
    }

    fn check(batch: &BatchLayout) {
        let columns = columns(batch);
        for pair in columns.windows(2) {
            assert!(pair[0].0 + pair[0].1 * u64::from(batch.capacity) <= pair[1].0, "{columns:?}");
        }
        assert!(columns.iter().all(|(at, _)| at % 64 == 0));
        let (last, bytes) = columns.last().unwrap();
        assert!(last + bytes * u64::from(batch.capacity) <= batch.total);
        assert!(batch.data <= *last && batch.data + batch.data_len == batch.total);
    }

    fn shape() -> impl Strategy<Value = ViewShape> {
        let dtype = prop::sample::select(Dtype::ALL.to_vec());
        (1..400_u32, 1..400_u32, prop::sample::select(vec![1, 3]), dtype)
            .prop_map(|(height, width, channels, dtype)| ViewShape { height, width, channels, dtype })
    }

    proptest! {
        #[test]
        fn columns_are_aligned_disjoint_and_in_order(
            layout in prop::sample::select(vec![Layout::Raw, Layout::RaggedChw, Layout::RaggedHwc]),
            capacity in 1..=BATCH_SAMPLES_MAX, data_len in 0..1_u64 << 39,
        ) {
            let batch = BatchLayout::new(layout, capacity, data_len).unwrap();
            check(&batch);
            let (raw, ragged) = (layout == Layout::Raw, layout.is_ragged());
            prop_assert_eq!((batch.offsets().is_some(), batch.lens().is_some()), (true, raw));
            prop_assert_eq!((batch.heights().is_some(), batch.widths().is_some()), (ragged, ragged));
            prop_assert_eq!((batch.crops(0), batch.flipped(0), batch.images(0)), (None, None, None));
            prop_assert_eq!(BatchLayout::of_block(layout, capacity, batch.total, &[]).unwrap(), batch);
        }

        #[test]
        fn every_view_has_its_columns_and_its_images(
            layout in prop::sample::select(vec![Layout::Nchw, Layout::Nhwc]),
            capacity in 1..=BATCH_SAMPLES_MAX, views in prop::collection::vec(shape(), 1..=VIEWS_MAX),
        ) {
            let batch = BatchLayout::of_views(layout, capacity, &views).unwrap();
            check(&batch);
            prop_assert_eq!(batch.views(), &views[..]);
            prop_assert_eq!(columns(&batch).len(), 4 + 3 * views.len());
            let (at, table) = batch.table().unwrap();
            prop_assert!(batch.flags + 4 * u64::from(capacity) <= at);
            prop_assert!(at + table.len() as u64 <= batch.crops(0).unwrap());
            let place = BatchLayout::table_place(layout, capacity, views.len());
            prop_assert_eq!(place, Some((at, table.len())));
            prop_assert_eq!(BatchLayout::of_block(layout, capacity, batch.total, &table).unwrap(), batch);
            prop_assert!(BatchLayout::of_block(layout, capacity, batch.total - 1, &table).is_err());
            prop_assert!(BatchLayout::of_block(layout, capacity, batch.total, &table[16..]).is_err());
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(BatchLayout::new(Layout::Raw, 0, 10).is_err());
        assert!(BatchLayout::new(Layout::Raw, BATCH_SAMPLES_MAX + 1, 10).is_err());
        assert!(BatchLayout::new(Layout::Raw, 1, u64::MAX).is_err());
        assert!(BatchLayout::new(Layout::Nchw, 1, 3).is_err(), "its views are not known");
        assert!(BatchLayout::of_block(Layout::Raw, 1, 64, &[]).is_err());
        let view = ViewShape { height: 16_384, width: 16_384, channels: 3, dtype: Dtype::Uint8 };
        assert!(BatchLayout::of_views(Layout::Nchw, 1, &[]).is_err());
        assert!(BatchLayout::of_views(Layout::Nchw, 1, &[view; VIEWS_MAX + 1]).is_err());
        assert!(BatchLayout::of_views(Layout::Raw, 1, &[view]).is_err());
        assert!(BatchLayout::of_views(Layout::Nchw, BATCH_SAMPLES_MAX, &[view]).is_err());
    }
}
