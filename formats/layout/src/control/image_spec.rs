//! How decoded images become rows of one size, in the words of torchvision's transforms.

use super::codec::{Field, Reader, Writer};
use super::field::coded;
use super::pixel_steps::PixelSteps;
use super::spec_error::SpecError;
use crate::limits::IMAGE_SIDE_MAX;
use crate::{FormatError, ViewShape};

const CHANNELS_LAST: u8 = 1 << 0;
const EXACT: u8 = 1 << 1;
const GREY: u8 = 1 << 2;

coded! {
    /// Which part of an image becomes the row.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub enum Framing: u8 {
        /// Resized so that it just covers the row, and the middle of that: `Resize(side)` and
        /// `CenterCrop(side)` where the row is a square.
        #[default]
        1 => Cover,
        /// All of it, stretched: `Resize((height, width))`.
        2 => Stretch,
        /// `Resize(short)`, then `CenterCrop((height, width))`.
        3 => Center {
            /// Length of the shorter side after resizing; 0 leaves the image as it is.
            short: u32,
        },
        /// `Resize(short)`, then `RandomCrop((height, width), padding)`.
        4 => Random {
            /// As above.
            short: u32,
            /// Black pixels added on each side before the crop.
            padding: u32,
        },
        /// `RandomResizedCrop((height, width), scale, ratio)`.
        5 => RandomResized {
            /// Smallest and largest share of the image's area.
            scale: [f64; 2],
            /// Smallest and largest width / height of the part.
            ratio: [f64; 2],
        },
    }
}

/// How decoded images become rows of one size: `u8`, 3 x `height` x `width`, or 1 x `height` x
/// `width` in grey.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageSpec {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// Which part of the image.
    pub framing: Framing,
    /// Chance that it is mirrored from left to right, 0 to 1: `RandomHorizontalFlip(p)`.
    pub flip: f64,
    /// Chance that it is mirrored from top to bottom, 0 to 1: `RandomVerticalFlip(p)`.
    pub flip_down: f64,
    /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
    pub channels_last: bool,
    /// Exactly as torchvision does: every JPEG is decoded whole, and not reduced meanwhile.
    pub exact: bool,
    /// One channel of grey, Pillow's "L" of the row's colours: `Grayscale()`.
    pub grey: bool,
    /// Operations on the row's pixels, after its geometry.
    pub pixels: PixelSteps,
}

impl ImageSpec {
    /// The middle of each image, resized so that it just covers `height` x `width` pixels.
    #[must_use]
    pub fn cover(height: u32, width: u32) -> Self {
        Self { height, width, ..Self::default() }
    }

    /// The shape of each image.
    #[must_use]
    pub fn shape(&self) -> ViewShape {
        ViewShape { height: self.height, width: self.width, channels: if self.grey { 1 } else { 3 } }
    }

    /// Bytes of one image. Below 2^30 for a spec that is [valid](Self::validate).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape().bytes()
    }

    /// Refuses numbers that make no image.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        side("height", self.height, 1)?;
        side("width", self.width, 1)?;
        SpecError::check_share("flip", self.flip)?;
        SpecError::check_share("flip_down", self.flip_down)?;
        self.pixels.validate(self.height, self.width)?;
        match self.framing {
            Framing::Cover | Framing::Stretch => Ok(()),
            Framing::Center { short } => side("resize", short, 0),
            Framing::Random { short, padding } => {
                side("resize", short, 0)?;
                side("padding", padding, 0)
            }
            Framing::RandomResized { scale, ratio } => {
                range("scale", scale, 1.0)?;
                range("ratio", ratio, f64::from(IMAGE_SIDE_MAX))
            }
        }
    }
}

impl Field for ImageSpec {
    fn write(&self, writer: &mut Writer) {
        writer.put(&self.height);
        writer.put(&self.width);
        writer.put(&self.flip);
        let flags = [(self.channels_last, CHANNELS_LAST), (self.exact, EXACT), (self.grey, GREY)];
        writer.put(&flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
        writer.put(&self.framing);
        writer.put(&self.flip_down);
        writer.put(&self.pixels);
    }

    fn read(reader: &mut Reader<'_>, _name: &'static str) -> Result<Self, FormatError> {
        let (height, width, flip) = (reader.get("height")?, reader.get("width")?, reader.get("flip")?);
        let known = CHANNELS_LAST | EXACT | GREY;
        let flags = reader.choice("image flags", |flags| (flags <= known).then_some(flags))?;
        let [channels_last, exact, grey] = [CHANNELS_LAST, EXACT, GREY].map(|flag| flags & flag != 0);
        let (framing, flip_down) = (reader.get("framing")?, reader.get("flip_down")?);
        let pixels = reader.get("pixels")?;
        Ok(Self { height, width, framing, flip, flip_down, channels_last, exact, grey, pixels })
    }
}

fn side(field: &'static str, value: u32, least: u32) -> Result<(), SpecError> {
    if (least..=IMAGE_SIDE_MAX).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(field, value, format_args!("{least} to {IMAGE_SIDE_MAX} pixels")))
}

fn range(field: &'static str, [least, most]: [f64; 2], limit: f64) -> Result<(), SpecError> {
    if 0.0 < least && least <= most && most <= limit {
        return Ok(());
    }
    let expected = format_args!("two numbers above 0 and up to {limit}, the smaller one first");
    Err(SpecError::new(field, format_args!("({least}, {most})"), expected))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::PixelStep;

    /// Bytes that look like a specification: codes are known ones mostly, numbers are anything.
    fn invented() -> impl Strategy<Value = Vec<u8>> {
        // The numbers' bytes of each code, CONTROL.md.
        const FRAMINGS: [usize; 7] = [0, 0, 0, 4, 8, 32, 0];
        const STEPS: [usize; 15] = [0, 5, 32, 4, 10, 8, 5, 4, 4, 4, 8, 23, 7, 5, 0];
        let number = |len| {
            // Bytes of small whole numbers, of 0.5, 1, infinity and NaN among them.
            let byte = prop_oneof![any::<u8>(), prop::sample::select(&[0, 1, 3, 0x3F, 0x7F, 0x80, 0xFF][..])];
            prop::collection::vec(byte, len)
        };
        let side = prop_oneof![1_u32..300, any::<u32>()];
        let sides = [side.clone(), side].prop_map(|sides| sides.map(u32::to_le_bytes).concat());
        let share =
            prop_oneof![Just(0.5_f64), any::<f64>(), Just(f64::NAN)].prop_map(|p| p.to_le_bytes().to_vec());
        let coded = move |known: &'static [usize], last: u8| {
            (0..=last).prop_flat_map(move |code| {
                number(known[usize::from(code)]).prop_map(move |bytes| [&[code][..], &bytes].concat())
            })
        };
        let steps = prop::collection::vec(coded(&STEPS, 14), 0..14);
        (sides, share.clone(), 0_u8..9, coded(&FRAMINGS, 6), share, steps).prop_map(
            |(sides, flip, flags, framing, flip_down, steps)| {
                let count = u8::try_from(steps.len()).unwrap();
                [sides, flip, vec![flags], framing, flip_down, vec![count], steps.concat()].concat()
            },
        )
    }

    proptest! {
        #[test]
        fn invented_bytes_are_refused_or_a_specification_of_these_bytes(bytes in invented()) {
            let mut reader = Reader::of(&bytes);
            if let Ok(spec) = reader.get::<ImageSpec>("view") {
                let read = &bytes[..usize::try_from(reader.offset()).unwrap()];
                prop_assert_eq!(Writer::fields(|writer| writer.put(&spec)), read);
                if let Err(error) = spec.validate() {
                    prop_assert!(!error.field.is_empty() && error.to_string().contains("must be"), "{}", error);
                }
            }
        }
    }

    #[test]
    fn every_bad_field_is_named() {
        let spec = ImageSpec::cover(224, 224);
        let resized = |scale, ratio| Framing::RandomResized { scale, ratio };
        let (scale, ratio) = ([0.08, 1.0], [0.75, 4.0 / 3.0]);
        for framing in [
            Framing::Cover,
            Framing::Center { short: 0 },
            Framing::Random { short: 0, padding: 4 },
            resized(scale, ratio),
        ] {
            ImageSpec { framing, flip: 0.5, ..spec }.validate().unwrap();
        }
        let blur = PixelStep::GaussianBlur { kernel: [1, 255], sigma: [1.0, 1.0] };
        let blur = PixelSteps::new(&[blur]).unwrap();
        ImageSpec { pixels: blur, ..spec }.validate().unwrap();
        let spec = ImageSpec { height: 127, ..spec };
        let framed = |framing| ImageSpec { framing, ..spec };
        for (field, bad) in [
            ("height", ImageSpec { height: 0, ..spec }),
            ("width", ImageSpec { width: IMAGE_SIDE_MAX + 1, ..spec }),
            ("flip", ImageSpec { flip: f64::NAN, ..spec }),
            ("flip", ImageSpec { flip: 1.1, ..spec }),
            ("flip_down", ImageSpec { flip_down: -0.5, ..spec }),
            ("kernel_size", ImageSpec { pixels: blur, ..spec }),
            ("resize", framed(Framing::Center { short: IMAGE_SIDE_MAX + 1 })),
            ("padding", framed(Framing::Random { short: 0, padding: u32::MAX })),
            ("scale", framed(resized([0.0, 1.0], ratio))),
            ("scale", framed(resized([0.5, 0.4], ratio))),
            ("scale", framed(resized([0.5, 1.1], ratio))),
            ("ratio", framed(resized(scale, [f64::NAN, 1.0]))),
            ("ratio", framed(resized(scale, [1.0, f64::INFINITY]))),
        ] {
            assert_eq!(bad.validate().unwrap_err().field, field, "{bad:?}");
        }
    }
}
