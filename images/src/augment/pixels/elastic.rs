//! `ElasticTransform`: smooth random fields by which pixels move.

use multiversion::multiversion;

use super::neighbours::Blur;
use super::tensors::{Sampled, sample};
use crate::augment::randomness::Noise;
use crate::{SCRATCH_KEEP_BYTES, Size};

/// An `elastic` whose fields follow from `noise`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Elastic {
    /// Twice the pixels by which a field's 1 moves, to the right and down.
    pub(super) alpha: [f32; 2],
    /// Those of the fields' blur, along lines and columns. Where they are 0 there is none.
    pub(super) sigma: [f32; 2],
    pub(super) sampled: Sampled,
    /// A number from -1 to 1 for each pixel, of the field to the right, then of that down.
    pub(super) noise: Noise,
}

/// Fields with a number for each pixel, line by line.
#[derive(Default)]
pub(super) struct Fields {
    right: Vec<f32>,
    down: Vec<f32>,
}

impl Fields {
    /// Moves the row's pixels.
    pub(super) fn change(
        &mut self,
        row: &mut [u8],
        size: Size,
        elastic: Elastic,
        blur: &mut Blur,
        spare: &mut Vec<u8>,
    ) {
        let pixels = size.width as usize * size.height as usize;
        let mut numbers = elastic.noise.numbers();
        for field in [&mut self.right, &mut self.down] {
            field.clear();
            field.extend(numbers.by_ref().take(pixels));
        }
        self.displace(row, size, elastic, blur, spare);
    }

    /// Moves the row's pixels by the fields as they are, once blurred.
    fn displace(
        &mut self,
        row: &mut [u8],
        size: Size,
        Elastic { alpha, sigma, sampled, .. }: Elastic,
        blur: &mut Blur,
        spare: &mut Vec<u8>,
    ) {
        for (field, own_sigma) in [&mut self.right, &mut self.down].into_iter().zip(sigma) {
            if own_sigma > 0.0 {
                blur.blur_field(field, size, kernel_length(own_sigma), sigma);
            }
        }
        shift(row, size, sampled, [&self.right, &self.down], alpha, spare);
    }

    /// Frees the fields if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        if size_of::<f32>() * self.right.capacity() > SCRATCH_KEEP_BYTES {
            *self = Self::default();
        }
    }
}

/// Moves each pixel by what the two fields have for it.
#[multiversion(targets("x86_64+avx2+fma"))]
fn shift(
    row: &mut [u8],
    size: Size,
    sampled: Sampled,
    [right, down]: [&[f32]; 2],
    alpha: [f32; 2],
    spare: &mut Vec<u8>,
) {
    let [width, height] = [size.width, size.height].map(|side| side as f32);
    // From -1 to 1, as torch has places.
    let middle = |at: u32, side: f32| (2.0 * at as f32 + 1.0 - side) / side;
    sample(row, size, sampled, spare, |x, y| {
        let at = y as usize * size.width as usize + x as usize;
        let by = |field: &[f32]| field.get(at).copied().unwrap_or_default();
        [middle(x, width) + by(right) * alpha[0] / width, middle(y, height) + by(down) * alpha[1] / height]
    });
}

/// Taps of torchvision's kernel along both sides: an odd number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "249 at most")]
fn kernel_length(sigma: f32) -> u8 {
    let length = (8.0 * sigma + 1.0) as u8;
    length | 1
}

#[cfg(test)]
mod tests {
    use shade_job::Interpolation;

    use super::*;
    use crate::augment::randomness::Randomness;
    use shade_formats::Draw;

    const SIZE: Size = Size { width: 6, height: 5 };

    /// torchvision 0.29's results for the fields and levels below.
    const BILINEAR: [u8; 90] = [
        9, 63, 153, 9, 196, 183, 25, 54, 94, 201, 9, 8, 9, 159, 108, 119, 132, 179, 143, 13, 67, 106, 9, 69,
        9, 213, 169, 11, 136, 9, 100, 133, 88, 100, 55, 46, 110, 123, 179, 137, 100, 90, 100, 86, 175, 204,
        202, 22, 58, 88, 135, 191, 100, 61, 100, 47, 92, 87, 221, 100, 201, 69, 67, 201, 140, 131, 191, 135,
        66, 115, 201, 181, 201, 171, 94, 69, 46, 93, 132, 177, 140, 72, 201, 121, 201, 132, 177, 175, 53,
        201,
    ];
    const NEAREST: [u8; 90] = [
        0, 113, 175, 0, 219, 175, 7, 69, 96, 228, 0, 0, 0, 43, 122, 140, 149, 175, 255, 0, 34, 105, 0, 202,
        0, 246, 52, 0, 149, 0, 0, 198, 4, 0, 48, 4, 92, 154, 181, 57, 0, 0, 0, 128, 207, 225, 234, 4, 84, 0,
        119, 190, 0, 31, 0, 75, 137, 0, 234, 0, 0, 27, 89, 0, 133, 89, 177, 239, 10, 142, 0, 0, 0, 213, 36,
        54, 63, 89, 169, 0, 204, 19, 0, 116, 0, 160, 222, 0, 63, 0,
    ];

    /// A row, moved by fields that are drawn on paper.
    fn displaced(sampled: Sampled) -> Vec<u8> {
        let numbered =
            |step: u16, start: u16| (0..30).map(move |at| f32::from((at * step + start) % 64) / 32.0 - 1.0);
        let mut fields = Fields { right: numbered(37, 11).collect(), down: numbered(23, 5).collect() };
        let noise = Randomness::of_pixels(Draw::default(), 0).noise();
        let elastic = Elastic { alpha: [8.0, 5.0], sigma: [0.5, 0.375], sampled, noise };
        let levels = (0..3_u32).flat_map(|colour| (0..30).map(move |at| (at * 53 + 7 + 85 * colour) % 256));
        let mut row: Vec<u8> = levels.map(|level| u8::try_from(level).unwrap()).collect();
        fields.displace(&mut row, SIZE, elastic, &mut Blur::default(), &mut vec![1; 7]);
        row
    }

    #[test]
    fn pixels_are_those_of_torchvisions_elastic() {
        let fill = Some([9, 100, 201]);
        assert_eq!(displaced(Sampled { interpolation: Interpolation::Bilinear, fill }), BILINEAR);
        assert_eq!(displaced(Sampled { interpolation: Interpolation::Nearest, fill: None }), NEAREST);
    }

    #[test]
    fn kernels_have_torchvisions_lengths() {
        // int(8 * sigma + 1), and one more if it is even.
        let lengths = [0.1, 0.125, 0.25, 0.5, 5.0, 31.0].map(kernel_length);
        assert_eq!(lengths, [1, 3, 3, 5, 41, 249]);
    }
}
