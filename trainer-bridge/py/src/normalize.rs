//! `shade_load.Normalize` over tensors: finds their memory and divides the images among threads.
//! The arithmetic is `shade_images::normalize`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shade_images::normalize::{self, COLOURS, Tables};

use crate::dense::{Images, Memory, capsule, images};

/// Fills `target` (N, 3, H, W, values of 2 or 4 bytes) with `tables`' values for `source` (bytes,
/// of the same shape and memory format), on `threads` threads.
///
/// `tables` are the values of the target's type for the bytes 0 to 255 of the first colour, the
/// second and the third.
///
/// # Errors
/// `ValueError` or `TypeError` for other tensors or tables.
#[pyfunction]
pub(crate) fn fill_floats(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    tables: &[u8],
    threads: usize,
) -> PyResult<()> {
    let (source, target) = (capsule(source)?, capsule(target)?);
    let ((from, source), (to, target)) = (images(&source, "images")?, images(&target, "target")?);
    if from.value_bytes != 1 || (Images { value_bytes: 1, ..to }) != from {
        let text =
            format!("got images {from:?} and a target {to:?}, expected bytes, and floats in the same layout");
        return Err(PyValueError::new_err(text));
    }
    let wrong = || PyValueError::new_err(format!("got tables of {} bytes for {to:?}", tables.len()));
    match to.value_bytes {
        2 => fill::<2>(py, source, from, target, normalize::tables(tables).ok_or_else(wrong)?, threads),
        4 => fill::<4>(py, source, from, target, normalize::tables(tables).ok_or_else(wrong)?, threads),
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Each thread gets a stretch of images.
fn fill<const B: usize>(
    py: Python<'_>,
    source: Memory<'_>,
    from: Images,
    target: Memory<'_>,
    tables: &Tables<B>,
    threads: usize,
) {
    let [count, _, height, width] = from.shape;
    let pixels = height * width;
    let each = count.div_ceil(threads.max(1)).max(1);
    py.detach(move || {
        std::thread::scope(|scope| {
            let (mut source, mut target, mut left) = (source, target, count);
            while left > 0 {
                let images = each.min(left);
                left -= images;
                let (input, other_source) = source.split_at(COLOURS * pixels * images);
                let (mut output, other_target) = target.split_at(COLOURS * pixels * images * B);
                (source, target) = (other_source, other_target);
                let mut work = move || {
                    let read = |at: usize, into: &mut [u8]| input.read(at, into);
                    let write = |at: usize, bytes: &[u8]| output.write(at, bytes);
                    if from.is_channels_last {
                        normalize::interleaved(pixels * images, tables, read, write);
                    } else {
                        normalize::planes(images, pixels, tables, read, write);
                    }
                };
                // The last stretch is this thread's own.
                if left > 0 { drop(scope.spawn(work)) } else { work() }
            }
        });
    });
}
