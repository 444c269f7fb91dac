//! Addresses of a batch's parts. Columns are writable memory, so each offset and size in them is
//! checked against the batch's data.

use std::ptr::NonNull;

use shade_formats::ring::{COLUMN_ALIGN_BYTES, Layout};
use shade_formats::{Dtype, FormatError};
use shade_job::{FieldKind, NumberType};

use crate::batch::{Batch, Column};

/// Channels of a decoded image.
const CHANNELS: usize = 3;

/// Type of values, as DLPack has it (`DLDataType`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    /// 0: signed, 1: unsigned, 2: float, 4: bfloat.
    pub code: u8,
    /// Bits of one value.
    pub bits: u8,
    /// Values side by side: 1.
    pub lanes: u16,
}

impl DataType {
    /// int8.
    pub const I8: Self = Self { code: 0, bits: 8, lanes: 1 };
    /// int16.
    pub const I16: Self = Self { code: 0, bits: 16, lanes: 1 };
    /// int32.
    pub const I32: Self = Self { code: 0, bits: 32, lanes: 1 };
    /// int64.
    pub const I64: Self = Self { code: 0, bits: 64, lanes: 1 };
    /// uint8.
    pub const U8: Self = Self { code: 1, bits: 8, lanes: 1 };
    /// float16.
    pub const F16: Self = Self { code: 2, bits: 16, lanes: 1 };
    /// bfloat16.
    pub const BF16: Self = Self { code: 4, bits: 16, lanes: 1 };
    /// float32.
    pub const F32: Self = Self { code: 2, bits: 32, lanes: 1 };
    /// float64, which only losses and extra fields may be.
    pub const F64: Self = Self { code: 2, bits: 64, lanes: 1 };

    /// Bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    /// The type's usual name, such as "int64".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            _ => "a type that shade does not use",
        }
    }
}

impl From<NumberType> for DataType {
    fn from(number: NumberType) -> Self {
        match number {
            NumberType::Uint8 => Self::U8,
            NumberType::Int8 => Self::I8,
            NumberType::Int16 => Self::I16,
            NumberType::Int32 => Self::I32,
            NumberType::Int64 => Self::I64,
            NumberType::Float16 => Self::F16,
            NumberType::Bfloat16 => Self::BF16,
            NumberType::Float32 => Self::F32,
            NumberType::Float64 => Self::F64,
        }
    }
}

impl From<Dtype> for DataType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Uint8 => Self::U8,
            Dtype::Float16 => Self::F16,
            Dtype::Bfloat16 => Self::BF16,
            Dtype::Float32 => Self::F32,
        }
    }
}

/// A part of a batch, ready to become a dense, row-major tensor. Only [`BatchPart`]
/// makes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Located {
    /// In the batch's block or its copy, hence valid as long as the batch lives.
    pub data: NonNull<u8>,
    /// Bytes of all values.
    pub bytes: usize,
    /// Type of the values.
    pub dtype: DataType,
    /// A number for each dimension.
    pub shape: Vec<i64>,
}

/// A part of a batch that is one tensor.
#[derive(Clone, Copy, Debug)]
pub enum BatchPart {
    /// Sample ids, int64.
    Ids,
    /// Class labels, int64.
    Labels,
    /// Loss weights, float32.
    Weights,
    /// Flags of the rows, int32.
    Flags,
    /// The images of a view of a batch whose images have one size, of the view's type.
    Images(u8),
    /// Left, top, width and height of the part of the source that each image of a view shows,
    /// float32: rows x 4.
    Crops(u8),
    /// How each image of a view is mirrored, uint8: [`MIRRORED`](crate::MIRRORED) and
    /// [`UPSIDE_DOWN`](crate::UPSIDE_DOWN), added, or 0.
    Flipped(u8),
    /// The bytes of one row's record, uint8; raw batches only.
    Record(u32),
    /// One row's image, uint8, where each has its own size.
    Image(u32),
    /// Rows of pixels of each such image, int32.
    Heights,
    /// Columns of pixels of each such image, int32.
    Widths,
    /// An extra field of all rows, whose numbers have one shape in each, in a view. What does not
    /// follow the image is in view 0.
    Field(u8, u8),
    /// An extra field of one row in a view, the last: its bytes, uint8, or its rows of numbers.
    FieldOf(u8, u32, u8),
}

/// Why a batch has no such part.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Batches of this kind have none.
    #[error("{0}")]
    Kind(&'static str),
    /// There is no such row.
    #[error("record {row} of a batch of {rows}")]
    Row {
        /// The row.
        row: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// There is no such view.
    #[error("view {view} of a batch of {views}")]
    View {
        /// The view.
        view: usize,
        /// Views of the batch.
        views: usize,
    },
    /// A row's offset or sides lead outside the batch: somebody wrote to its columns.
    #[error("{0}")]
    Damaged(String),
    /// A raw record is damaged.
    #[error(transparent)]
    Record(#[from] FormatError),
}

impl BatchPart {
    /// A copy of the part's bytes.
    ///
    /// # Errors
    /// As for [`BatchPart::locate`].
    pub fn copy(self, batch: &Batch) -> Result<Vec<u8>, PartError> {
        copy(batch, &self.locate(batch)?)
    }

    /// The part's address, length, type and shape.
    ///
    /// # Errors
    /// The batch is of another kind, has no such row, or its columns were overwritten.
    pub fn locate(self, batch: &Batch) -> Result<Located, PartError> {
        match self {
            Self::Ids => column(batch.ids(), DataType::I64),
            Self::Labels => column(batch.labels(), DataType::I64),
            Self::Weights => column(batch.weights(), DataType::F32),
            // The two bits fit, and tensor libraries support int32 far better than uint32.
            Self::Flags => column(batch.flags(), DataType::I32),
            Self::Images(view) => {
                let view = usize::from(view);
                let (Some(images), Some(&shape)) = (batch.images(view), batch.views().get(view)) else {
                    return Err(no_view(batch, view));
                };
                let dtype = shape.dtype.into();
                let [channels, height, width] =
                    [shape.channels, shape.height, shape.width].map(|side| side as usize);
                let shape = match batch.descriptor().layout {
                    Layout::Nhwc => [batch.records(), height, width, channels],
                    _ => [batch.records(), channels, height, width],
                };
                located(images.ptr, dtype, &shape)
            }
            Self::Crops(view) => {
                let crops = batch.crops(view.into()).ok_or_else(|| no_view(batch, view.into()))?;
                located(crops.ptr, DataType::F32, &[crops.count, 4])
            }
            Self::Flipped(view) => {
                column(batch.flipped(view.into()).ok_or_else(|| no_view(batch, view.into()))?, DataType::U8)
            }
            Self::Record(row) => column(record(batch, row)?, DataType::U8),
            Self::Image(row) => locate_image(batch, row as usize),
            Self::Heights => sides(batch.heights()),
            Self::Widths => sides(batch.widths()),
            Self::Field(field, view) => locate_field(batch, field, view),
            Self::FieldOf(field, row, view) => locate_field_of(batch, field, row, view),
        }
    }
}

/// Why a batch has no such view.
fn no_view(batch: &Batch, view: usize) -> PartError {
    match batch.views().len() {
        0 => PartError::Kind("only images of one size are one view, and have crops"),
        views => PartError::View { view, views },
    }
}

/// The bytes of one row of a raw batch.
fn record(batch: &Batch, row: u32) -> Result<Column<u8>, PartError> {
    let record = batch.record_in_place(row as usize)?;
    record.ok_or(PartError::Kind("no row of a raw batch: a decoded one holds images"))
}

/// The image of one row of a batch whose images have their own sizes.
fn locate_image(batch: &Batch, row: usize) -> Result<Located, PartError> {
    let (Some(offsets), Some(heights), Some(widths)) = (batch.offsets(), batch.heights(), batch.widths())
    else {
        return Err(not_ragged());
    };
    let (offset, height, width) =
        (word(batch, offsets, row)?, word(batch, heights, row)?, word(batch, widths, row)?);
    let data = batch.data();
    let bytes = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(CHANNELS));
    if bytes.and_then(|bytes| bytes.checked_add(offset)).is_none_or(|end| end > data.count) {
        let text = format!(
            "image {row}: got {height} x {width} pixels at {offset}, expected a range within {}",
            data.count
        );
        return Err(PartError::Damaged(text));
    }
    let shape = match batch.descriptor().layout {
        Layout::RaggedHwc => [height, width, CHANNELS],
        _ => [CHANNELS, height, width],
    };
    located(data.ptr.wrapping_add(offset), DataType::U8, &shape)
}

/// The kind of a batch's extra field.
fn kind_of(batch: &Batch, field: u8) -> Result<&FieldKind, PartError> {
    let kind = batch.fields().nth(field.into()).map(|(_, kind)| kind);
    kind.ok_or(PartError::Kind("this batch has no such extra field: name it in `fields` of the job"))
}

/// An extra field of all rows.
fn locate_field(batch: &Batch, field: u8, view: u8) -> Result<Located, PartError> {
    let view = usize::from(view);
    match (kind_of(batch, field)?, batch.fixed_field(field.into(), view), batch.views().get(view)) {
        (FieldKind::Fixed { number, shape }, Some(values), _) => {
            let rows = [batch.records()].into_iter().chain(shape.iter().map(|&side| side as usize));
            located(values.ptr, (*number).into(), &rows.collect::<Vec<_>>())
        }
        (FieldKind::Mask { .. }, Some(levels), Some(shape)) => {
            located(levels.ptr, DataType::U8, &[batch.records(), shape.height as usize, shape.width as usize])
        }
        (FieldKind::Mask { .. }, _, _) => Err(no_view(batch, view)),
        _ => Err(PartError::Kind("an extra field that varies is no tensor: take it row by row")),
    }
}

/// An extra field of one row.
fn locate_field_of(batch: &Batch, field: u8, row: u32, view: u8) -> Result<Located, PartError> {
    let kind = kind_of(batch, field)?;
    let found = batch.varying_field(field.into(), view.into(), row as usize)?;
    let bytes = found.ok_or(PartError::Kind("this row has no such extra field, or it is one tensor"))?;
    let Some((number, shape)) = kind.row() else { return column(bytes, DataType::U8) };
    let sides: Vec<usize> = shape.iter().map(|&side| side as usize).collect();
    let row_bytes = sides.iter().product::<usize>() * DataType::from(number).bytes();
    if !bytes.count.is_multiple_of(row_bytes) || !(bytes.ptr.addr() as u64).is_multiple_of(COLUMN_ALIGN_BYTES)
    {
        return Err(PartError::Damaged(format!("field of row {row}: {} bytes of {kind}", bytes.count)));
    }
    let rows = [bytes.count / row_bytes].into_iter().chain(sides);
    located(bytes.ptr, number.into(), &rows.collect::<Vec<_>>())
}

/// One value of a column of offsets or sides: unsigned numbers of up to 8 bytes.
fn word<T>(batch: &Batch, column: Column<T>, row: usize) -> Result<usize, PartError> {
    if row >= column.count {
        return Err(PartError::Row { row, rows: column.count });
    }
    let word = located(column.ptr.wrapping_add(row), DataType::U8, &[size_of::<T>()])?;
    let mut value = [0; 8];
    value.iter_mut().zip(copy(batch, &word)?).for_each(|(to, from)| *to = from);
    usize::try_from(u64::from_le_bytes(value))
        .ok()
        .ok_or_else(|| PartError::Damaged(format!("record {row}: its offset is out of range")))
}

fn copy(batch: &Batch, located: &Located) -> Result<Vec<u8>, PartError> {
    let bytes = Column { ptr: located.data.as_ptr(), count: located.bytes };
    Ok(batch.copy(bytes)?)
}

fn column<T>(column: Column<T>, dtype: DataType) -> Result<Located, PartError> {
    located(column.ptr, dtype, &[column.count])
}

/// A column that only images of their own sizes have. Sides fit into int32.
fn sides(found: Option<Column<u32>>) -> Result<Located, PartError> {
    column(found.ok_or_else(not_ragged)?, DataType::I32)
}

fn not_ragged() -> PartError {
    PartError::Kind("only a batch whose images have their own sizes has them row by row")
}

fn located<T>(start: *mut T, dtype: DataType, shape: &[usize]) -> Result<Located, PartError> {
    let data =
        NonNull::new(start.cast()).ok_or_else(|| PartError::Damaged("the batch is not mapped".to_owned()))?;
    let sides: Option<Vec<i64>> = shape.iter().map(|&side| i64::try_from(side).ok()).collect();
    let bytes = shape.iter().try_fold(dtype.bytes(), |bytes, &side| bytes.checked_mul(side));
    let (Some(shape), Some(bytes)) = (sides, bytes) else {
        return Err(PartError::Damaged(format!("a column of shape {shape:?} is out of range")));
    };
    Ok(Located { data, bytes, dtype, shape })
}
