//! The three planes of an image, and the operations on them in turn.

use shade_job::Transform;

use super::operation::Operation;
use super::{colours, curves, draws, elastic, hue, mixture, moved, neighbours, pillow_blur, tensors};
use crate::augment::randomness::Randomness;
use crate::{Size, scratch, shrink};

/// Planes that are changed in place; keeps its buffers between images.
#[derive(Default)]
pub(super) struct Canvas {
    planes: Vec<u8>,
    /// A copy of what an operation changes.
    spare: Vec<u8>,
    blur: neighbours::Blur,
    mixture: mixture::Mixture,
    fields: elastic::Fields,
}

impl Canvas {
    /// The planes of an image of this size, one after the other. A new size leaves them
    /// unspecified.
    pub(super) fn planes(&mut self, size: Size) -> &mut [u8] {
        scratch(&mut self.planes, 3 * size.width as usize * size.height as usize)
    }

    /// Does the operations that `transforms` and `random` define.
    pub(super) fn change(&mut self, transforms: &[Transform], size: Size, random: &mut Randomness) {
        let Self { planes, spare, blur, mixture, fields } = self;
        let planes = scratch(planes, 3 * size.width as usize * size.height as usize);
        draws::draw(transforms, size, random, &mut |operation| match operation {
            Operation::Brightness(factor) => colours::brightness(planes, factor),
            Operation::Contrast(factor) => colours::contrast(planes, factor),
            Operation::Saturation(factor) => colours::saturation(planes, factor),
            Operation::Hue(shift) => hue::hue(planes, shift),
            Operation::Grey => colours::grayscale(planes),
            Operation::Permute(from) => colours::permute(planes, from, spare),
            Operation::Blur { kernel, sigma } => blur.blur(planes, size, kernel, sigma),
            Operation::PillowBlur(radius) => pillow_blur::blur(planes, size, radius, spare),
            Operation::Solarize(threshold) => curves::solarize(planes, threshold),
            Operation::SolarizeAdd(add) => curves::solarize_add(planes, add),
            Operation::Posterize(bits) => curves::posterize(planes, bits),
            Operation::Invert => curves::invert(planes),
            Operation::Autocontrast => curves::autocontrast(planes),
            Operation::Equalize => curves::equalize(planes),
            Operation::Sharpness(factor) => neighbours::sharpness(planes, size, factor, spare),
            Operation::Move(motion, how) => moved::shift(planes, size, motion, how, spare),
            Operation::OfTensor(operation) => tensors::change(planes, size, operation, spare),
            Operation::Mix(step) => mixture.step(planes, step),
            Operation::Elastic(elastic) => fields.change(planes, size, elastic, blur, spare),
            Operation::Erase(area, colour) => moved::erase(planes, size, area, colour),
        });
    }

    /// Frees the buffers if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.planes);
        shrink(&mut self.spare);
        self.blur.shrink();
        self.mixture.shrink();
        self.fields.shrink();
    }
}
