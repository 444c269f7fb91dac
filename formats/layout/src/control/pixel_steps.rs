//! The operations on the pixels of a finished row, in their order.

use super::codec::{Field, Reader, Writer};
use super::pixel_step::PixelStep;
use super::spec_error::SpecError;
use crate::FormatError;
use crate::limits::{PIXEL_STEPS_BYTES_MAX, PIXEL_STEPS_MAX};

/// What errors call a step.
const STEP: &str = "pixel step";

/// Up to [`PIXEL_STEPS_MAX`] operations. They are kept as they are on the wire, as a specification
/// is copied: an array of [`PixelStep`] would take many times the room.
#[derive(Clone, Copy, PartialEq)]
pub struct PixelSteps {
    bytes: [u8; PIXEL_STEPS_BYTES_MAX],
    len: u8,
    count: u8,
}

impl Default for PixelSteps {
    fn default() -> Self {
        Self { bytes: [0; PIXEL_STEPS_BYTES_MAX], len: 0, count: 0 }
    }
}

impl std::fmt::Debug for PixelSteps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl PixelSteps {
    /// The list of `steps`.
    ///
    /// # Errors
    /// There are too many, or they have too many numbers.
    pub fn new(steps: &[PixelStep]) -> Result<Self, SpecError> {
        if steps.len() > PIXEL_STEPS_MAX {
            let expected = format_args!(
                "at most {PIXEL_STEPS_MAX}, RandomApply, RandomOrder, RandomChoice and each of its parts being \
                 one more"
            );
            return Err(SpecError::new("number of operations on pixels", steps.len(), expected));
        }
        let bytes = Writer::fields(|writer| steps.iter().for_each(|step| writer.put(step)));
        let mut list = Self::default();
        let room = list.bytes.get_mut(..bytes.len());
        let (Some(room), Ok(len), Ok(count)) = (room, u8::try_from(bytes.len()), u8::try_from(steps.len()))
        else {
            let expected = format_args!("at most {PIXEL_STEPS_BYTES_MAX} bytes; a ColorJitter takes 33");
            return Err(SpecError::new("size of operations on pixels", bytes.len(), expected));
        };
        room.copy_from_slice(&bytes);
        Ok(Self { len, count, ..list })
    }

    /// The steps in their order.
    pub fn iter(&self) -> impl Iterator<Item = PixelStep> {
        let mut reader = Reader::of(self.encoded());
        (0..self.count).map_while(move |_| reader.get(STEP).ok())
    }

    fn encoded(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Refuses numbers that make no operation on a row of this size.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self, height: u32, width: u32) -> Result<(), SpecError> {
        let steps: Vec<PixelStep> = self.iter().collect();
        validate(&steps, height, width)
    }
}

/// As [`PixelSteps::validate`]. What a step holds lies within the list that the step is in, so
/// calls are nested at most [`PIXEL_STEPS_MAX`] deep.
fn validate(mut steps: &[PixelStep], height: u32, width: u32) -> Result<(), SpecError> {
    while let Some(step) = steps.first() {
        step.validate()?;
        let Some((_, held, rest)) = PixelStep::split_first(steps) else {
            let expected = format_args!("at most {} steps, which follow it", steps.len() - 1);
            return Err(SpecError::new(step.holder(), step.holds(), expected));
        };
        validate(held, height, width)?;
        match *step {
            PixelStep::Choice { .. } => validate_parts(held)?,
            PixelStep::GaussianBlur { kernel: [across, down], .. }
                if u32::from(across / 2) >= width || u32::from(down / 2) >= height =>
            {
                // Beyond its edge an image is continued by its reflection.
                let got = format_args!("({across}, {down})");
                let expected = format_args!("less than twice the sides of a row, {width} x {height}");
                return Err(SpecError::new("kernel_size", got, expected));
            }
            _ => {}
        }
        steps = rest;
    }
    Ok(())
}

/// Refuses valid steps that are no parts of a `RandomChoice`, or of which none can be drawn.
fn validate_parts(mut parts: &[PixelStep]) -> Result<(), SpecError> {
    let mut has_weight = false;
    while let Some((step, _, rest)) = PixelStep::split_first(parts) {
        let PixelStep::Apply { p, .. } = step else {
            return Err(SpecError::new("RandomChoice", "without weights", "parts with their weights"));
        };
        has_weight |= p > 0.0;
        parts = rest;
    }
    if has_weight { Ok(()) } else { Err(SpecError::new("RandomChoice", "no weight", "at least one above 0")) }
}

impl Field for PixelSteps {
    fn write(&self, writer: &mut Writer) {
        writer.put(&self.count);
        writer.bytes(self.encoded());
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        let at = reader.offset();
        let count: u8 = reader.get(name)?;
        if usize::from(count) > PIXEL_STEPS_MAX {
            let expected = format_args!("at most {PIXEL_STEPS_MAX}");
            return Err(FormatError::new("pixel steps", at, count, expected));
        }
        let steps = (0..count).map(|_| reader.get(STEP)).collect::<Result<Vec<_>, _>>()?;
        Self::new(&steps).map_err(|error| FormatError::new("pixel steps", at, error.got, error.expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Moved;

    /// A good step of each kind.
    fn one_of_each() -> [PixelStep; 16] {
        let moved = Moved { bilinear: true, fill: [1, 2, 3] };
        let (p, one) = (0.5, [1.0, 1.0]);
        [
            PixelStep::Apply { p, count: 1 },
            PixelStep::ColorJitter {
                brightness: [0.6, 1.4],
                contrast: one,
                saturation: one,
                hue: [-0.1, 0.1],
            },
            PixelStep::Grayscale { p },
            PixelStep::GaussianBlur { kernel: [3, 5], sigma: [0.1, 2.0] },
            PixelStep::Solarize { threshold: 128.0, p },
            PixelStep::Posterize { bits: 4, p },
            PixelStep::Invert { p },
            PixelStep::Autocontrast { p },
            PixelStep::Equalize { p },
            PixelStep::Sharpness { factor: 2.0, p },
            PixelStep::Erasing { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: [124, 116, 104] },
            PixelStep::RandAugment { operations: 2, magnitude: 9, bins: 31, moved },
            PixelStep::TrivialAugmentWide { bins: 31, moved },
            PixelStep::Order { count: 2 },
            PixelStep::Choice { count: 1 },
            PixelStep::Apply { p, count: 0 },
        ]
    }

    fn written(steps: &PixelSteps) -> Vec<u8> {
        let message = Writer::message(0, |writer| steps.write(writer));
        message[4..].to_vec()
    }

    #[test]
    fn each_kind_of_step_is_good_and_is_read_as_it_was_written() {
        for steps in one_of_each().windows(3) {
            let list = PixelSteps::new(steps).unwrap();
            let is_whole = steps.iter().rev().zip(0..).all(|(step, behind)| step.holds() <= behind);
            assert_eq!(list.validate(8, 8).is_ok(), is_whole, "{list:?}");
            let bytes = written(&list);
            let mut reader = Reader::of(&bytes);
            assert_eq!(reader.get(STEP), Ok(list));
            reader.finish().unwrap();
            for len in 0..bytes.len() {
                assert!(
                    Reader::of(&bytes[..len]).get::<PixelSteps>(STEP).is_err(),
                    "{len} bytes of {list:?}"
                );
            }
        }
        let many = [one_of_each()[0]; PIXEL_STEPS_MAX + 1];
        assert_eq!(PixelSteps::new(&many).unwrap_err().field, "number of operations on pixels");
        let jitters = [one_of_each()[1]; 8];
        assert_eq!(PixelSteps::new(&jitters).unwrap_err().field, "size of operations on pixels");
        assert_eq!(PixelSteps::new(&jitters[1..]).unwrap().iter().count(), 7);
    }

    #[test]
    fn strange_codes_and_counts_are_refused() {
        let refused = |bytes: &[u8]| Reader::of(bytes).get::<PixelSteps>(STEP).unwrap_err().to_string();
        assert!(refused(&[1, 16]).contains("pixel step"), "{}", refused(&[1, 16]));
        assert!(refused(&[1, 0]).contains("pixel step"));
        assert!(refused(&[49]).contains("pixel steps"));
        assert!(refused(&[255; 300]).contains("pixel steps"));
        assert!(refused(&[1, TRIVIAL, 31, 2, 0, 0, 0]).contains("bilinear"));
    }

    #[test]
    fn what_a_step_holds_lies_within_what_holds_the_step() {
        let invert = PixelStep::Invert { p: 0.5 };
        let (apply, order) = (|count| PixelStep::Apply { p: 0.5, count }, |count| PixelStep::Order { count });
        let choice = |count| PixelStep::Choice { count };
        let told = |steps: &[PixelStep]| {
            PixelSteps::new(steps).unwrap().validate(8, 8).map_err(|error| error.to_string())
        };
        for good in [
            &[apply(2), apply(1), invert, invert][..],
            &[choice(4), apply(1), invert, apply(1), invert, invert],
            &[choice(5), apply(3), order(2), invert, invert, apply(0)],
            &[order(6), invert, choice(4), apply(1), invert, apply(1), invert],
            &[order(0), invert],
        ] {
            assert_eq!(told(good), Ok(()), "{good:?}");
        }
        for (bad, expected) in [
            (&[apply(2), apply(2), invert, invert][..], "RandomApply is 2, but must be at most 1 steps"),
            (&[choice(2), apply(2), invert, invert], "RandomApply is 2, but must be at most 1 steps"),
            (&[order(1), choice(2), apply(0), apply(0)], "RandomChoice is 2, but must be at most 0 steps"),
            (&[choice(1), invert], "must be parts with their weights"),
            (&[choice(3), apply(1), invert, order(0)], "must be parts with their weights"),
            (&[apply(1), GREAT_BLUR], "kernel_size"),
            (&[choice(3), apply(2), order(1), GREAT_BLUR], "kernel_size"),
            (&[choice(1), PixelStep::Apply { p: 0.0, count: 0 }], "RandomChoice is no weight"),
            (&[choice(1), PixelStep::Apply { p: f32::NAN, count: 0 }], "p is NaN"),
        ] {
            let text = told(bad).unwrap_err();
            assert!(text.contains(expected), "{bad:?}: {text}");
        }
    }

    const GREAT_BLUR: PixelStep = PixelStep::GaussianBlur { kernel: [17, 3], sigma: [1.0, 1.0] };
    const TRIVIAL: u8 = 13;

    #[test]
    fn limits_are_told_in_short_numbers() {
        let told = |sigma| {
            let blur = PixelStep::GaussianBlur { kernel: [3, 3], sigma };
            PixelSteps::new(&[blur]).unwrap().validate(8, 8).map_err(|error| error.to_string())
        };
        let expected = "must be two numbers above 0 and up to 1024, the smaller one first";
        for sigma in [[0.0, 1.0], [-1.0, 1.0], [f32::NAN, 1.0]] {
            let text = told(sigma).unwrap_err();
            assert!(text.ends_with(expected), "{text}");
        }
        assert!(told([2.0, 1.0]).is_err() && told([1.0, f32::INFINITY]).is_err());
        assert_eq!(told([f32::MIN_POSITIVE / 2.0, 1024.0]), Ok(()));
    }

    #[test]
    fn every_bad_number_is_named() {
        let (p, one) = (0.5, [1.0, 1.0]);
        let jitter =
            PixelStep::ColorJitter { brightness: one, contrast: one, saturation: one, hue: [0.0, 0.0] };
        let PixelStep::ColorJitter { hue, .. } = jitter else { unreachable!() };
        let moved = Moved::default();
        for (field, bad) in [
            ("p", PixelStep::Apply { p: f32::NAN, count: 0 }),
            ("RandomApply", PixelStep::Apply { p, count: 1 }),
            ("RandomOrder", PixelStep::Order { count: 1 }),
            ("RandomChoice", PixelStep::Choice { count: 1 }),
            ("RandomChoice", PixelStep::Choice { count: 0 }),
            (
                "brightness",
                PixelStep::ColorJitter { brightness: [1.2, 0.8], contrast: one, saturation: one, hue },
            ),
            (
                "contrast",
                PixelStep::ColorJitter { brightness: one, contrast: [-0.1, 1.0], saturation: one, hue },
            ),
            (
                "saturation",
                PixelStep::ColorJitter {
                    brightness: one,
                    contrast: one,
                    saturation: [0.0, f32::INFINITY],
                    hue,
                },
            ),
            (
                "hue",
                PixelStep::ColorJitter { brightness: one, contrast: one, saturation: one, hue: [0.0, 0.6] },
            ),
            ("p", PixelStep::Grayscale { p: 1.1 }),
            ("kernel_size", PixelStep::GaussianBlur { kernel: [4, 3], sigma: one }),
            ("kernel_size", PixelStep::GaussianBlur { kernel: [3, 0], sigma: one }),
            ("kernel_size", PixelStep::GaussianBlur { kernel: [17, 3], sigma: one }),
            ("sigma", PixelStep::GaussianBlur { kernel: [3, 3], sigma: [0.0, 1.0] }),
            ("threshold", PixelStep::Solarize { threshold: f32::NAN, p }),
            ("bits", PixelStep::Posterize { bits: 9, p }),
            ("p", PixelStep::Invert { p: -0.1 }),
            ("p", PixelStep::Autocontrast { p: f32::INFINITY }),
            ("p", PixelStep::Equalize { p: 2.0 }),
            ("sharpness_factor", PixelStep::Sharpness { factor: -1.0, p }),
            ("scale", PixelStep::Erasing { p, scale: [0.1, 1.1], ratio: one, value: [0; 3] }),
            ("ratio", PixelStep::Erasing { p, scale: one, ratio: [0.0, 1.0], value: [0; 3] }),
            ("num_ops", PixelStep::RandAugment { operations: 17, magnitude: 0, bins: 31, moved }),
            ("magnitude", PixelStep::RandAugment { operations: 2, magnitude: 31, bins: 31, moved }),
            ("num_magnitude_bins", PixelStep::RandAugment { operations: 2, magnitude: 0, bins: 0, moved }),
            ("num_magnitude_bins", PixelStep::TrivialAugmentWide { bins: 1, moved }),
        ] {
            let list = PixelSteps::new(&[bad]).unwrap();
            assert_eq!(list.validate(8, 8).unwrap_err().field, field, "{bad:?}");
        }
    }
}
