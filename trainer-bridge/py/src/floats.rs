//! Images of bytes to images of floats, channels last, in one pass: what `shade_load.Normalize` calls.
//!
//! A byte has 256 values, so what each becomes stands in a table for each colour, made by who asks: any scale, mean and
//! deviation, and any type of 2 or 4 bytes, cost one look-up a value.

#![expect(
    clippy::indexing_slicing,
    reason = "a table has all that a byte can be, a piece no more than what is in work"
)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dense::{Images, Memory, capsule, images};

/// Colours of a pixel.
const COLOURS: usize = 3;
/// What a byte can be.
const VALUES: usize = 256;
/// Pixels that are in work at a time: their bytes and floats stay in the CPU's first cache.
const PIXELS: usize = 1024;

/// Fills `target` (N, 3, H, W, channels last, values of 2 or 4 bytes) with what `tables` makes of `source` (N, 3, H, W,
/// bytes, in either memory format), on `threads` threads.
///
/// `tables` are the values of the target's type for the bytes 0 to 255 of the first colour, the second and the third.
///
/// # Errors
/// `ValueError` or `TypeError` where tensors or tables are not as said.
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
    if from.value_bytes != 1 || !to.is_channels_last || from.shape != to.shape {
        let text =
            format!("got images {from:?} and a target {to:?}, expected bytes and the same, channels last");
        return Err(PyValueError::new_err(text));
    }
    let wrong = || PyValueError::new_err(format!("got tables of {} bytes for {to:?}", tables.len()));
    match to.value_bytes {
        2 => fill::<2>(py, (source, from), target, tables_of(tables).ok_or_else(wrong)?, threads),
        4 => fill::<4>(py, (source, from), target, tables_of(tables).ok_or_else(wrong)?, threads),
        _ => return Err(wrong()),
    }
    Ok(())
}

/// A table for each colour, of values of `B` bytes.
type Tables<const B: usize> = [[[u8; B]; VALUES]; COLOURS];

fn tables_of<const B: usize>(bytes: &[u8]) -> Option<&Tables<B>> {
    let (values, []) = bytes.as_chunks::<B>() else { return None };
    let (tables, []) = values.as_chunks::<VALUES>() else { return None };
    tables.as_array()
}

/// Images are dealt to threads in stretches.
fn fill<const B: usize>(
    py: Python<'_>,
    (source, from): (Memory<'_>, Images),
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
                let (output, other_target) = target.split_at(COLOURS * pixels * images * B);
                (source, target) = (other_source, other_target);
                let work = move || {
                    if from.is_channels_last {
                        interleaved(&input, output, tables, pixels * images);
                    } else {
                        planes(&input, output, tables, pixels, images);
                    }
                };
                // The last stretch is this thread's own.
                if left > 0 { drop(scope.spawn(work)) } else { work() }
            }
        });
    });
}

/// Of images whose colours lie side by side.
fn interleaved<const B: usize>(
    source: &Memory<'_>,
    mut target: Memory<'_>,
    tables: &Tables<B>,
    pixels: usize,
) {
    let mut bytes = [[0; COLOURS]; PIXELS];
    let mut floats = [[[0; B]; COLOURS]; PIXELS];
    for first in (0..pixels).step_by(PIXELS) {
        let count = PIXELS.min(pixels - first);
        let (bytes, floats) = (&mut bytes[..count], &mut floats[..count]);
        source.read(COLOURS * first, bytes.as_flattened_mut());
        for (floats, bytes) in floats.iter_mut().zip(&*bytes) {
            for ((float, table), &byte) in floats.iter_mut().zip(tables).zip(bytes) {
                *float = table[usize::from(byte)];
            }
        }
        target.write(COLOURS * first * B, floats.as_flattened().as_flattened());
    }
}

/// Of images that have a plane for each colour.
fn planes<const B: usize>(
    source: &Memory<'_>,
    mut target: Memory<'_>,
    tables: &Tables<B>,
    pixels: usize,
    images: usize,
) {
    let mut bytes = [0; PIXELS];
    let mut floats = [[[0; B]; COLOURS]; PIXELS];
    for image in 0..images {
        let base = COLOURS * pixels * image;
        for first in (0..pixels).step_by(PIXELS) {
            let count = PIXELS.min(pixels - first);
            let (bytes, floats) = (&mut bytes[..count], &mut floats[..count]);
            for (colour, table) in tables.iter().enumerate() {
                source.read(base + colour * pixels + first, bytes);
                for (floats, &byte) in floats.iter_mut().zip(&*bytes) {
                    floats[colour] = table[usize::from(byte)];
                }
            }
            target.write((base + COLOURS * first) * B, floats.as_flattened().as_flattened());
        }
    }
}
