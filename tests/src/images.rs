//! Real image files, small and different from each other.

use png::{BitDepth, ColorType, Encoder};
use turbojpeg::{Image, PixelFormat, Subsamp};

/// A file of an ImageFolder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path relative to the ImageFolder, `class/name`.
    pub path: String,
    /// The label that torchvision gives it.
    pub label: u32,
    /// The file's bytes.
    pub bytes: Vec<u8>,
}

/// The classes' folders, in the order of their labels.
#[must_use]
pub fn class_names() -> [&'static str; 3] {
    ["ant", "bee", "cat"]
}

/// `len` bytes that follow from `seed` and look random.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).skip(4).take(len).collect()
}

/// A PNG of `width` x `height` RGB pixels.
#[must_use]
pub fn png(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&noise(seed, (3 * width * height) as usize)).unwrap();
    writer.finish().unwrap();
    file
}

/// A JPEG of `width` x `height` RGB pixels.
#[must_use]
pub fn jpeg(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let [width, height] = [width as usize, height as usize];
    let pixels = noise(seed, 3 * width * height);
    let image = Image { pixels: &pixels[..], width, pitch: 3 * width, height, format: PixelFormat::RGB };
    turbojpeg::compress(image, 90, Subsamp::Sub2x2).unwrap().to_vec()
}
