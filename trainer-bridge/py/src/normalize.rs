//! `shade_load.Normalize` over tensors: finds their memory and divides the images among threads.
//! The arithmetic is `shade_images::normalize`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shade_client::DataType;
use shade_formats::Dtype;
use shade_images::normalize::{self, COLOURS};
use shade_job::Floats;

use crate::dense::{Images, Memory, capsule, images};

/// Fills `target` (N, 3, H, W, float32, float16 or bfloat16) with `(x / 255 - mean) / std` of
/// `source` (bytes, of the same shape and memory format), on `threads` threads. `mean` and `std`
/// are those of red, green and blue.
///
/// # Errors
/// `ValueError` or `TypeError` for other tensors.
#[pyfunction]
pub(crate) fn fill_floats(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    mean: [f32; COLOURS],
    std: [f32; COLOURS],
    threads: usize,
) -> PyResult<()> {
    let (source, target) = (capsule(source)?, capsule(target)?);
    let ((from, source), (to, target)) = (images(&source, "images")?, images(&target, "target")?);
    let dtype = Dtype::ALL.into_iter().find(|&dtype| DataType::from(dtype) == to.dtype);
    let dtype = dtype.filter(|&dtype| dtype != Dtype::Uint8);
    let (Some(dtype), true) = (dtype, (Images { dtype: DataType::U8, ..to }) == from) else {
        let text =
            format!("got images {from:?} and a target {to:?}, expected bytes, and floats in the same layout");
        return Err(PyValueError::new_err(text));
    };
    fill(py, source, from, target, Floats { dtype, mean, std }, threads);
    Ok(())
}

/// Each thread gets a stretch of images.
fn fill(
    py: Python<'_>,
    source: Memory<'_>,
    from: Images,
    target: Memory<'_>,
    floats: Floats,
    threads: usize,
) {
    let [count, _, height, width] = from.shape;
    let pixels = height * width;
    let each = count.div_ceil(threads.max(1)).max(1);
    let value_bytes = floats.dtype.bytes();
    py.detach(move || {
        std::thread::scope(|scope| {
            let (mut source, mut target, mut left) = (source, target, count);
            while left > 0 {
                let images = each.min(left);
                left -= images;
                let (input, other_source) = source.split_at(COLOURS * pixels * images);
                let (mut output, other_target) = target.split_at(COLOURS * pixels * images * value_bytes);
                (source, target) = (other_source, other_target);
                let mut work = move || {
                    let read = |at: usize, into: &mut [u8]| input.read(at, into);
                    let write = |at: usize, bytes: &[u8]| output.write(at, bytes);
                    if from.is_channels_last {
                        normalize::interleaved(pixels * images, &floats, read, write);
                    } else {
                        normalize::planes(images, pixels, &floats, read, write);
                    }
                };
                // The last stretch is this thread's own.
                if left > 0 { drop(scope.spawn(work)) } else { work() }
            }
        });
    });
}
