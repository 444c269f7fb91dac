//! `AugMix`: chains of operations on copies of a row, and what they count in the mixture with it.
//!
//! torchvision makes a tensor of a PIL image for it, so its operations are those of tensors.

use shade_job::{Colour, Transform};

use super::mixture::Mix;
use super::moved::affine;
use super::operation::Operation;
use super::policies::Name::{
    self, AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};
use super::policies::{linspace, pixels, single};
use super::tensors::{OfTensor, Sampled};
use crate::Size;
use crate::augment::randomness::Randomness;

/// Magnitudes of each operation.
const BINS: u8 = 10;
/// Operations of a chain without a fixed number of them, at most.
const DEPTH_MAX: u32 = 3;
/// Draws for a number of a gamma distribution. Each succeeds in 95 of 100 cases or more.
const TRIES: u32 = 100;

/// What a chain is made of, and what comes to it with `all_ops`.
const SOME: [Name; 9] =
    [ShearX, ShearY, TranslateX, TranslateY, Rotate, Posterize, Solarize, AutoContrast, Equalize];
const MORE: [Name; 4] = [Brightness, Color, Contrast, Sharpness];

/// Passes the operations of an `AugMix`, drawn for a row of this size, to `each`.
pub(super) fn aug_mix(
    transform: &Transform,
    row: Size,
    random: &mut Randomness,
    each: &mut impl FnMut(Operation),
) {
    let Transform::AugMix { severity, mixture_width, chain_depth, alpha, all_ops, interpolation, fill } =
        *transform
    else {
        unreachable!("it is an AugMix: {transform:?}");
    };
    let sampled = Sampled { interpolation, fill: fill.map(|Colour(fill)| fill) };
    let [kept, changed] = shares(alpha, 2, random)[..] else { unreachable!("two were asked for") };
    let of_chains = shares(alpha, usize::from(mixture_width), random);
    each(Operation::Mix(Mix::Begin(single(kept))));
    for share in of_chains {
        let depth = u32::try_from(chain_depth).ok().filter(|&depth| depth > 0);
        for _ in 0..depth.unwrap_or_else(|| 1 + random.up_to(DEPTH_MAX - 1)) {
            let nth = random.up_to(if all_ops { 12 } else { 8 }) as usize;
            let Some(&name) = SOME.iter().chain(&MORE).nth(nth) else { continue };
            let bin = if name.has_magnitude() { random.up_to(u32::from(severity) - 1) } else { 0 };
            let negative = name.is_signed() && random.up_to(1) == 1;
            each(operation(name, u8::try_from(bin).unwrap_or_default(), negative, row, sampled));
        }
        each(Operation::Mix(Mix::Add(single(share) * single(changed))));
    }
    each(Operation::Mix(Mix::End));
}

/// The operation with magnitude number `bin`; with the other sign if it has one.
fn operation(name: Name, bin: u8, negative: bool, row: Size, sampled: Sampled) -> Operation {
    let sign = if negative { -1.0 } else { 1.0 };
    let signed = |largest: f64| sign * linspace(0.0, largest, BINS, bin);
    let [width, height] = [row.width, row.height].map(f64::from);
    let corner = [-width / 2.0, -height / 2.0];
    let moved = |matrix| Operation::OfTensor(OfTensor::Move(matrix, sampled));
    let sheared = |shear| moved(affine(0.0, [0, 0], 1.0, shear, corner));
    let translated = |by| moved(affine(0.0, by, 1.0, [0.0; 2], [0.0; 2]));
    let degrees = |tangent: f64| tangent.atan().to_degrees();
    let factor = || 1.0 + signed(0.9);
    match name {
        ShearX => sheared([degrees(signed(0.3)), 0.0]),
        ShearY => sheared([0.0, degrees(signed(0.3))]),
        TranslateX => translated([pixels(signed(width / 3.0)), 0]),
        TranslateY => translated([0, pixels(signed(height / 3.0))]),
        // By a magnitude of 0 nothing moves, either: every place is that of a pixel.
        Rotate => moved(affine(-signed(30.0).rem_euclid(360.0), [0, 0], 1.0, [0.0; 2], [0.0; 2])),
        Brightness => Operation::OfTensor(OfTensor::Brightness(factor())),
        Color => Operation::OfTensor(OfTensor::Saturation(factor())),
        Contrast => Operation::OfTensor(OfTensor::Contrast(factor())),
        Sharpness => Operation::OfTensor(OfTensor::Sharpness(factor())),
        Posterize => Operation::Posterize(4 - removed_bits(bin)),
        Solarize => Operation::Solarize(single(255.0 * linspace(1.0, 0.0, BINS, bin))),
        AutoContrast => Operation::OfTensor(OfTensor::Autocontrast),
        Equalize => Operation::Equalize,
        Invert => unreachable!("no chain has it"),
    }
}

/// Bits that posterize does not keep, from the four that it keeps at most.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 0 to 4")]
fn removed_bits(bin: u8) -> u8 {
    (f32::from(bin) / (f32::from(BINS - 1) / 4.0)).round_ties_even() as u8
}

/// Shares of 1 by a Dirichlet distribution of equal parameters.
fn shares(alpha: f64, count: usize, random: &mut Randomness) -> Vec<f64> {
    // In logarithms, as small parameters make numbers that are 0 otherwise, all of them.
    let logarithms: Vec<f64> = (0..count).map(|_| ln_gamma(alpha, random)).collect();
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let numbers: Vec<f64> = logarithms.iter().map(|logarithm| (logarithm - most).exp()).collect();
    let sum: f64 = numbers.iter().sum();
    numbers.iter().map(|number| number / sum).collect()
}

/// The logarithm of a number of the gamma distribution of this shape (Marsaglia and Tsang, 2000).
fn ln_gamma(shape: f64, random: &mut Randomness) -> f64 {
    if shape < 1.0 {
        let larger = ln_gamma(shape + 1.0, random);
        return larger + (1.0 - random.share()).ln() / shape;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    for _ in 0..TRIES {
        let normal = random.normal();
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && (1.0 - random.share()).ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return (d * v).ln();
        }
    }
    d.ln()
}

#[cfg(test)]
mod tests {
    use shade_formats::Draw;
    use shade_job::Interpolation;

    use super::*;

    #[test]
    fn shares_have_the_moments_of_their_distribution() {
        for (alpha, count) in [(1.0, 3), (0.3, 2), (5.0, 4), (0.001, 3), (1000.0, 2)] {
            let mut random = Randomness::of_pixels(Draw::at(1, 2, 3), 0);
            let (mut sums, mut squares) = (vec![0.0; count], 0.0);
            let draws = 4000.0;
            for _ in 0..4000 {
                let drawn = shares(alpha, count, &mut random);
                assert!((drawn.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{drawn:?}");
                squares += drawn[0] * drawn[0];
                sums.iter_mut().zip(drawn).for_each(|(sum, share)| *sum += share);
            }
            let k = count as f64;
            let variance = (k - 1.0) / (k * k * (k * alpha + 1.0));
            let deviation = (variance / draws).sqrt();
            for sum in &sums {
                assert!((sum / draws - 1.0 / k).abs() < 5.0 * deviation, "{alpha} {count}: {sums:?}");
            }
            let found = squares / draws - (sums[0] / draws).powi(2);
            assert!((found / variance - 1.0).abs() < 0.15, "{alpha} {count}: {found}, not {variance}");
        }
    }

    #[test]
    fn bits_and_pixels_are_those_of_torchvision() {
        let sampled = Sampled { interpolation: Interpolation::Bilinear, fill: None };
        let row = Size { width: 90, height: 60 };
        let at = |name, bin, negative| operation(name, bin, negative, row, sampled);
        let kept = [4, 4, 3, 3, 2, 2, 1, 1, 0, 0];
        for (bin, bits) in (0..).zip(kept) {
            assert_eq!(at(Posterize, bin, false), Operation::Posterize(bits));
        }
        assert_eq!(at(Solarize, 0, false), Operation::Solarize(255.0));
        let moved = |x: f64| Operation::OfTensor(OfTensor::Move([1.0, 0.0, x, 0.0, 1.0, 0.0], sampled));
        assert_eq!(at(TranslateX, 9, true), moved(30.0));
        assert_eq!(at(TranslateX, 1, false), moved(-3.0));
    }
}
