//! From a view's transforms to operations: the draws of one row.

use shade_job::{Colour, Degrees, Factor, Hue, InTurn, Interpolation, Pair, Range, Shear, Transform};

use super::aug_mix::aug_mix;
use super::auto_augment::auto_augment;
use super::elastic::Elastic;
use super::operation::{Motion, Moved, Operation};
use super::policies::{rand_augment, trivial_augment_wide};
use super::tensors::Sampled;
use super::{perspective, timm};
use crate::augment::randomness::Randomness;
use crate::{Area, Size};

/// Rectangles that `RandomErasing` tries before it leaves the row as it is.
const TRIES: u32 = 10;

/// Passes the operations of `transforms` on a row of size `row` to `each`, in their order.
pub(super) fn draw(
    transforms: &[Transform],
    row: Size,
    random: &mut Randomness,
    each: &mut impl FnMut(Operation),
) {
    for transform in transforms {
        one(transform, row, random, each);
    }
}

/// The operations of one transform.
fn one(transform: &Transform, row: Size, random: &mut Randomness, each: &mut impl FnMut(Operation)) {
    match *transform {
        Transform::RandomApply { ref transforms, p } => {
            if happens(p, random) {
                draw(&transforms.0, row, random, each);
            }
        }
        Transform::RandomChoice { ref transforms, ref p } => {
            let part = chosen(transforms, p.as_deref(), random);
            draw(part, row, random, each);
        }
        Transform::RandomOrder { ref transforms } => {
            let mut parts: Vec<&InTurn> = transforms.iter().collect();
            shuffle(&mut parts, random);
            for part in parts {
                draw(&part.0, row, random, each);
            }
        }
        Transform::ColorJitter { brightness, contrast, saturation, hue } => {
            let (Factor(brightness), Factor(contrast)) = (brightness, contrast);
            let (Factor(saturation), Hue(hue)) = (saturation, hue);
            jitter([brightness, contrast, saturation, hue], random, each);
        }
        Transform::GaussianBlur { kernel_size: Pair(kernel), sigma: Pair(sigma) } => {
            each(Operation::Blur { kernel, sigma: between(sigma, random) });
        }
        Transform::PillowGaussianBlur { radius: Pair(radius), p } => {
            if happens(p, random) {
                each(Operation::PillowBlur(between(radius, random)));
            }
        }
        Transform::RandomErasing { p, scale, ratio, value } => {
            if happens(p, random)
                && let Some(area) = erased(row, scale, ratio, random)
            {
                each(Operation::Erase(area, value.0));
            }
        }
        Transform::RandomChannelPermutation {} => {
            let mut from = [0, 1, 2];
            shuffle(&mut from, random);
            each(Operation::Permute(from));
        }
        Transform::RandAugment { .. }
        | Transform::TimmRandAugment { .. }
        | Transform::TrivialAugmentWide { .. }
        | Transform::AutoAugment { .. }
        | Transform::RandomRotation { .. }
        | Transform::RandomAffine { .. }
        | Transform::RandomPerspective { .. }
        | Transform::ElasticTransform { .. }
        | Transform::AugMix { .. } => moving(transform, row, random, each),
        _ => {
            let (p, operation) = single(transform);
            perhaps(p, operation, random, each);
        }
    }
}

/// The operations of a transform that moves pixels, or may.
fn moving(transform: &Transform, row: Size, random: &mut Randomness, each: &mut impl FnMut(Operation)) {
    match *transform {
        Transform::RandAugment { num_ops, magnitude, num_magnitude_bins, interpolation, fill } => {
            let moved = moved(interpolation, fill);
            for _ in 0..num_ops {
                rand_augment(magnitude, num_magnitude_bins, moved, row, random)
                    .into_iter()
                    .for_each(&mut *each);
            }
        }
        Transform::TimmRandAugment { num_ops, .. } => {
            for _ in 0..num_ops {
                timm::rand_augment(transform, row, random).into_iter().for_each(&mut *each);
            }
        }
        Transform::TrivialAugmentWide { num_magnitude_bins, interpolation, fill } => {
            let moved = moved(interpolation, fill);
            trivial_augment_wide(num_magnitude_bins, moved, random).into_iter().for_each(each);
        }
        Transform::AutoAugment { policy, interpolation, fill } => {
            auto_augment(policy, moved(interpolation, fill), row, random, each);
        }
        Transform::RandomRotation { degrees: Degrees(degrees), interpolation, center, fill } => {
            let degrees = between(degrees, random).into();
            let motion =
                center.map_or(Motion::Rotate(degrees), |center| Motion::RotateAbout(center, degrees));
            each(Operation::Move(motion, moved(interpolation, fill)));
        }
        Transform::RandomAffine {
            degrees: Degrees(degrees),
            translate: Pair(translate),
            scale: Pair(scale),
            shear: Shear([x_least, x_most, y_least, y_most]),
            interpolation,
            fill,
            center,
        } => {
            let [right, below] = translate;
            let motion = Motion::Affine {
                degrees: between(degrees, random).into(),
                translate: [along(right, row.width, random), along(below, row.height, random)],
                scale: between(scale, random).into(),
                shear: [between([x_least, x_most], random), between([y_least, y_most], random)]
                    .map(f64::from),
                center,
            };
            each(Operation::Move(motion, moved(interpolation, fill)));
        }
        Transform::RandomPerspective { distortion_scale, p, interpolation, fill } => {
            if happens(p, random)
                && let Some(coefficients) = perspective::drawn(distortion_scale, row, random)
            {
                each(Operation::Move(Motion::Perspective(coefficients), moved(interpolation, fill)));
            }
        }
        Transform::ElasticTransform { alpha, sigma, interpolation, fill } => {
            let sampled = Sampled { interpolation, fill: fill.map(|Colour(fill)| fill) };
            let noise = random.noise();
            each(Operation::Elastic(Elastic { alpha: alpha.0, sigma: sigma.0, sampled, noise }));
        }
        Transform::AugMix { .. } => aug_mix(transform, row, random, each),
        _ => unreachable!("it moves no pixels: {transform:?}"),
    }
}

/// The chance of a transform that is one operation with no numbers to draw, and that operation.
fn single(transform: &Transform) -> (f32, Operation) {
    match *transform {
        // With one channel it comes last, and the finished row is made grey.
        Transform::Grayscale { num_output_channels: _ } => (1.0, Operation::Grey),
        Transform::RandomGrayscale { p } => (p, Operation::Grey),
        Transform::RandomSolarize { threshold, p } => (p, Operation::Solarize(threshold)),
        Transform::RandomPosterize { bits, p } => (p, Operation::Posterize(bits)),
        Transform::RandomInvert { p } => (p, Operation::Invert),
        Transform::RandomAutocontrast { p } => (p, Operation::Autocontrast),
        Transform::RandomEqualize { p } => (p, Operation::Equalize),
        Transform::RandomAdjustSharpness { sharpness_factor, p } => {
            (p, Operation::Sharpness(sharpness_factor))
        }
        Transform::RandomApply { .. }
        | Transform::RandomChoice { .. }
        | Transform::RandomOrder { .. }
        | Transform::ColorJitter { .. }
        | Transform::GaussianBlur { .. }
        | Transform::PillowGaussianBlur { .. }
        | Transform::RandomChannelPermutation {}
        | Transform::RandomErasing { .. }
        | Transform::RandomRotation { .. }
        | Transform::RandomAffine { .. }
        | Transform::RandomPerspective { .. }
        | Transform::ElasticTransform { .. }
        | Transform::AugMix { .. }
        | Transform::RandAugment { .. }
        | Transform::TimmRandAugment { .. }
        | Transform::TrivialAugmentWide { .. }
        | Transform::AutoAugment { .. } => unreachable!("it has numbers to draw: {transform:?}"),
        Transform::Cover { .. }
        | Transform::Whole { .. }
        | Transform::Resize { .. }
        | Transform::Pad { .. }
        | Transform::CenterCrop { .. }
        | Transform::FiveCrop { .. }
        | Transform::RandomCrop { .. }
        | Transform::RandomResizedCrop { .. }
        | Transform::RandomHorizontalFlip { .. }
        | Transform::RandomVerticalFlip { .. } => {
            unreachable!("a view has its geometry apart from its pixels: {transform:?}")
        }
    }
}

fn moved(interpolation: Interpolation, Colour(fill): Colour) -> Moved {
    Moved { interpolation, fill }
}

/// The part of a `RandomChoice` that is drawn by the parts' weights; all weigh alike without these.
fn chosen<'a>(parts: &'a [InTurn], p: Option<&[f64]>, random: &mut Randomness) -> &'a [Transform] {
    let weights = || p.into_iter().flatten().copied().chain(std::iter::repeat(1.0)).take(parts.len());
    let place = random.share() * weights().sum::<f64>();
    let mut sum = 0.0;
    // Sums in one order are equal, so that the last one is the total.
    let part = weights().position(|weight| {
        sum += weight;
        place < sum
    });
    let part = part.and_then(|part| parts.get(part));
    part.map_or(&[], |part| &part.0)
}

/// Brings `values` into a random order, each equally likely.
fn shuffle<T>(values: &mut [T], random: &mut Randomness) {
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    for last in (1..count).rev() {
        values.swap(last as usize, random.up_to(last) as usize);
    }
}

fn happens(p: f32, random: &mut Randomness) -> bool {
    random.share() < f64::from(p)
}

fn perhaps(p: f32, operation: Operation, random: &mut Randomness, each: &mut impl FnMut(Operation)) {
    if happens(p, random) {
        each(operation);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both ends have single precision")]
fn between([from, to]: Range, random: &mut Randomness) -> f32 {
    random.between([f64::from(from), f64::from(to)]) as f32
}

/// Pixels by which `RandomAffine` moves along a side, up to a share of it.
#[expect(clippy::cast_possible_truncation, reason = "rounded as torchvision does")]
fn along(share: f32, side: u32, random: &mut Randomness) -> i32 {
    let most = f64::from(share) * f64::from(side);
    random.between([-most, most]).round_ties_even() as i32
}

/// The four adjustments of `ColorJitter` in random order.
fn jitter(ranges: [Range; 4], random: &mut Randomness, each: &mut impl FnMut(Operation)) {
    let mut order: [u8; 4] = [0, 1, 2, 3];
    shuffle(&mut order, random);
    for nth in order {
        let [brightness, contrast, saturation, hue] = ranges;
        match nth {
            0 if brightness != [1.0; 2] => each(Operation::Brightness(between(brightness, random))),
            1 if contrast != [1.0; 2] => each(Operation::Contrast(between(contrast, random))),
            2 if saturation != [1.0; 2] => each(Operation::Saturation(between(saturation, random))),
            3 if hue != [0.0; 2] => each(Operation::Hue(between(hue, random))),
            _ => {}
        }
    }
}

/// The part that `RandomErasing` erases. `None`: no rectangle was small enough.
fn erased(row: Size, scale: Range, ratio: Range, random: &mut Randomness) -> Option<Area> {
    let area = f64::from(row.width) * f64::from(row.height);
    let log_ratio = ratio.map(|ratio| f64::from(ratio).ln());
    for _ in 0..TRIES {
        let erased = area * f64::from(between(scale, random));
        // Height over width here, other than in `RandomResizedCrop`.
        let ratio = random.between(log_ratio).exp();
        let (height, width) = (side(erased * ratio), side(erased / ratio));
        if height < row.height && width < row.width {
            let top = random.up_to(row.height - height);
            let left = random.up_to(row.width - width);
            return Some(Area { left, top, size: Size { width, height } });
        }
    }
    None
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded as torchvision does, and at least 0"
)]
fn side(area: f64) -> u32 {
    area.sqrt().round_ties_even() as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use shade_formats::Draw;
    use shade_job::ImageSpec;

    use super::super::operation::Motion;
    use super::*;

    const ROW: Size = Size { width: 64, height: 32 };

    /// The operations of `count` rows.
    fn drawn(steps: &[Transform], count: u32) -> Vec<Vec<Operation>> {
        let size = Pair([ROW.height, ROW.width]);
        let spec = ImageSpec::new(&[&[Transform::CenterCrop { size }], steps].concat()).unwrap();
        let operations = |position| {
            let mut found = Vec::new();
            let mut random = Randomness::of_pixels(Draw::at(1, 2, position), 0);
            draw(&spec.pixels, ROW, &mut random, &mut |operation| found.push(operation));
            found
        };
        (0..count).map(operations).collect()
    }

    fn applied(p: f32, transforms: Vec<Transform>) -> Transform {
        Transform::RandomApply { transforms: InTurn(transforms), p }
    }

    fn rand_augment(num_ops: u8, magnitude: u8) -> Transform {
        let (interpolation, fill) = (Interpolation::Nearest, Colour::default());
        Transform::RandAugment { num_ops, magnitude, num_magnitude_bins: 31, interpolation, fill }
    }

    fn trivial() -> Transform {
        let (interpolation, fill) = (Interpolation::Nearest, Colour::default());
        Transform::TrivialAugmentWide { num_magnitude_bins: 31, interpolation, fill }
    }

    /// The name of an operation without its numbers.
    fn name(operation: &Operation) -> String {
        let text = format!("{operation:?}");
        let text = text.strip_prefix("Move(").unwrap_or(&text);
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    }

    /// Whether `count` of `of` is within five standard deviations of the chance `p`.
    fn is_about(count: usize, of: usize, p: f64) -> bool {
        let of = of as f64;
        (count as f64 - of * p).abs() < 5.0 * (of * p * (1.0 - p)).sqrt()
    }

    #[test]
    fn each_operation_comes_with_its_chance() {
        let p = 0.3;
        for step in [
            Transform::RandomGrayscale { p },
            Transform::RandomSolarize { threshold: 128.0, p },
            Transform::RandomPosterize { bits: 4, p },
            Transform::RandomInvert { p },
            Transform::RandomAutocontrast { p },
            Transform::RandomEqualize { p },
            Transform::RandomAdjustSharpness { sharpness_factor: 2.0, p },
            Transform::RandomErasing { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Colour([0; 3]) },
        ] {
            let rows = drawn(std::slice::from_ref(&step), 4000);
            let count = rows.iter().filter(|operations| !operations.is_empty()).count();
            assert!(is_about(count, rows.len(), 0.3), "{step:?}: {count}");
        }
    }

    #[test]
    fn what_random_apply_holds_comes_as_a_whole_or_not_at_all() {
        let apply = applied(0.8, vec![always(1.0), always(2.0)]);
        let rows = drawn(&[apply, Transform::RandomInvert { p: 1.0 }], 4000);
        let whole = rows.iter().filter(|operations| operations.len() == 3).count();
        assert!(is_about(whole, rows.len(), 0.8), "{whole}");
        assert!(rows.iter().all(|operations| operations.last() == Some(&Operation::Invert)));
        assert!(rows.iter().all(|operations| [1, 3].contains(&operations.len())));
    }

    /// The chi-squared statistic of `counts` against `expected`, and its bound: five standard
    /// deviations above its mean.
    fn chi_squared(counts: &[usize], expected: &[f64]) -> (f64, f64) {
        let total = counts.iter().sum::<usize>() as f64;
        let statistic = counts.iter().zip(expected).map(|(&count, share)| {
            let wanted = total * share;
            (count as f64 - wanted).powi(2) / wanted
        });
        let freedom = counts.len() as f64 - 1.0;
        (statistic.sum(), freedom + 5.0 * (2.0 * freedom).sqrt())
    }

    fn always(threshold: f32) -> Transform {
        Transform::RandomSolarize { threshold, p: 1.0 }
    }

    #[test]
    fn random_choice_draws_one_part_by_weight() {
        for weights in [&[1.0, 1.0, 1.0][..], &[0.5, 0.25, 0.25], &[0.1, 0.0, 0.7], &[1.0], &[0.0, 1e-30]] {
            let thresholds = [0.0, 1.0, 2.0].into_iter().take(weights.len());
            let choice = Transform::RandomChoice {
                transforms: thresholds.map(|threshold| InTurn(vec![always(threshold)])).collect(),
                p: Some(weights.to_vec()),
            };
            let rows = drawn(&[choice, Transform::RandomInvert { p: 1.0 }], 6000);
            let counts = [0.0, 1.0, 2.0].map(|wanted| {
                let is_it = |operations: &&Vec<Operation>| operations[0] == Operation::Solarize(wanted);
                assert!(rows.iter().all(|operations| operations[1..] == [Operation::Invert]));
                rows.iter().filter(is_it).count()
            });
            let total: f64 = weights.iter().sum();
            let mut possible = (Vec::new(), Vec::new());
            for (weight, count) in weights.iter().zip(counts) {
                if *weight > 0.0 {
                    possible.0.push(count);
                    possible.1.push(weight / total);
                }
            }
            assert_eq!(possible.0.iter().sum::<usize>(), rows.len(), "{weights:?}: {counts:?}");
            let (statistic, bound) = chi_squared(&possible.0, &possible.1);
            assert!(statistic <= bound, "{weights:?}: {counts:?}, {statistic} > {bound}");
        }
    }

    #[test]
    fn random_order_has_every_order_alike_and_keeps_what_belongs_together() {
        let pair = InTurn(vec![always(10.0), always(11.0)]);
        let choice = Transform::RandomChoice {
            transforms: vec![InTurn(vec![always(2.0)]), InTurn::default()],
            p: None,
        };
        let [first, choice, last] = [always(0.0), choice, always(3.0)].map(|step| InTurn(vec![step]));
        let steps = [Transform::RandomOrder { transforms: vec![first, pair, choice, last] }];
        let mut orders: HashMap<String, usize> = HashMap::new();
        let mut with_choice = 0;
        let rows = drawn(&steps, 12_000);
        for operations in &rows {
            let at = operations.iter().position(|operation| *operation == Operation::Solarize(10.0)).unwrap();
            assert_eq!(operations[at + 1], Operation::Solarize(11.0), "{operations:?}");
            if operations.contains(&Operation::Solarize(2.0)) {
                with_choice += 1;
                *orders.entry(format!("{operations:?}")).or_default() += 1;
            }
        }
        assert!(is_about(with_choice, rows.len(), 0.5), "{with_choice}");
        let counts: Vec<_> = orders.values().copied().collect();
        assert_eq!(counts.len(), 24);
        let (statistic, bound) = chi_squared(&counts, &[1.0 / 24.0; 24]);
        assert!(statistic <= bound, "{orders:?}, {statistic} > {bound}");
    }

    #[test]
    fn steps_are_held_in_any_depth() {
        let inner = applied(1.0, vec![applied(1.0, vec![always(2.0)]), always(3.0)]);
        let order = Transform::RandomOrder { transforms: vec![InTurn(vec![inner])] };
        let steps = vec![always(1.0), order];
        let expected = [1.0, 2.0, 3.0].map(Operation::Solarize);
        assert!(drawn(&[applied(1.0, steps.clone())], 20).iter().all(|operations| operations == &expected));
        let never = [applied(0.0, steps), always(4.0)];
        assert!(drawn(&never, 20).iter().all(|operations| operations == &[Operation::Solarize(4.0)]));
    }

    #[test]
    fn colour_jitter_has_every_order_and_even_factors() {
        let jitter = Transform::ColorJitter {
            brightness: Factor([0.6, 1.4]),
            contrast: Factor([0.5, 1.5]),
            saturation: Factor([0.0, 2.0]),
            hue: Hue([-0.1, 0.1]),
        };
        let rows = drawn(&[jitter], 4800);
        let mut orders: HashMap<Vec<String>, usize> = HashMap::new();
        let mut low = 0;
        for operations in &rows {
            *orders.entry(operations.iter().map(name).collect()).or_default() += 1;
            for operation in operations {
                match *operation {
                    Operation::Brightness(factor) => {
                        assert!((0.6..=1.4).contains(&factor));
                        low += usize::from(factor < 0.8);
                    }
                    Operation::Contrast(factor) => assert!((0.5..=1.5).contains(&factor)),
                    Operation::Saturation(factor) => assert!((0.0..=2.0).contains(&factor)),
                    Operation::Hue(shift) => assert!((-0.1..=0.1).contains(&shift)),
                    ref other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(orders.len(), 24);
        assert!(orders.values().all(|&count| is_about(count, rows.len(), 1.0 / 24.0)), "{orders:?}");
        assert!(is_about(low, rows.len(), 0.25), "{low}");
    }

    #[test]
    fn the_policies_choose_evenly_among_fourteen_operations() {
        for step in [trivial(), rand_augment(1, 9)] {
            let rows = drawn(std::slice::from_ref(&step), 7000);
            let mut names: HashMap<String, usize> = HashMap::new();
            for operations in &rows {
                let name = operations.first().map_or_else(|| "Identity".to_owned(), name);
                *names.entry(name).or_default() += 1;
            }
            assert_eq!(names.len(), 14, "{names:?}");
            assert!(names.values().all(|&count| is_about(count, rows.len(), 1.0 / 14.0)), "{names:?}");
        }
        assert!(drawn(&[rand_augment(2, 9)], 50).iter().any(|operations| operations.len() == 2));
    }

    #[test]
    fn magnitudes_are_those_of_torchvision() {
        let moved = Moved::default();
        let all = drawn(&[rand_augment(16, 9)], 60).concat();
        let has = |wanted| all.contains(&wanted);
        let shear = 0.09 + f64::from(0.09_f32) - 0.09;
        assert!(has(Operation::Posterize(7)) && has(Operation::Solarize(178.5)));
        assert!(has(Operation::Move(Motion::TranslateX(8), moved)), "150 / 331 of 64, 9 of 30");
        assert!(has(Operation::Move(Motion::TranslateY(-4), moved)), "150 / 331 of 32, 9 of 30");
        assert!(all.iter().any(|operation| matches!(
            operation,
            Operation::Move(Motion::ShearX(x), _) if (x - shear).abs() < 1e-7
        )));
        assert!(has(Operation::Move(Motion::Rotate(-9.0), moved)));
        let most = drawn(&[rand_augment(16, 30)], 60).concat();
        assert!(most.contains(&Operation::Posterize(4)) && most.contains(&Operation::Solarize(0.0)));
        let wide = drawn(&[trivial()], 20_000).concat();
        for wanted in [
            Operation::Move(Motion::TranslateX(32), moved),
            Operation::Move(Motion::Rotate(-135.0), moved),
            Operation::Move(Motion::Rotate(90.0), moved),
            Operation::Posterize(2),
            Operation::Solarize(255.0),
        ] {
            assert!(wide.contains(&wanted), "{wanted:?}");
        }
    }

    #[test]
    fn erased_parts_are_inside_and_have_areas_and_ratios_of_their_ranges() {
        let step = Transform::RandomErasing {
            p: 1.0,
            scale: [0.1, 0.2],
            ratio: [0.5, 2.0],
            value: Colour([1, 2, 3]),
        };
        let all = drawn(std::slice::from_ref(&step), 2000).concat();
        assert_eq!(all.len(), 2000);
        let mut corners = HashMap::new();
        for operation in all {
            let Operation::Erase(Area { left, top, size }, [1, 2, 3]) = operation else {
                panic!("{operation:?}")
            };
            assert!(left + size.width <= ROW.width && top + size.height <= ROW.height);
            let share = f64::from(size.width) * f64::from(size.height) / 2048.0;
            assert!((0.09..=0.22).contains(&share), "{share}");
            let ratio = f64::from(size.height) / f64::from(size.width);
            assert!((0.45..=2.2).contains(&ratio), "{ratio}");
            *corners.entry((left / 16, top / 8)).or_insert(0) += 1;
        }
        assert!(corners.len() >= 10, "{corners:?}");
    }
}
