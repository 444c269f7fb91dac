//! From a whole image's pixels to a row: orders colours and writes.

use super::planes::{join, split};
use crate::scratch;

/// Pixels that are split into their colours at a time, so that they are still in the L1 cache when
/// written.
const PIECE_PIXELS: usize = 4096;

/// Passes the interleaved `rgb` to `write`, each piece with its offset in the row: as it is with
/// `channels_last`, else as planes. `buffer` is for one piece.
pub(super) fn write_whole<E>(
    rgb: &[u8],
    channels_last: bool,
    buffer: &mut Vec<u8>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if channels_last {
        return write(0, rgb);
    }
    let (pixels, _) = rgb.as_chunks::<3>();
    let plane_bytes = pixels.len() as u64;
    let mut at = 0;
    for piece in pixels.chunks(PIECE_PIXELS) {
        let len = piece.len();
        let (red, rest) = scratch(buffer, 3 * len).split_at_mut(len);
        let (green, blue) = rest.split_at_mut(len);
        split(piece, red, green, blue);
        for (plane, colour) in [red, green, blue].into_iter().enumerate() {
            write(plane as u64 * plane_bytes + at, colour)?;
        }
        at += len as u64;
    }
    Ok(())
}

/// Passes the three planes of `row` to `write`: as they are, or interleaved with `channels_last`.
/// `buffer` is for one piece.
pub(super) fn write_planes<E>(
    row: &[u8],
    channels_last: bool,
    buffer: &mut Vec<u8>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if !channels_last {
        return write(0, row);
    }
    let plane = row.len() / 3;
    let (red, rest) = row.split_at(plane);
    let (green, blue) = rest.split_at(plane);
    let pieces = red.chunks(PIECE_PIXELS).zip(green.chunks(PIECE_PIXELS)).zip(blue.chunks(PIECE_PIXELS));
    let mut at = 0;
    for ((red, green), blue) in pieces {
        let piece = scratch(buffer, 3 * red.len());
        join(red, green, blue, piece.as_chunks_mut().0);
        write(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_whole_whatever_the_number_of_pixels() {
        for pixels in [1, 5, PIECE_PIXELS - 1, PIECE_PIXELS, PIECE_PIXELS + 1, 3 * PIECE_PIXELS + 7] {
            let rgb: Vec<u8> = (0..=250).cycle().step_by(7).take(3 * pixels).collect();
            let written = |channels_last| {
                let mut row = vec![None; rgb.len()];
                write_whole(&rgb, channels_last, &mut Vec::new(), |at, piece| {
                    for (place, &value) in row[usize::try_from(at).unwrap()..].iter_mut().zip(piece) {
                        assert_eq!(place.replace(value), None, "written once");
                    }
                    Ok::<(), ()>(())
                })
                .unwrap();
                row.into_iter().map(Option::unwrap).collect::<Vec<u8>>()
            };
            assert_eq!(written(true), rgb);
            let planes: Vec<u8> =
                (0..3).flat_map(|colour| rgb.iter().skip(colour).step_by(3).copied()).collect();
            assert_eq!(written(false), planes, "{pixels} pixels");
            let mut back = Vec::new();
            write_planes(&planes, true, &mut Vec::new(), |at, piece| {
                assert_eq!(at, back.len() as u64);
                back.extend_from_slice(piece);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert_eq!(back, rgb);
        }
    }
}
