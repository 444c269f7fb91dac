//! A line of interleaved colours to a line for each colour, and back; those to one of grey.
//!
//! Also compiled for newer CPUs, whose shuffles take a tenth of the time; the CPU is asked once.

use multiversion::multiversion;

/// Splits `pixels` into the beginnings of the three lines, which are as long.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn split(pixels: &[[u8; 3]], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    for (((&[r, g, b], red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
        (*red, *green, *blue) = (r, g, b);
    }
}

/// As [`split`], but mirrored from left to right.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn split_mirrored(pixels: &[[u8; 3]], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    let lines = red.iter_mut().rev().zip(green.iter_mut().rev()).zip(blue.iter_mut().rev());
    for (&[r, g, b], ((red, green), blue)) in pixels.iter().zip(lines) {
        (*red, *green, *blue) = (r, g, b);
    }
}

/// Fills `grey` with Pillow's "L" of the colours.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn to_grey(red: &[u8], green: &[u8], blue: &[u8], grey: &mut [u8]) {
    for (((&red, &green), &blue), grey) in red.iter().zip(green).zip(blue).zip(grey) {
        *grey = grey_of(red, green, blue);
    }
}

/// Pillow's "L" of a colour: ITU-R 601-2 in 65,536ths, rounded.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the weights' sum is 2^16")]
pub(super) fn grey_of(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

/// The other way: fills `pixels` with the colours of three lines, which are as long.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn join(red: &[u8], green: &[u8], blue: &[u8], pixels: &mut [[u8; 3]]) {
    for (((pixel, &red), &green), &blue) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [red, green, blue];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_what_pillow_computes() {
        // Image.new("RGB", (1, 1), colour).convert("L") of Pillow 12.
        let colours = [[0, 0, 0], [255; 3], [255, 0, 0], [0, 255, 0], [0, 0, 255], [1, 2, 3], [200, 100, 50]];
        for ([red, green, blue], expected) in colours.into_iter().zip([0, 255, 76, 150, 29, 2, 124]) {
            let mut grey = [7; 33];
            to_grey(&[red; 33], &[green; 33], &[blue; 33], &mut grey);
            assert_eq!(grey, [expected; 33]);
        }
    }

    #[test]
    fn colours_go_to_their_lines() {
        for len in [0, 1, 7, 31, 32, 33, 100] {
            let pixels: Vec<[u8; 3]> = (0..len).map(|at| [at, at + 100, at + 150]).collect();
            let mut lines = [const { Vec::new() }; 3].map(|mut line: Vec<u8>| {
                line.resize(usize::from(len), 0);
                line
            });
            let [red, green, blue] = &mut lines;
            split(&pixels, red, green, blue);
            assert!((0..3).all(|colour| lines[colour].iter().eq(pixels.iter().map(|pixel| &pixel[colour]))));
            let mut joined = vec![[0; 3]; pixels.len()];
            join(&lines[0], &lines[1], &lines[2], &mut joined);
            assert_eq!(joined, pixels);
            let [red, green, blue] = &mut lines;
            split_mirrored(&pixels, red, green, blue);
            assert!(
                (0..3).all(|colour| lines[colour].iter().eq(pixels.iter().rev().map(|pixel| &pixel[colour])))
            );
        }
    }
}
