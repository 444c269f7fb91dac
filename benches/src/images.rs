//! Seeded images: photographs as JPEG, thumbnails of about 2 KB and icons of about 500 B as PNG.

use std::ops::RangeInclusive;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::result::Result;

/// A kind of photograph: width, height, and the noise that gives its JPEG its bytes.
#[derive(Debug)]
pub(crate) struct Photo {
    pub(crate) size: (usize, usize),
    noise: RangeInclusive<f32>,
}

/// 100 KB in ImageNet's most common size. Half of its height is below 224, so scaling while
/// decoding gains nothing.
pub(crate) const PHOTO: Photo = Photo { size: (500, 375), noise: 69.0..=69.0 };
/// From 40 to 170 KB and 110 KB on average, as ImageNet's files without the few large ones.
pub(crate) const IMAGENET: Photo = Photo { size: (500, 375), noise: 20.0..=170.0 };
/// 10 KB.
pub(crate) const SMALL_PHOTO: Photo = Photo { size: (160, 120), noise: 62.0..=62.0 };
/// Side of a thumbnail, as in CIFAR. Noise makes it some 2 KB.
const THUMBNAIL_SIDE: usize = 32;
const THUMBNAIL_NOISE: f32 = 30.0;
/// Side of an icon.
pub(crate) const ICON_SIDE: usize = 28;
/// Quality of the JPEGs.
const QUALITY: i32 = 90;

/// `count` different photographs of a kind.
pub(crate) fn photos(count: u64, kind: &Photo) -> Result<Vec<Vec<u8>>> {
    let mut compressor = Compressor::new()?;
    compressor.set_quality(QUALITY)?;
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    let (width, height) = kind.size;
    (0..count)
        .map(|seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let noise = random.random_range(kind.noise.clone());
            let pixels = waves(&mut random, kind.size, noise);
            let pixels = pixels.as_slice();
            let image = Image { pixels, width, pitch: 3 * width, height, format: PixelFormat::RGB };
            Ok(compressor.compress_to_vec(image)?)
        })
        .collect()
}

/// Three colour waves under noise, as RGB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float is cut off at 0 and 255"
)]
fn waves(random: &mut ChaCha8Rng, (width, height): (usize, usize), amount: f32) -> Vec<u8> {
    let waves: [[f32; 3]; 3] = std::array::from_fn(|_| {
        [random.random_range(0.005..0.05), random.random_range(0.005..0.05), random.random_range(0.0..6.0)]
    });
    let mut noise = vec![0_u8; width * height];
    random.fill_bytes(&mut noise);
    let mut pixels = Vec::with_capacity(3 * width * height);
    for (place, noise) in noise.into_iter().enumerate() {
        let (x, y) = ((place % width) as f32, (place / width) as f32);
        let noise = (f32::from(noise) / 255.0 - 0.5) * amount;
        pixels.extend(
            waves.map(|[across, down, from]| {
                (128.0 + 90.0 * (x * across + y * down + from).sin() + noise) as u8
            }),
        );
    }
    pixels
}

/// The thumbnail with this seed, also of waves.
pub(crate) fn thumbnail(seed: u64) -> Result<Vec<u8>> {
    let size = (THUMBNAIL_SIDE, THUMBNAIL_SIDE);
    let pixels = waves(&mut ChaCha8Rng::seed_from_u64(seed), size, THUMBNAIL_NOISE);
    png_file(size, png::ColorType::Rgb, &pixels)
}

/// The icon with this seed: a grey disc with noise on it.
pub(crate) fn icon(seed: u64) -> Result<Vec<u8>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let radius: usize = random.random_range(70..125);
    let pixels: Vec<u8> = (0..ICON_SIDE * ICON_SIDE)
        .map(|place| {
            let (x, y) =
                ((place % ICON_SIDE).abs_diff(ICON_SIDE / 2), (place / ICON_SIDE).abs_diff(ICON_SIDE / 2));
            if x * x + y * y < radius { random.random_range(60..=255) } else { 0 }
        })
        .collect();
    png_file((ICON_SIDE, ICON_SIDE), png::ColorType::Grayscale, &pixels)
}

fn png_file((width, height): (usize, usize), color: png::ColorType, pixels: &[u8]) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width.try_into()?, height.try_into()?);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::{IMAGENET, PHOTO, SMALL_PHOTO, icon, photos, thumbnail};

    #[test]
    fn files_are_as_large_as_their_rows_say() {
        let mean = |files: &[Vec<u8>]| files.iter().map(Vec::len).sum::<usize>() / files.len();
        let sizes = [
            mean(&photos(20, &PHOTO).unwrap()),
            mean(&photos(100, &IMAGENET).unwrap()),
            mean(&photos(20, &SMALL_PHOTO).unwrap()),
            mean(&(0..100).map(|seed| thumbnail(seed).unwrap()).collect::<Vec<_>>()),
            mean(&(0..100).map(|seed| icon(seed).unwrap()).collect::<Vec<_>>()),
        ];
        for (size, wanted) in sizes.into_iter().zip([100_000, 110_000, 10_000, 2_000, 500]) {
            assert!(size.abs_diff(wanted) < wanted / 10, "{size} B, not {wanted}: {sizes:?}");
        }
    }
}
