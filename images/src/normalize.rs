//! Images of bytes to images of floats in the same layout, in one pass: the arithmetic of
//! `shade_load.Normalize`.
//!
//! The caller makes a table for each colour with the result for each of a byte's 256 values. So any
//! scale, mean, deviation and type of 2 or 4 bytes costs one look-up per value.
//!
//! Images are read and written through functions, piece by piece. No reference to their memory is
//! formed here, as it may be shared with another process or not yet initialised.

#![expect(
    clippy::indexing_slicing,
    reason = "a table has an entry for each byte value, and a piece is at most PIXELS long"
)]

/// Colours of a pixel.
pub const COLOURS: usize = 3;
/// Values that a byte can have.
const VALUES: usize = 256;
/// Pixels converted at a time: their bytes and floats stay in the L1 cache.
const PIXELS: usize = 1024;

/// The new value of each byte, for each colour: `B` bytes.
pub type Tables<const B: usize> = [[[u8; B]; VALUES]; COLOURS];

/// `bytes` as tables: the values for the bytes 0 to 255 of the first colour, the second and the
/// third. `None` for another length.
#[must_use]
pub fn tables<const B: usize>(bytes: &[u8]) -> Option<&Tables<B>> {
    let (values, []) = bytes.as_chunks::<B>() else { return None };
    let (tables, []) = values.as_chunks::<VALUES>() else { return None };
    tables.as_array()
}

/// Converts `pixels` pixels of interleaved colours. `read` copies bytes of the source from an
/// offset on, `write` copies values into the target at an offset.
pub fn interleaved<const B: usize>(
    pixels: usize,
    tables: &Tables<B>,
    read: impl Fn(usize, &mut [u8]),
    mut write: impl FnMut(usize, &[u8]),
) {
    let mut bytes = [[0; COLOURS]; PIXELS];
    let mut floats = [[[0; B]; COLOURS]; PIXELS];
    for first in (0..pixels).step_by(PIXELS) {
        let count = PIXELS.min(pixels - first);
        let (bytes, floats) = (&mut bytes[..count], &mut floats[..count]);
        read(COLOURS * first, bytes.as_flattened_mut());
        for (floats, bytes) in floats.iter_mut().zip(&*bytes) {
            for ((float, table), &byte) in floats.iter_mut().zip(tables).zip(bytes) {
                *float = table[usize::from(byte)];
            }
        }
        write(COLOURS * first * B, floats.as_flattened().as_flattened());
    }
}

/// Converts `images` images of `pixels` pixels with a plane for each colour. `read` and `write` are
/// as in [`interleaved`].
pub fn planes<const B: usize>(
    images: usize,
    pixels: usize,
    tables: &Tables<B>,
    read: impl Fn(usize, &mut [u8]),
    mut write: impl FnMut(usize, &[u8]),
) {
    let mut bytes = [0; PIXELS];
    let mut floats = [[0; B]; PIXELS];
    for (plane, table) in (0..images).flat_map(|_| tables).enumerate() {
        for first in (0..pixels).step_by(PIXELS) {
            let count = PIXELS.min(pixels - first);
            let (bytes, floats) = (&mut bytes[..count], &mut floats[..count]);
            let place = plane * pixels + first;
            read(place, bytes);
            for (float, &byte) in floats.iter_mut().zip(&*bytes) {
                *float = table[usize::from(byte)];
            }
            write(place * B, floats.as_flattened());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value v of colour c becomes [v, c].
    fn numbered() -> Tables<2> {
        [0, 1, 2].map(|colour| {
            let mut table = [[0, colour]; VALUES];
            table.iter_mut().zip(0..=255).for_each(|(value, byte)| value[0] = byte);
            table
        })
    }

    #[test]
    fn both_layouts_stay() {
        for (images, pixels) in [(1, 1), (2, 7), (1, PIXELS), (3, PIXELS + 5)] {
            let count = COLOURS * pixels * images;
            let source: Vec<u8> = (0..=250).cycle().step_by(7).take(count).collect();
            let read = |at: usize, into: &mut [u8]| into.copy_from_slice(&source[at..at + into.len()]);
            let expected = |colours: &mut dyn Iterator<Item = u8>| -> Vec<u8> {
                source.iter().zip(colours).flat_map(|(&byte, colour)| [byte, colour]).collect()
            };
            let mut found = vec![0; 2 * count];
            let write = |at: usize, from: &[u8]| found[at..at + from.len()].copy_from_slice(from);
            interleaved(pixels * images, &numbered(), read, write);
            assert_eq!(found, expected(&mut (0..3).cycle()));
            let mut found = vec![0; 2 * count];
            let write = |at: usize, from: &[u8]| found[at..at + from.len()].copy_from_slice(from);
            planes(images, pixels, &numbered(), read, write);
            let by_plane = (0..3).cycle().flat_map(|colour| std::iter::repeat_n(colour, pixels));
            assert_eq!(found, expected(&mut { by_plane }), "{images} images of {pixels} pixels");
        }
    }

    #[test]
    fn tables_are_whole() {
        assert!(tables::<4>(&[0; 4 * VALUES * COLOURS]).is_some());
        for bytes in [0, 4 * VALUES * COLOURS - 1, 4 * VALUES * (COLOURS + 1), 2 * VALUES * COLOURS] {
            assert!(tables::<4>(&vec![0; bytes]).is_none(), "{bytes}");
        }
    }
}
