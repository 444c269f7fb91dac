//! Lines of Y, Cb and Cr to RGB, as in libjpeg, bit for bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod plain;

use multiversion::multiversion;
use multiversion::target::match_target;

use plain::GROUP;

/// Converts a line of Y, one of Cb and one of Cr, all of the same length.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn to_rgb([y, cb, cr]: [&[u8]; 3], rgb: &mut [u8]) {
    let (pixels, rest) = rgb.as_chunks_mut::<{ 3 * GROUP }>();
    let ([y, cb, cr], behind) = {
        let [y, cb, cr] = [y, cb, cr].map(|line| line.as_chunks::<GROUP>());
        ([y.0, cb.0, cr.0], [y.1, cb.1, cr.1])
    };
    for (((pixels, y), cb), cr) in pixels.iter_mut().zip(y).zip(cb).zip(cr) {
        match_target! {
            "x86_64+avx2" => avx2::to_rgb([*y, *cb, *cr], pixels),
            _ => plain::to_rgb(&[*y, *cb, *cr], pixels),
        }
    }
    plain::to_rgb(&behind, rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cpus_give_the_same() {
        let cr: Vec<u8> = (0..=255).collect();
        for y in (0..=255).step_by(3) {
            for cb in 0..=255 {
                let (mut found, mut expected) = ([0; 768], [0; 768]);
                to_rgb([&[y; 256], &[cb; 256], &cr], &mut found);
                plain::to_rgb(&[&[y; 256][..], &[cb; 256], &cr], &mut expected);
                assert_eq!(found, expected, "{y} {cb}");
            }
        }
    }
}
