//! From a specification's steps to operations: the draws of one row.

use shade_formats::control::{PixelStep, PixelSteps, Range};

use super::operation::Operation;
use super::policies::{rand_augment, trivial_augment_wide};
use crate::augment::randomness::Randomness;
use crate::{Area, Size};

/// Rectangles that `RandomErasing` tries before it leaves the row as it is.
const TRIES: u32 = 10;

/// Passes the operations on a row of size `row` to `each`, in their order.
pub(super) fn draw(steps: &PixelSteps, row: Size, random: &mut Randomness, mut each: impl FnMut(Operation)) {
    let steps: Vec<PixelStep> = steps.iter().collect();
    all(&steps, row, random, &mut each);
}

/// The operations of `steps` in turn.
fn all(mut steps: &[PixelStep], row: Size, random: &mut Randomness, each: &mut impl FnMut(Operation)) {
    while let Some((step, held, rest)) = PixelStep::split_first(steps) {
        one(step, held, row, random, each);
        steps = rest;
    }
}

/// The operations of `step`, which holds the steps `held`.
fn one(
    step: PixelStep,
    held: &[PixelStep],
    row: Size,
    random: &mut Randomness,
    each: &mut impl FnMut(Operation),
) {
    match step {
        PixelStep::Apply { p, .. } => {
            if happens(p, random) {
                all(held, row, random, each);
            }
        }
        PixelStep::Choice { .. } => all(chosen(held, random), row, random, each),
        PixelStep::Order { .. } => {
            for part in shuffled(held, random) {
                all(part, row, random, each);
            }
        }
        PixelStep::ColorJitter { brightness, contrast, saturation, hue } => {
            jitter([brightness, contrast, saturation, hue], random, each);
        }
        PixelStep::GaussianBlur { kernel, sigma } => {
            each(Operation::Blur { kernel, sigma: between(sigma, random) });
        }
        PixelStep::RandAugment { operations, magnitude, bins, moved } => {
            for _ in 0..operations {
                rand_augment(magnitude, bins, moved, row, random).into_iter().for_each(&mut *each);
            }
        }
        PixelStep::TrivialAugmentWide { bins, moved } => {
            trivial_augment_wide(bins, moved, random).into_iter().for_each(each);
        }
        PixelStep::Erasing { p, scale, ratio, value } => {
            if happens(p, random)
                && let Some(area) = erased(row, scale, ratio, random)
            {
                each(Operation::Erase(area, value));
            }
        }
        PixelStep::Grayscale { p } => perhaps(p, Operation::Grey, random, each),
        PixelStep::Solarize { threshold, p } => perhaps(p, Operation::Solarize(threshold), random, each),
        PixelStep::Posterize { bits, p } => perhaps(p, Operation::Posterize(bits), random, each),
        PixelStep::Invert { p } => perhaps(p, Operation::Invert, random, each),
        PixelStep::Autocontrast { p } => perhaps(p, Operation::Autocontrast, random, each),
        PixelStep::Equalize { p } => perhaps(p, Operation::Equalize, random, each),
        PixelStep::Sharpness { factor, p } => perhaps(p, Operation::Sharpness(factor), random, each),
    }
}

/// What the part of a `RandomChoice` holds that is drawn by the parts' weights.
fn chosen<'a>(parts: &'a [PixelStep], random: &mut Randomness) -> &'a [PixelStep] {
    // Sums in one order are equal, so that the last one is the total.
    let weighed = || {
        let mut rest = parts;
        let mut sum = 0.0;
        std::iter::from_fn(move || {
            let (step, held, behind) = PixelStep::split_first(rest)?;
            rest = behind;
            if let PixelStep::Apply { p, .. } = step {
                sum += f64::from(p);
            }
            Some((sum, held))
        })
    };
    let total = weighed().last().map_or(0.0, |(sum, _)| sum);
    let place = random.share() * total;
    weighed().find(|&(sum, _)| place < sum).map_or(&[], |(_, held)| held)
}

/// The parts of a `RandomOrder`, each a step with what it holds.
fn shuffled<'a>(mut steps: &'a [PixelStep], random: &mut Randomness) -> Vec<&'a [PixelStep]> {
    let mut parts = Vec::with_capacity(steps.len());
    while let Some((_, held, rest)) = PixelStep::split_first(steps) {
        let (part, _) = steps.split_at(1 + held.len());
        parts.push(part);
        steps = rest;
    }
    shuffle(&mut parts, random);
    parts
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
    use shade_formats::control::Moved;

    use super::super::operation::Motion;
    use super::*;

    const ROW: Size = Size { width: 64, height: 32 };

    /// The operations of `count` rows.
    fn drawn(steps: &[PixelStep], count: u32) -> Vec<Vec<Operation>> {
        let steps = PixelSteps::new(steps).unwrap();
        steps.validate(ROW.height, ROW.width).unwrap();
        let operations = |position| {
            let mut found = Vec::new();
            draw(&steps, ROW, &mut Randomness::of_pixels(Draw::at(1, 2, position), 0), |operation| {
                found.push(operation);
            });
            found
        };
        (0..count).map(operations).collect()
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
            PixelStep::Grayscale { p },
            PixelStep::Solarize { threshold: 128.0, p },
            PixelStep::Posterize { bits: 4, p },
            PixelStep::Invert { p },
            PixelStep::Autocontrast { p },
            PixelStep::Equalize { p },
            PixelStep::Sharpness { factor: 2.0, p },
            PixelStep::Erasing { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: [0; 3] },
        ] {
            let rows = drawn(&[step], 4000);
            let count = rows.iter().filter(|operations| !operations.is_empty()).count();
            assert!(is_about(count, rows.len(), 0.3), "{step:?}: {count}");
        }
    }

    #[test]
    fn what_random_apply_holds_comes_as_a_whole_or_not_at_all() {
        let apply = PixelStep::Apply { p: 0.8, count: 2 };
        let always = |threshold| PixelStep::Solarize { threshold, p: 1.0 };
        let rows = drawn(&[apply, always(1.0), always(2.0), PixelStep::Invert { p: 1.0 }], 4000);
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

    fn always(threshold: f32) -> PixelStep {
        PixelStep::Solarize { threshold, p: 1.0 }
    }

    #[test]
    fn random_choice_draws_one_part_by_weight() {
        for weights in [&[1.0, 1.0, 1.0][..], &[0.5, 0.25, 0.25], &[0.1, 0.0, 0.7], &[1.0], &[0.0, 1e-30]] {
            let mut steps = vec![PixelStep::Choice { count: 2 * u8::try_from(weights.len()).unwrap() }];
            for (&p, threshold) in weights.iter().zip([0.0, 1.0, 2.0]) {
                steps.extend([PixelStep::Apply { p, count: 1 }, always(threshold)]);
            }
            steps.push(PixelStep::Invert { p: 1.0 });
            let rows = drawn(&steps, 6000);
            let counts = [0.0, 1.0, 2.0].map(|wanted| {
                let is_it = |operations: &&Vec<Operation>| operations[0] == Operation::Solarize(wanted);
                assert!(rows.iter().all(|operations| operations[1..] == [Operation::Invert]));
                rows.iter().filter(is_it).count()
            });
            let total: f32 = weights.iter().sum();
            let mut possible = (Vec::new(), Vec::new());
            for (weight, count) in weights.iter().zip(counts) {
                if *weight > 0.0 {
                    possible.0.push(count);
                    possible.1.push(f64::from(weight / total));
                }
            }
            assert_eq!(possible.0.iter().sum::<usize>(), rows.len(), "{weights:?}: {counts:?}");
            let (statistic, bound) = chi_squared(&possible.0, &possible.1);
            assert!(statistic <= bound, "{weights:?}: {counts:?}, {statistic} > {bound}");
        }
    }

    #[test]
    fn random_order_has_every_order_alike_and_keeps_what_belongs_together() {
        let pair = [PixelStep::Apply { p: 1.0, count: 2 }, always(10.0), always(11.0)];
        let choice = [
            PixelStep::Choice { count: 3 },
            PixelStep::Apply { p: 0.5, count: 1 },
            always(2.0),
            PixelStep::Apply { p: 0.5, count: 0 },
        ];
        let steps =
            [&[PixelStep::Order { count: 9 }, always(0.0)][..], &pair, &choice, &[always(3.0)]].concat();
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
        let apply = |count| PixelStep::Apply { p: 1.0, count };
        let steps = [
            apply(5),
            always(1.0),
            PixelStep::Order { count: 3 },
            apply(2),
            apply(1),
            always(2.0),
            always(3.0),
        ];
        let expected = [1.0, 2.0, 3.0].map(Operation::Solarize);
        assert!(drawn(&steps, 20).iter().all(|operations| operations == &expected));
        let never = [&[PixelStep::Apply { p: 0.0, count: 7 }][..], &steps, &[always(4.0)]].concat();
        assert!(drawn(&never, 20).iter().all(|operations| operations == &[Operation::Solarize(4.0)]));
    }

    #[test]
    fn colour_jitter_has_every_order_and_even_factors() {
        let jitter = PixelStep::ColorJitter {
            brightness: [0.6, 1.4],
            contrast: [0.5, 1.5],
            saturation: [0.0, 2.0],
            hue: [-0.1, 0.1],
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
        let moved = Moved { bilinear: false, fill: [0; 3] };
        let trivial = PixelStep::TrivialAugmentWide { bins: 31, moved };
        let rand = PixelStep::RandAugment { operations: 1, magnitude: 9, bins: 31, moved };
        for step in [trivial, rand] {
            let rows = drawn(&[step], 7000);
            let mut names: HashMap<String, usize> = HashMap::new();
            for operations in &rows {
                let name = operations.first().map_or_else(|| "Identity".to_owned(), name);
                *names.entry(name).or_default() += 1;
            }
            assert_eq!(names.len(), 14, "{names:?}");
            assert!(names.values().all(|&count| is_about(count, rows.len(), 1.0 / 14.0)), "{names:?}");
        }
        let two = PixelStep::RandAugment { operations: 2, magnitude: 9, bins: 31, moved };
        assert!(drawn(&[two], 50).iter().any(|operations| operations.len() == 2));
    }

    #[test]
    fn magnitudes_are_those_of_torchvision() {
        let moved = Moved::default();
        let steps = |operations, magnitude| PixelStep::RandAugment { operations, magnitude, bins: 31, moved };
        let all = drawn(&[steps(16, 9)], 60).concat();
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
        let most = drawn(&[steps(16, 30)], 60).concat();
        assert!(most.contains(&Operation::Posterize(4)) && most.contains(&Operation::Solarize(0.0)));
        let wide = drawn(&[PixelStep::TrivialAugmentWide { bins: 31, moved }], 20_000).concat();
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
        let step = PixelStep::Erasing { p: 1.0, scale: [0.1, 0.2], ratio: [0.5, 2.0], value: [1, 2, 3] };
        let all = drawn(&[step], 2000).concat();
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
