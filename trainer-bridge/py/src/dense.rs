//! Batches of images in other libraries' tensors, read and written in pieces. No reference into
//! their memory is formed: memory that is shared with the daemon or not yet initialised may only be
//! copied.
#![expect(unsafe_code, reason = "the memory is another library's, known by a pointer and a length")]

use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shade_client::DataType;

use crate::dlpack::{Placed, placed};

/// Memory layout of a batch of images: without gaps, N x 3 x H x W or, channels last, N x H x W x
/// 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    /// Images, colours (3), height, width.
    pub(crate) shape: [usize; 4],
    pub(crate) is_channels_last: bool,
    pub(crate) dtype: DataType,
}

/// The memory of a tensor, or a stretch of it. Valid as long as its capsule.
pub(crate) struct Memory<'capsule> {
    start: NonNull<u8>,
    bytes: usize,
    capsule: PhantomData<&'capsule ()>,
}

// SAFETY: plain memory that no thread owns; `split_at` gives each byte to one stretch.
unsafe impl Send for Memory<'_> {}

/// The DLPack capsule of a tensor. Some objects export a tensor that only the capsule keeps.
pub(crate) fn capsule<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    tensor.call_method0("__dlpack__")
}

/// A tensor's layout and memory; `name` is for messages.
///
/// # Errors
/// `TypeError` if it is no tensor on the CPU, `ValueError` for other dimensions or gaps.
pub(crate) fn images<'capsule>(
    capsule: &'capsule Bound<'_, PyAny>,
    name: &str,
) -> PyResult<(Images, Memory<'capsule>)> {
    let Placed { start, dtype, shape, strides } = placed(capsule, name)?;
    let wrong = || {
        let text =
            format!("{name}: got shape {shape:?}, strides {strides:?}, expected N x 3 x H x W without gaps");
        PyValueError::new_err(text)
    };
    let &[count, 3, high, wide] = shape.as_slice() else { return Err(wrong()) };
    let sides: [usize; 4] = match [count, 3, high, wide].map(usize::try_from) {
        [Ok(count), Ok(colours), Ok(high), Ok(wide)] => [count, colours, high, wide],
        _ => return Err(wrong()),
    };
    let bytes = sides.iter().try_fold(dtype.bytes(), |bytes, &side| bytes.checked_mul(side));
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(wrong)?;
    let area = high.saturating_mul(wide);
    // The stride of a dimension of one does not matter.
    let lies = |steps: [i64; 4]| {
        let mut all = strides.iter().zip(steps).zip(&shape);
        all.all(|((&stride, step), &side)| stride == step || side <= 1)
    };
    let is_channels_last = bytes == 0 || lies([area.saturating_mul(3), 1, wide.saturating_mul(3), 3]);
    if !is_channels_last && !lies([area.saturating_mul(3), area, wide, 1]) {
        return Err(wrong());
    }
    let start = if bytes == 0 { NonNull::dangling() } else { start.ok_or_else(wrong)? };
    let memory = Memory { start, bytes, capsule: PhantomData };
    Ok((Images { shape: sides, is_channels_last, dtype }, memory))
}

impl Memory<'_> {
    /// The first `at` bytes, or all if there are no more, and the others.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        let at = at.min(self.bytes);
        // SAFETY: `at` bytes from the start is within the memory or at its end.
        let middle = unsafe { self.start.add(at) };
        let capsule = PhantomData;
        (
            Self { start: self.start, bytes: at, capsule },
            Self { start: middle, bytes: self.bytes - at, capsule },
        )
    }

    /// Fills `into` with the bytes from `at` on; does nothing if the memory ends before.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        if let Some(from) = self.range(at, into.len()) {
            // SAFETY: `from` has as many bytes, and `into`, a reference, lies elsewhere.
            unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *into).cast(), into.len()) };
        }
    }

    /// Copies `from` to the bytes from `at` on; does nothing if the memory ends before.
    pub(crate) fn write(&mut self, at: usize, from: &[u8]) {
        if let Some(to) = self.range(at, from.len()) {
            // SAFETY: `to` has as many bytes, and `from`, a reference, lies elsewhere.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        }
    }

    /// Address of byte `at`, if `len` bytes from there are within the memory.
    fn range(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.bytes);
        // SAFETY: within the memory or at its end.
        is_within.then(|| unsafe { self.start.add(at) })
    }
}
