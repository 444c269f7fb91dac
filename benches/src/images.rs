//! Seeded images: photographs of about 100 KB as JPEG (ImageNet: 110) and icons of about 500 B as PNG.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::Result;

/// Width and height of a photograph: ImageNet's most common size. Half of it is less than 224, so a decoder that can
/// scale gains nothing by it.
pub(crate) const PHOTO_SIZE: (usize, usize) = (500, 375);
/// Side of an icon.
pub(crate) const ICON_SIDE: usize = 28;
/// Quality of the JPEGs, and noise that makes them 100 KB at it.
const QUALITY: i32 = 90;
const NOISE: f32 = 69.0;

/// `count` different photographs.
pub(crate) fn photos(count: u64) -> Result<Vec<Vec<u8>>> {
    let mut compressor = Compressor::new()?;
    compressor.set_quality(QUALITY)?;
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    let (width, height) = PHOTO_SIZE;
    (0..count)
        .map(|seed| {
            let pixels = photo(&mut ChaCha8Rng::seed_from_u64(seed));
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
fn photo(random: &mut ChaCha8Rng) -> Vec<u8> {
    let (width, height) = PHOTO_SIZE;
    let waves: [[f32; 3]; 3] = std::array::from_fn(|_| {
        [random.random_range(0.005..0.05), random.random_range(0.005..0.05), random.random_range(0.0..6.0)]
    });
    let mut noise = vec![0_u8; width * height];
    random.fill_bytes(&mut noise);
    let mut pixels = Vec::with_capacity(3 * width * height);
    for (place, noise) in noise.into_iter().enumerate() {
        let (x, y) = ((place % width) as f32, (place / width) as f32);
        let noise = (f32::from(noise) / 255.0 - 0.5) * NOISE;
        pixels.extend(
            waves.map(|[across, down, from]| {
                (128.0 + 90.0 * (x * across + y * down + from).sin() + noise) as u8
            }),
        );
    }
    pixels
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
    let mut file = Vec::new();
    let side = u32::try_from(ICON_SIDE)?;
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}
