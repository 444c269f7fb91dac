//! A line of interleaved colours to a line for each colour, and those to one of grey.
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

/// Fills `grey` with Pillow's "L" of the colours: ITU-R 601-2 in 65,536ths, rounded.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn to_grey(red: &[u8], green: &[u8], blue: &[u8], grey: &mut [u8]) {
    for (((&red, &green), &blue), grey) in red.iter().zip(green).zip(blue).zip(grey) {
        let [red, green, blue] = [red, green, blue].map(u32::from);
        let [value, ..] = ((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16).to_le_bytes();
        *grey = value;
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
            let [red, green, blue] = &mut lines;
            split_mirrored(&pixels, red, green, blue);
            assert!(
                (0..3).all(|colour| lines[colour].iter().eq(pixels.iter().rev().map(|pixel| &pixel[colour])))
            );
        }
    }
}
