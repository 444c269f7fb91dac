//! One view of each image: which part of it becomes a row, and what is done to pixels before and
//! behind that.
//! The rules of the order of transforms are here.

use shade_formats::limits::{IMAGE_SIDE_MAX, TRANSFORMS_MAX};
use shade_formats::{Dtype, ViewShape};

use crate::transforms::{Filters, Side, Transform};
use crate::{Floats, SpecError};

/// The order that transforms must have.
const ORDER: &str = "expected Resize, CenterCrop, RandomCrop or RandomResizedCrop; Resize may come before \
                     CenterCrop or RandomCrop, Pad before RandomCrop, and flips and transforms of pixels, such as \
                     ColorJitter, before or behind all of these";

/// Which part of an image becomes the row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Framing {
    /// Resized so that it just covers the row, and the middle of that: `Cover(size)`.
    #[default]
    Cover,
    /// All of it, which has the row's size: `Whole(size)`.
    Whole,
    /// All of it, stretched: `Resize((height, width))`.
    Stretch,
    /// `Resize(short)`, then `CenterCrop((height, width))`.
    Center {
        /// Length of the shorter side after resizing; 0 leaves the image as it is.
        short: u32,
    },
    /// `Resize(short)`, then one corner of `FiveCrop((height, width))`.
    Corner {
        /// Length of the shorter side after resizing; 0 leaves the image as it is.
        short: u32,
        /// Whether it is on the right.
        right: bool,
        /// Whether it is at the bottom.
        bottom: bool,
    },
    /// `Resize(short)`, then `RandomCrop((height, width), padding)`.
    Random {
        /// Length of the shorter side after resizing; 0 leaves the image as it is.
        short: u32,
        /// Black pixels added on each side before the crop.
        padding: u32,
        /// How many of them `Pad` adds: torchvision cuts boxes off at each of the two paddings.
        before: u32,
    },
    /// `RandomResizedCrop((height, width), scale, ratio)`.
    RandomResized {
        /// Smallest and largest share of the image's area.
        scale: [f64; 2],
        /// Smallest and largest width / height of the part.
        ratio: [f64; 2],
    },
}

/// How decoded images become rows of one size: 3 x `height` x `width` values, or 1 x `height` x
/// `width` in grey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageSpec {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// Which part of the image.
    pub framing: Framing,
    /// The filter that resizes it, or two to draw from.
    pub resampling: Filters,
    /// Chance that it is mirrored from left to right, 0 to 1: `RandomHorizontalFlip(p)`.
    pub flip: f64,
    /// Chance that it is mirrored from top to bottom, 0 to 1: `RandomVerticalFlip(p)`.
    pub flip_down: f64,
    /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
    pub channels_last: bool,
    /// What the bytes become; `None` leaves them as they are.
    pub floats: Option<Floats>,
    /// Exactly as torchvision does: every JPEG is decoded whole, and not reduced meanwhile.
    pub exact: bool,
    /// One channel of grey, Pillow's "L" of the row's colours: `Grayscale()`.
    pub grey: bool,
    /// Operations on all of the image's pixels, before its geometry.
    pub before: Vec<Transform>,
    /// Operations on the row's pixels, after its geometry.
    pub pixels: Vec<Transform>,
}

impl ImageSpec {
    /// The middle of each image, resized so that it just covers `height` x `width` pixels.
    #[must_use]
    pub fn cover(height: u32, width: u32) -> Self {
        Self { height, width, ..Self::default() }
    }

    /// What these transforms make, in turn. With `FiveCrop` it is the first of its crops: see
    /// [`views`](Self::views).
    ///
    /// # Errors
    /// They give images of several sizes, stand in an order that the daemon does not have, or have
    /// arguments that torchvision refuses, too.
    pub fn new(transforms: &[Transform]) -> Result<Self, SpecError> {
        let (before, rest) =
            transforms.split_at(transforms.iter().take_while(|step| step.keeps_size()).count());
        let (framing, after) = rest.split_at(rest.iter().take_while(|step| !step.keeps_size()).count());
        let mut spec = Self::framed(framing).ok_or_else(|| out_of_order(transforms, framing, after))?;
        if let (Framing::Corner { .. }, Some(other)) = (spec.framing, before.iter().chain(after).next()) {
            return Err(wrong(format!(
                "got {}, expected FiveCrop alone or behind Resize, as the daemon would draw {} for each of its crops",
                named(transforms),
                other.name()
            )));
        }
        let flip = before.iter().find(|step| step.is_flip());
        if let (Some(flip), Framing::Center { .. }) = (flip, spec.framing) {
            return Err(wrong(format!(
                "got {}, expected {} behind CenterCrop: it rounds the middle of an image to one side, so a mirrored \
                 image has another one",
                named(transforms),
                flip.name()
            )));
        }
        // Every other crop of a mirrored image is as likely as its mirrored crop.
        spec.add(before, after, transforms)?;
        let count: usize = transforms.iter().map(Transform::count).sum();
        if count > TRANSFORMS_MAX {
            let text = format!(
                "got {count} transforms, those within others included, expected at most {TRANSFORMS_MAX}"
            );
            return Err(wrong(text));
        }
        let row = [spec.height, spec.width];
        // Each image is asked once more whether its size will do.
        let largest = [IMAGE_SIDE_MAX; 2];
        let steps = before.iter().map(|step| (step, largest));
        let steps = steps.chain(framing.iter().chain(after).map(|step| (step, row)));
        steps.filter(|(step, _)| !step.is_grey()).try_for_each(|(step, size)| check(step, size))?;
        Ok(spec)
    }

    /// This view; or all five of a `FiveCrop`, in torchvision's order.
    pub(crate) fn views(self) -> Vec<Self> {
        let Framing::Corner { short, .. } = self.framing else { return vec![self] };
        let corner = |(right, bottom)| Framing::Corner { short, right, bottom };
        let corners = [(false, false), (true, false), (false, true), (true, true)].map(corner);
        let framings = corners.into_iter().chain([Framing::Center { short }]);
        framings.map(|framing| Self { framing, ..self.clone() }).collect()
    }

    /// Refuses an image of this height and width for what comes before its geometry.
    ///
    /// # Errors
    /// A kernel is larger than the image and its reflection.
    pub fn fits_before(&self, image: [u32; 2]) -> Result<(), SpecError> {
        let steps = self.before.iter().filter(|step| !step.is_grey());
        steps.into_iter().try_for_each(|step| check(step, image))
    }

    /// The framing of these transforms; `None` if they make none.
    fn framed(transforms: &[Transform]) -> Option<Self> {
        let (short, mut resampling, rest) = match transforms {
            [Transform::Resize { size: Side::Shorter(short), interpolation }, rest @ ..] => {
                (*short, Filters::One(*interpolation), rest)
            }
            rest => (0, Filters::default(), rest),
        };
        let (before, last) = match rest {
            [last] => (0, last),
            [Transform::Pad { padding }, last @ Transform::RandomCrop { .. }] => (*padding, last),
            _ => return None,
        };
        let is_alone = transforms.len() == 1;
        let ([height, width], framing) = match *last {
            Transform::Cover { size } if is_alone => (size.0, Framing::Cover),
            Transform::Whole { size } if is_alone => (size.0, Framing::Whole),
            Transform::Resize { size: Side::Both(size), interpolation } if is_alone => {
                resampling = Filters::One(interpolation);
                (size, Framing::Stretch)
            }
            Transform::RandomResizedCrop { size, scale, ratio, interpolation } if is_alone => {
                resampling = interpolation;
                (size.0, Framing::RandomResized { scale, ratio })
            }
            Transform::CenterCrop { size } => (size.0, Framing::Center { short }),
            Transform::FiveCrop { size } => (size.0, Framing::Corner { short, right: false, bottom: false }),
            Transform::RandomCrop { size, padding } => {
                (size.0, Framing::Random { short, padding: before.saturating_add(padding), before })
            }
            _ => return None,
        };
        Some(Self { height, width, framing, resampling, ..Self::default() })
    }

    /// Adds the transforms before and behind the framing.
    fn add(&mut self, before: &[Transform], after: &[Transform], all: &[Transform]) -> Result<(), SpecError> {
        let unfit = |expected: std::fmt::Arguments<'_>| wrong(format!("got {}, {expected}", named(all)));
        let (mut flips, mut flips_down) = (false, false);
        let steps = before.iter().map(|step| (step, true)).chain(after.iter().map(|step| (step, false)));
        for (step, is_before) in steps {
            let (flips, flip, p) = match *step {
                Transform::RandomHorizontalFlip { p } => (&mut flips, &mut self.flip, p),
                Transform::RandomVerticalFlip { p } => (&mut flips_down, &mut self.flip_down, p),
                _ if !step.is_of_pixels() => return Err(unfit(format_args!("{ORDER}"))),
                _ if self.grey => {
                    let why = "other transforms of pixels have three channels";
                    return Err(unfit(format_args!("expected Grayscale(1) last, as {why}")));
                }
                _ if is_before && step.knows_places() && (flips || flips_down) => {
                    let name = step.name();
                    return Err(unfit(format_args!(
                        "expected flips behind {name}, as the daemon flips after all that comes before a crop"
                    )));
                }
                _ => {
                    self.grey = step.is_grey();
                    if is_before {
                        self.before.push(step.clone());
                    } else if !self.grey {
                        self.pixels.push(step.clone());
                    }
                    continue;
                }
            };
            let name = step.name();
            if std::mem::replace(flips, true) {
                return Err(unfit(format_args!("expected {name} only once")));
            }
            if let Some(placed) = self.pixels.iter().find(|pixels| pixels.knows_places()) {
                let placed = placed.name();
                return Err(unfit(format_args!(
                    "expected {name} before {placed}, as the daemon flips first"
                )));
            }
            *flip = p;
        }
        Ok(())
    }

    /// The shape of each image.
    #[must_use]
    pub fn shape(&self) -> ViewShape {
        let dtype = self.floats.map_or(Dtype::Uint8, |floats| floats.dtype);
        ViewShape { height: self.height, width: self.width, channels: if self.grey { 1 } else { 3 }, dtype }
    }

    /// Bytes of one image, below 2^32.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape().bytes()
    }
}

impl Transform {
    /// Whether an image is as large behind it as before.
    pub(crate) fn keeps_size(&self) -> bool {
        self.is_of_pixels() || self.is_flip()
    }

    fn is_flip(&self) -> bool {
        matches!(self, Self::RandomHorizontalFlip { .. } | Self::RandomVerticalFlip { .. })
    }

    /// Whether it makes one channel.
    fn is_grey(&self) -> bool {
        matches!(self, Self::Grayscale { num_output_channels: 1 })
    }
}

/// Refuses a transform, and any within it, that a row of this height and width cannot have.
fn check(step: &Transform, row: [u32; 2]) -> Result<(), SpecError> {
    step.validate(row).map_err(|error| wrong(format!("{}: {error}", step.name())))?;
    for held in step.parts().iter().flat_map(|part| &part.0) {
        if !held.is_of_pixels() {
            return Err(wrong(format!(
                "{}: got {}, expected transforms of pixels, such as ColorJitter: the daemon crops and flips each \
                 image apart from these",
                step.name(),
                held.name()
            )));
        }
        check(held, row)?;
    }
    Ok(())
}

fn wrong(text: String) -> SpecError {
    SpecError::told("decode", text)
}

/// Why these transforms, `framing` and some before and `after` it, make no rows of one size.
fn out_of_order(transforms: &[Transform], framing: &[Transform], after: &[Transform]) -> SpecError {
    if let [Transform::Resize { size: Side::Shorter(side), .. }] = framing
        && after.iter().all(Transform::keeps_size)
    {
        return wrong(format!(
            "Resize({side}) keeps each image's ratio, so images have different sizes: add CenterCrop or RandomCrop, or \
             use Resize((height, width)); decode=\"none\" delivers images of their own sizes"
        ));
    }
    if let [Transform::Resize { size: Side::Both([height, width]), .. }, crop] = framing
        && matches!(crop, Transform::CenterCrop { .. } | Transform::RandomCrop { .. })
    {
        let crop = crop.name();
        return wrong(format!(
            "got Resize(({height}, {width})) before {crop}, but it stretches images to rows of that size: leave one of \
             the two out, or give Resize one number, such as Resize({}), which keeps each image's ratio before {crop}",
            height.min(width)
        ));
    }
    wrong(format!("got {}, {ORDER}", named(transforms)))
}

/// The names of transforms, for messages.
fn named(transforms: &[Transform]) -> String {
    format!("[{}]", transforms.iter().map(Transform::name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resampling;

    fn spec(text: &str) -> Result<ImageSpec, String> {
        let transforms: crate::InTurn = serde_json::from_str(text).map_err(|error| error.to_string())?;
        ImageSpec::new(&transforms.0).map_err(|error| error.to_string())
    }

    #[test]
    fn transforms_before_the_pixels_make_the_framing() {
        let (scale, ratio) = ([0.08, 1.0], [0.75, 4.0 / 3.0]);
        for (text, framing) in [
            (r#"{"Cover": {"size": [8, 9]}}"#, Framing::Cover),
            (r#"{"Whole": {"size": [8, 9]}}"#, Framing::Whole),
            (r#"{"Resize": {"size": [8, 9]}}"#, Framing::Stretch),
            (r#"{"CenterCrop": {"size": [8, 9]}}"#, Framing::Center { short: 0 }),
            (
                r#"[{"Resize": {"size": 12}}, {"RandomCrop": {"size": [8, 9], "padding": 4}}]"#,
                Framing::Random { short: 12, padding: 4, before: 0 },
            ),
            (
                r#"[{"Pad": {"padding": 3}}, {"RandomCrop": {"size": [8, 9], "padding": 1}}]"#,
                Framing::Random { short: 0, padding: 4, before: 3 },
            ),
            (r#"{"RandomResizedCrop": {"size": [8, 9]}}"#, Framing::RandomResized { scale, ratio }),
        ] {
            assert_eq!(spec(text), Ok(ImageSpec { framing, ..ImageSpec::cover(8, 9) }), "{text}");
        }
        for (text, resampling) in [
            (r#"{"Resize": {"size": [8, 9], "interpolation": "lanczos"}}"#, Resampling::Lanczos),
            (
                r#"[{"Resize": {"size": 12, "interpolation": "box"}}, {"CenterCrop": {"size": [8, 9]}}]"#,
                Resampling::Box,
            ),
            (r#"{"RandomResizedCrop": {"size": [8, 9], "interpolation": "bicubic"}}"#, Resampling::Bicubic),
        ] {
            assert_eq!(spec(text).unwrap().resampling, Filters::One(resampling), "{text}");
        }
        let text = r#"{"RandomResizedCrop": {"size": 8, "interpolation": ["bilinear", "bicubic"]}}"#;
        let either = Filters::Either([Resampling::Bilinear, Resampling::Bicubic]);
        assert_eq!(spec(text).unwrap().resampling, either);
        let text = r#"[{"RandomHorizontalFlip": {}}, {"Pad": {"padding": 4}}, {"RandomCrop": {"size": 8}}, {"RandomVerticalFlip": {"p": 1}}]"#;
        let flipped = spec(text).unwrap();
        assert_eq!((flipped.flip, flipped.flip_down), (0.5, 1.0));
        let text = r#"[{"CenterCrop": {"size": 8}}, {"RandomInvert": {}}, {"RandomVerticalFlip": {"p": 1}}, {"Grayscale": {}}]"#;
        let spec = spec(text).unwrap();
        assert_eq!((spec.flip, spec.flip_down, spec.grey, spec.bytes()), (0.0, 1.0, true, 64));
        assert_eq!(spec.pixels, [Transform::RandomInvert { p: 0.5 }]);
    }

    #[test]
    fn transforms_of_pixels_may_come_before_the_framing() {
        let text = r#"[{"RandomInvert": {}}, {"RandomHorizontalFlip": {}}, {"GaussianBlur": {"kernel_size": 9}}, {"Grayscale": {}}, {"RandomCrop": {"size": 2}}, {"RandomVerticalFlip": {}}]"#;
        let before = spec(text).unwrap();
        assert_eq!(
            before.before.iter().map(Transform::name).collect::<Vec<_>>(),
            ["RandomInvert", "GaussianBlur", "Grayscale"]
        );
        assert_eq!((before.flip, before.flip_down, before.grey), (0.5, 0.5, true));
        assert_eq!(before.pixels, []);
        // Each image tells whether its size will do.
        assert!(before.fits_before([5, 9]).is_ok());
        let error = before.fits_before([4, 9]).unwrap_err().to_string();
        assert!(
            error.contains("kernel_size is (9, 9), but must be less than twice the sides of a row, 9 x 4"),
            "{error}"
        );
        let both = spec(r#"[{"RandAugment": {}}, {"RandomCrop": {"size": 9}}, {"RandomInvert": {}}, {"RandomHorizontalFlip": {}}]"#).unwrap();
        assert_eq!((both.before.len(), both.pixels.len(), both.flip), (1, 1, 0.5));
    }

    #[test]
    fn another_order_and_bad_arguments_are_refused_by_name() {
        let crop = r#"{"CenterCrop": {"size": 9}}"#;
        for (after, expected) in [
            (r#"{"Resize": {"size": 8}}"#, "got [CenterCrop, Resize], expected Resize, CenterCrop"),
            (
                r#"{"RandomInvert": {}}, {"CenterCrop": {"size": 8}}"#,
                "got [CenterCrop, RandomInvert, CenterCrop]",
            ),
            (
                r#"{"RandomHorizontalFlip": {}}, {"RandomHorizontalFlip": {}}"#,
                "RandomHorizontalFlip only once",
            ),
            (
                r#"{"RandAugment": {}}, {"RandomVerticalFlip": {}}"#,
                "before RandAugment, as the daemon flips first",
            ),
            (
                r#"{"RandomApply": {"transforms": {"RandomErasing": {}}}}, {"RandomVerticalFlip": {}}"#,
                "before RandomApply",
            ),
            (r#"{"Grayscale": {}}, {"RandomInvert": {}}"#, "expected Grayscale(1) last"),
            (
                r#"{"RandomOrder": {"transforms": [{"Grayscale": {}}]}}"#,
                "Grayscale: num_output_channels is 1",
            ),
            (
                r#"{"RandomApply": {"transforms": {"CenterCrop": {"size": 8}}}}"#,
                "RandomApply: got CenterCrop",
            ),
            (r#"{"RandomHorizontalFlip": {"p": 1.5}}"#, "RandomHorizontalFlip: p is 1.5, but must be 0 to 1"),
            (
                r#"{"GaussianBlur": {"kernel_size": 19}}"#,
                "kernel_size is (19, 19), but must be less than twice",
            ),
            (r#"{"GaussianBlur": {"kernel_size": 4}}"#, "odd numbers of pixels"),
            (
                r#"{"GaussianBlur": {"kernel_size": 3, "sigma": [0, 1]}}"#,
                "sigma is (0, 1), but must be two numbers above 0",
            ),
            (r#"{"RandomPosterize": {"bits": 0}}"#, "bits is 0, but must be 1 to 8"),
            (r#"{"RandomSolarize": {"threshold": 257}}"#, "threshold is 257"),
            (r#"{"RandomAdjustSharpness": {"sharpness_factor": -1}}"#, "sharpness_factor is -1"),
            (r#"{"RandomErasing": {"scale": [0.3, 0.2]}}"#, "scale is (0.3, 0.2)"),
            (
                r#"{"ColorJitter": {"hue": 0.6}}"#,
                "hue is (-0.6, 0.6), but must be two numbers from -0.5 to 0.5",
            ),
            (r#"{"RandomChoice": {"transforms": []}}"#, "transforms is empty"),
            (r#"{"RandomChoice": {"transforms": [{"RandomInvert": {}}], "p": [1, 2]}}"#, "p is 2 numbers"),
            (r#"{"RandomChoice": {"transforms": [{"RandomInvert": {}}], "p": [0]}}"#, "not all 0"),
            (r#"{"RandomChoice": {"transforms": [{"RandomInvert": {}}, []], "p": [2, -1]}}"#, "at least 0"),
        ] {
            let error = spec(&format!("[{crop}, {after}]")).unwrap_err();
            assert!(error.contains(expected), "{after}: {error}");
        }
    }

    #[test]
    fn bad_arguments_of_what_moves_pixels_are_refused_by_name() {
        let crop = r#"{"CenterCrop": {"size": 9}}"#;
        for (after, expected) in [
            (r#"{"RandomRotation": {"degrees": -5}}"#, "got -5, expected at least 0"),
            (r#"{"RandomRotation": {"degrees": [5, 4]}}"#, "degrees is (5, 4)"),
            (r#"{"RandomAffine": {"degrees": 5, "translate": [0.5, 2]}}"#, "translate is 2"),
            (r#"{"RandomAffine": {"degrees": 5, "scale": [0, 2]}}"#, "scale is (0, 2)"),
            (r#"{"RandomAffine": {"degrees": 5, "shear": [1, 2, 3]}}"#, "two or four of them"),
            (r#"{"RandomAffine": {"degrees": 5, "shear": 90}}"#, "shear is (-90, 90)"),
            (
                r#"{"RandomAffine": {"degrees": 5, "center": [0, -16385]}}"#,
                "center is -16385, but must be -16384",
            ),
            (r#"{"RandomRotation": {"degrees": 5, "center": 3}}"#, "expected an array of length 2"),
            (
                r#"{"RandomRotation": {"degrees": 5}}, {"RandomVerticalFlip": {}}"#,
                "before RandomRotation, as the daemon flips first",
            ),
            (
                r#"{"RandomPerspective": {"distortion_scale": 1.5}}"#,
                "distortion_scale is 1.5, but must be 0 to 1",
            ),
            (r#"{"RandomPerspective": {"p": -1}}"#, "RandomPerspective: p is -1"),
            (r#"{"AugMix": {"severity": 11}}"#, "severity is 11, but must be 1 to 10"),
            (r#"{"AugMix": {"mixture_width": 17}}"#, "mixture_width is 17, but must be 1 to 16"),
            (r#"{"AugMix": {"chain_depth": -2}}"#, "chain_depth is -2, but must be -1 to 16"),
            (r#"{"AugMix": {"alpha": 0}}"#, "alpha is 0, but must be 0.001 to 1000"),
            (r#"{"AugMix": {"interpolation": "bicubic"}}"#, "bicubic, but must be nearest or bilinear"),
            (r#"{"ElasticTransform": {"sigma": 1, "alpha": -1}}"#, "alpha is -1, but must be 0 to 16384"),
            (r#"{"ElasticTransform": {"sigma": [0, 1]}}"#, "sigma is 0, but must be above 0 and up to 31"),
            (r#"{"ElasticTransform": {"sigma": 32}}"#, "sigma is 32, but must be above 0 and up to 31"),
            (r#"{"ElasticTransform": {"sigma": 2.25}}"#, "less than a quarter of the sides of a row, 9 x 9"),
            (
                r#"{"ElasticTransform": {"sigma": 2, "interpolation": "bicubic"}}"#,
                "bicubic, but must be nearest or bilinear",
            ),
            (r#"{"RandAugment": {"magnitude": 31}}"#, "magnitude is 31, but must be 0 to 30"),
        ] {
            let error = spec(&format!("[{crop}, {after}]")).unwrap_err();
            assert!(error.contains(expected), "{after}: {error}");
        }
    }

    #[test]
    fn five_crops_are_five_views_and_stand_alone() {
        let text = r#"[{"Resize": {"size": 12}}, {"FiveCrop": {"size": [8, 9]}}]"#;
        let views = spec(text).unwrap().views();
        let corner = |right, bottom| Framing::Corner { short: 12, right, bottom };
        let corners = [corner(false, false), corner(true, false), corner(false, true), corner(true, true)];
        let framings: Vec<Framing> = views.iter().map(|view| view.framing).collect();
        assert_eq!(framings, [&corners[..], &[Framing::Center { short: 12 }]].concat());
        assert!(views.iter().all(|view| (view.height, view.width) == (8, 9)));
        for (text, expected) in [
            (
                r#"[{"FiveCrop": {"size": 8}}, {"RandomInvert": {}}]"#,
                "draw RandomInvert for each of its crops",
            ),
            (
                r#"[{"RandomHorizontalFlip": {}}, {"FiveCrop": {"size": 8}}]"#,
                "expected FiveCrop alone or behind",
            ),
            (r#"[{"Pad": {"padding": 2}}, {"FiveCrop": {"size": 8}}]"#, "Pad before RandomCrop"),
            (r#"{"FiveCrop": {"size": 0}}"#, "FiveCrop: size is 0"),
        ] {
            let error = spec(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_gives_no_rows_of_one_size_is_refused() {
        for (text, expected) in [
            ("[]", "got [], expected Resize"),
            (r#"{"Resize": {"size": 8}}"#, "Resize(8) keeps each image's ratio"),
            (
                r#"[{"Resize": {"size": [8, 9]}}, {"CenterCrop": {"size": 7}}]"#,
                "got Resize((8, 9)) before CenterCrop, but it stretches images to rows of that size: leave one of the two \
                 out, or give Resize one number, such as Resize(8)",
            ),
            (
                r#"[{"Resize": {"size": [8, 9]}}, {"RandomCrop": {"size": 7}}]"#,
                "before RandomCrop, but it stretches",
            ),
            (
                r#"{"RandomResizedCrop": {"size": 8, "interpolation": ["box", "box", "box"]}}"#,
                "expected one of `nearest`, `box`, `bilinear`, `hamming`, `bicubic`, `lanczos`, or two of them",
            ),
            (r#"{"Resize": {"size": [8, 8], "interpolation": ["box", "bicubic"]}}"#, "Resize: "),
            (
                r#"[{"Resize": {"size": 8}}, {"RandomResizedCrop": {"size": 8}}]"#,
                "got [Resize, RandomResizedCrop]",
            ),
            (r#"[{"Pad": {"padding": 2}}, {"CenterCrop": {"size": 8}}]"#, "Pad before RandomCrop"),
            (
                r#"[{"Resize": {"size": 9}}, {"RandomInvert": {}}, {"CenterCrop": {"size": 8}}]"#,
                "got [Resize, RandomInvert, CenterCrop], expected Resize",
            ),
            (
                r#"[{"RandomHorizontalFlip": {}}, {"RandAugment": {}}, {"RandomCrop": {"size": 8}}]"#,
                "expected flips behind RandAugment, as the daemon flips after all that comes before a crop",
            ),
            (
                r#"[{"Grayscale": {}}, {"CenterCrop": {"size": 8}}, {"RandomInvert": {}}]"#,
                "expected Grayscale(1) last",
            ),
            (
                r#"[{"Grayscale": {}}, {"CenterCrop": {"size": 8}}, {"Grayscale": {}}]"#,
                "expected Grayscale(1) last",
            ),
            (r#"[{"RandomInvert": {"p": 2}}, {"CenterCrop": {"size": 8}}]"#, "RandomInvert: p is 2"),
            (
                r#"[{"RandomHorizontalFlip": {}}, {"CenterCrop": {"size": 8}}]"#,
                "expected RandomHorizontalFlip behind CenterCrop",
            ),
            (
                r#"[{"RandomHorizontalFlip": {}}, {"RandomCrop": {"size": 8}}, {"RandomHorizontalFlip": {}}]"#,
                "RandomHorizontalFlip only once",
            ),
            (r#"{"CenterCrop": {"size": 0}}"#, "CenterCrop: size is 0, but must be 1 to 16384"),
            (r#"{"RandomCrop": {"size": 8, "padding": 20000}}"#, "padding is 20000"),
            (r#"{"RandomResizedCrop": {"size": 8, "scale": [0, 1]}}"#, "scale is (0, 1)"),
            (r#"{"RandomResizedCrop": {"size": 8, "ratio": [2, 1]}}"#, "ratio is (2, 1)"),
        ] {
            let error = spec(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let crop = r#"{"CenterCrop": {"size": 9}}"#;
        let many = format!("[{crop}{}]", r#", {"RandomInvert": {}}"#.repeat(TRANSFORMS_MAX));
        assert!(spec(&many).unwrap_err().contains("got 49 transforms"));
    }
}
