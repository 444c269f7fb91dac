//! A delivered batch and the views of its columns. Its slot, if it holds one, goes back to the daemon when the last of them
//! dies.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyMemoryView, PyTuple};
use shade_client::{Column, Descriptor, Layout};

use crate::buffer::Record;
use crate::dlpack::{CPU, DataType, Located, check_request, copy_bytes, export};
use crate::error::ShadeError;

/// Channels of a decoded image.
const CHANNELS: usize = 3;

/// One batch's memory, shared by the [`Batch`], its [`View`]s and every tensor made from them.
pub(crate) struct Held {
    batch: shade_client::Batch,
}

impl Held {
    /// Where `part` lies in this process's memory.
    fn locate(&self, part: Part) -> PyResult<Located> {
        let batch = &self.batch;
        match part {
            Part::Ids => column(batch.ids(), DataType::I64),
            Part::Labels => column(batch.labels(), DataType::I64),
            Part::Weights => column(batch.weights(), DataType::F32),
            // The two bits fit, and tensor libraries do far more with int32 than with uint32.
            Part::Flags => column(batch.flags(), DataType::I32),
            Part::Images => {
                let descriptor = batch.descriptor();
                let shape =
                    [descriptor.records, descriptor.height, descriptor.width].map(|side| side as usize);
                let [rows, height, width] = shape;
                let shape = match descriptor.layout {
                    Layout::U8Nhwc => [rows, height, width, CHANNELS],
                    _ => [rows, CHANNELS, height, width],
                };
                // The client has checked that the pixels are there.
                located(batch.data().ptr, DataType::U8, &shape)
            }
            Part::Record(row) => column(self.record(row as usize)?, DataType::U8),
            Part::Image(row) => self.locate_image(row as usize),
            Part::Heights => sides(batch.heights()),
            Part::Widths => sides(batch.widths()),
        }
    }

    /// The image of one row of a batch of images of their own sizes.
    fn locate_image(&self, row: usize) -> PyResult<Located> {
        let batch = &self.batch;
        let (Some(offsets), Some(heights), Some(widths)) = (batch.offsets(), batch.heights(), batch.widths())
        else {
            return Err(not_ragged());
        };
        let (offset, height, width) =
            (self.word(offsets, row)?, self.word(heights, row)?, self.word(widths, row)?);
        let data = batch.data();
        let bytes = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(CHANNELS));
        // As for records: the columns are writable memory.
        if bytes.and_then(|bytes| bytes.checked_add(offset)).is_none_or(|end| end > data.count) {
            let text = format!(
                "image {row}: got {height} x {width} pixels at {offset}, expected a range within {}",
                data.count
            );
            return Err(ShadeError::new_err(text));
        }
        let shape = match batch.descriptor().layout {
            Layout::RaggedHwc => [height, width, CHANNELS],
            _ => [CHANNELS, height, width],
        };
        located(data.ptr.wrapping_add(offset), DataType::U8, &shape)
    }

    /// The bytes of one row of a raw batch.
    pub(crate) fn record(&self, row: usize) -> PyResult<Column<u8>> {
        let record =
            self.batch.record_in_place(row).map_err(|error| ShadeError::new_err(error.to_string()))?;
        record.ok_or_else(|| PyValueError::new_err("no row of a raw batch: a decoded one holds images"))
    }

    /// One value of a column of places, lengths or sides: unsigned numbers of any width up to 8 bytes.
    fn word<T>(&self, column: Column<T>, row: usize) -> PyResult<usize> {
        if row >= column.count {
            return Err(PyIndexError::new_err(format!("record {row} of a batch of {}", column.count)));
        }
        let word = located(column.ptr.wrapping_add(row), DataType::U8, &[size_of::<T>()])?;
        let mut value = [0; 8];
        value.iter_mut().zip(copy_bytes(self, &word)).for_each(|(to, from)| *to = from);
        usize::try_from(u64::from_le_bytes(value))
            .ok()
            .ok_or_else(|| ShadeError::new_err(format!("record {row}: its place is out of range")))
    }
}

fn column<T>(column: Column<T>, dtype: DataType) -> PyResult<Located> {
    located(column.ptr, dtype, &[column.count])
}

/// A column that only images of their own sizes have. As for flags: sides fit.
fn sides(found: Option<Column<u32>>) -> PyResult<Located> {
    column(found.ok_or_else(not_ragged)?, DataType::I32)
}

fn not_ragged() -> PyErr {
    PyValueError::new_err("only a batch of images of their own sizes says them row by row")
}

fn located<T>(start: *mut T, dtype: DataType, shape: &[usize]) -> PyResult<Located> {
    let data = NonNull::new(start.cast()).ok_or_else(|| ShadeError::new_err("the batch is not mapped"))?;
    let sides: Option<Vec<i64>> = shape.iter().map(|&side| i64::try_from(side).ok()).collect();
    let bytes = shape.iter().try_fold(dtype.bytes(), |bytes, &side| bytes.checked_mul(side));
    let (Some(shape), Some(bytes)) = (sides, bytes) else {
        return Err(ShadeError::new_err(format!("a column of shape {shape:?} is out of range")));
    };
    Ok(Located { data, bytes, dtype, shape })
}

/// A part of a batch that a view shows.
#[derive(Clone, Copy)]
enum Part {
    Ids,
    Labels,
    Weights,
    Flags,
    Images,
    /// The bytes of one row's record.
    Record(u32),
    /// One row's image, where each has its own size.
    Image(u32),
    Heights,
    Widths,
}

/// A delivered batch.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Batch {
    held: Arc<Held>,
}

impl Batch {
    pub(crate) fn new(batch: shade_client::Batch) -> Self {
        Self { held: Arc::new(Held { batch }) }
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        self.held.batch.descriptor()
    }

    /// The ids of its samples. The column is writable: these may be any numbers.
    pub(crate) fn sample_ids(&self) -> PyResult<Vec<i64>> {
        let bytes = copy_bytes(&self.held, &self.held.locate(Part::Ids)?);
        Ok(bytes.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id)).collect())
    }

    fn view(&self, part: Part) -> View {
        View { held: Arc::clone(&self.held), part }
    }

    /// A view of a part that may not be there.
    fn checked(&self, part: Part) -> PyResult<View> {
        self.held.locate(part)?;
        Ok(self.view(part))
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.descriptor().records as usize
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.descriptor().epoch
    }

    #[getter]
    fn index(&self) -> u32 {
        self.descriptor().batch
    }

    /// Whether it holds records as packed, not images.
    #[getter]
    fn raw(&self) -> bool {
        self.descriptor().layout == Layout::Raw
    }

    #[getter]
    fn hits(&self) -> u32 {
        self.descriptor().hits
    }

    #[getter]
    fn misses(&self) -> u32 {
        self.descriptor().misses
    }

    #[getter]
    fn skipped(&self) -> u32 {
        self.descriptor().skipped
    }

    #[getter]
    fn substituted(&self) -> u32 {
        self.descriptor().substituted
    }

    fn ids(&self) -> View {
        self.view(Part::Ids)
    }

    fn labels(&self) -> View {
        self.view(Part::Labels)
    }

    fn weights(&self) -> View {
        self.view(Part::Weights)
    }

    fn flags(&self) -> View {
        self.view(Part::Flags)
    }

    /// Whether its images have sizes of their own.
    #[getter]
    fn ragged(&self) -> bool {
        self.descriptor().layout.is_ragged()
    }

    /// Whether the colours of an image's pixel lie side by side.
    #[getter]
    fn channels_last(&self) -> bool {
        matches!(self.descriptor().layout, Layout::U8Nhwc | Layout::RaggedHwc)
    }

    /// The images of a decoded batch, as they lie in memory.
    fn images(&self) -> PyResult<View> {
        if self.raw() || self.ragged() {
            return Err(PyValueError::new_err("only images of one size are one view"));
        }
        Ok(self.view(Part::Images))
    }

    /// The image of one row of a batch of images of their own sizes.
    fn image(&self, row: u32) -> PyResult<View> {
        self.checked(Part::Image(row))
    }

    /// Rows of pixels of each image of such a batch.
    fn heights(&self) -> PyResult<View> {
        self.checked(Part::Heights)
    }

    /// Columns of pixels of each image of such a batch.
    fn widths(&self) -> PyResult<View> {
        self.checked(Part::Widths)
    }

    /// The record of one row of a raw batch.
    fn record(&self, row: u32) -> PyResult<View> {
        self.checked(Part::Record(row))
    }

    /// The records of a raw batch, each a read-only `memoryview`.
    fn memoryviews<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let views = PyList::empty(py);
        for row in 0..self.descriptor().records {
            let record = Bound::new(py, Record::new(Arc::clone(&self.held), row))?;
            views.append(PyMemoryView::from(&record)?)?;
        }
        Ok(views)
    }
}

/// One column of a batch, in place. Speaks DLPack, so that any tensor library takes it without a copy.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct View {
    held: Arc<Held>,
    part: Part,
}

#[pymethods]
impl View {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.held.locate(self.part)?.shape)
    }

    /// The type's usual name, such as "uint8".
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        Ok(self.held.locate(self.part)?.dtype.name())
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.held.locate(self.part)?.shape.first().copied().unwrap_or(0);
        usize::try_from(first).map_err(|_| PyValueError::new_err("negative length"))
    }

    fn __repr__(&self) -> PyResult<String> {
        let Located { dtype, shape, .. } = self.held.locate(self.part)?;
        Ok(format!("View(shape={shape:?}, dtype={})", dtype.name()))
    }

    /// A copy of the bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &copy_bytes(&self.held, &self.held.locate(self.part)?)))
    }

    /// A copy as a flat list of numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let bytes = copy_bytes(&self.held, &self.held.locate(self.part)?);
        match self.part {
            Part::Ids | Part::Labels => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| i64::from_le_bytes(value)))
            }
            Part::Weights => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)))
            }
            Part::Flags | Part::Heights | Part::Widths => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| i32::from_le_bytes(value)))
            }
            Part::Images | Part::Image(_) | Part::Record(_) => PyList::new(py, bytes),
        }
    }

    /// A capsule over the column in place. What takes it keeps the batch until it is done.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_request(stream, dl_device, copy)?;
        export(py, Arc::clone(&self.held), self.held.locate(self.part)?, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }
}
