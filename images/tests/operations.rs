//! Rows with operations on pixels: any valid list on rows of any size, in all orders of bytes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shade_formats::index::Media;
use shade_formats::{Dtype, Geometry, MIRRORED, UPSIDE_DOWN};
use shade_images::normalize::Lanes;
use shade_images::{Draw, ImageFault, RowDecoder};
use shade_job::{
    AutoAugmentPolicy, Colour, Degrees, Factor, Filters, Floats, Framing, Hue, ImageSpec, InTurn,
    Interpolation, Pair, Resampling, Shear, Transform,
};

/// Rows from a pixel to more than a kernel: the filters have their edge cases at 1 to 3.
const SIDE_MAX: u32 = 9;

const POLICIES: [AutoAugmentPolicy; 3] =
    [AutoAugmentPolicy::Imagenet, AutoAugmentPolicy::Cifar10, AutoAugmentPolicy::Svhn];

fn chance() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0), Just(1.0), 0.0_f32..=1.0]
}

fn range(least: f32, most: f32) -> impl Strategy<Value = [f32; 2]> {
    let number = prop_oneof![Just(least), Just(most), least..=most];
    (number.clone(), number).prop_map(|(a, b)| [a.min(b), a.max(b)])
}

/// An odd length that is continued by its reflection at most once.
fn kernel(side: u32) -> impl Strategy<Value = u8> {
    (0..side).prop_map(|half| u8::try_from(2 * half + 1).unwrap())
}

/// A valid transform of the pixels of rows of this size, without others in it.
fn step(height: u32, width: u32) -> impl Strategy<Value = Transform> {
    // Some properties are of colours alone.
    prop_oneof![5 => colours(height, width), 1 => places(), 1 => motions(height, width)]
}

/// A transform that leaves each pixel where it is.
fn colours(height: u32, width: u32) -> impl Strategy<Value = Transform> {
    let factors = || range(0.0, 1024.0).prop_map(Factor);
    prop_oneof![
        (factors(), factors(), factors(), range(-0.5, 0.5).prop_map(Hue)).prop_map(
            |(brightness, contrast, saturation, hue)| Transform::ColorJitter {
                brightness,
                contrast,
                saturation,
                hue
            }
        ),
        chance().prop_map(|p| Transform::RandomGrayscale { p }),
        Just(Transform::Grayscale { num_output_channels: 3 }),
        Just(Transform::RandomChannelPermutation {}),
        (kernel(width), kernel(height), range(f32::MIN_POSITIVE, 1024.0)).prop_map(
            |(across, down, sigma)| {
                Transform::GaussianBlur { kernel_size: Pair([across, down]), sigma: Pair(sigma) }
            }
        ),
        (range(0.0, 1024.0), chance())
            .prop_map(|(radius, p)| Transform::PillowGaussianBlur { radius: Pair(radius), p }),
        (0.0_f32..=256.0, chance()).prop_map(|(threshold, p)| Transform::RandomSolarize { threshold, p }),
        (1_u8..=8, chance()).prop_map(|(bits, p)| Transform::RandomPosterize { bits, p }),
        chance().prop_map(|p| Transform::RandomInvert { p }),
        chance().prop_map(|p| Transform::RandomAutocontrast { p }),
        chance().prop_map(|p| Transform::RandomEqualize { p }),
        (0.0_f32..=1024.0, chance())
            .prop_map(|(sharpness_factor, p)| Transform::RandomAdjustSharpness { sharpness_factor, p }),
    ]
}

/// How pixels of a tensor are made.
fn of_tensors() -> impl Strategy<Value = (Interpolation, Option<Colour>)> {
    let ways = &[Interpolation::Nearest, Interpolation::Bilinear][..];
    (prop::sample::select(ways), prop::option::of(any::<[u8; 3]>().prop_map(Colour)))
}

/// Two sigmas of which a kernel is continued by its reflection at most once, or none.
fn smoothness(side: u32) -> impl Strategy<Value = [f32; 2]> {
    let most = (f32::from(u8::try_from(side).unwrap()) - 0.5) / 4.0;
    let sigma = move || f32::MIN_POSITIVE..most;
    prop_oneof![Just([0.0; 2]), [sigma(), sigma()]]
}

/// A place about which pixels turn, or the middle.
fn center() -> impl Strategy<Value = Option<[f64; 2]>> {
    let place = || prop_oneof![Just(-16_384.0), Just(16_384.0), -16.0..16.0];
    prop::option::of([place(), place()])
}

/// How pixels of an image are made.
fn moved() -> impl Strategy<Value = (Interpolation, Colour)> {
    let ways = &[Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic][..];
    (prop::sample::select(ways), any::<[u8; 3]>().prop_map(Colour))
}

/// A transform that moves all pixels.
fn motions(height: u32, width: u32) -> impl Strategy<Value = Transform> {
    prop_oneof![
        (range(-400.0, 400.0), center(), moved()).prop_map(|(degrees, center, (interpolation, fill))| {
            Transform::RandomRotation { degrees: Degrees(degrees), interpolation, center, fill }
        }),
        (
            range(-400.0, 400.0),
            range(0.0, 1.0),
            range(f32::MIN_POSITIVE, 1024.0),
            [range(-89.0, 89.0), range(-89.0, 89.0)],
            center(),
            moved()
        )
            .prop_map(|(degrees, translate, scale, [x, y], center, (interpolation, fill))| {
                Transform::RandomAffine {
                    degrees: Degrees(degrees),
                    translate: Pair(translate),
                    scale: Pair(scale),
                    shear: Shear([x[0], x[1], y[0], y[1]]),
                    interpolation,
                    fill,
                    center,
                }
            }),
        (0.0..=1.0, chance(), moved()).prop_map(|(distortion_scale, p, (interpolation, fill))| {
            Transform::RandomPerspective { distortion_scale, p, interpolation, fill }
        }),
        (range(0.0, 16_384.0), smoothness(height.min(width)), of_tensors()).prop_map(
            |(alpha, sigma, (interpolation, fill))| Transform::ElasticTransform {
                alpha: Pair(alpha),
                sigma: Pair(sigma),
                interpolation,
                fill
            }
        ),
    ]
}

/// A transform that moves or erases pixels, or one of colours: the policies have both.
fn places() -> impl Strategy<Value = Transform> {
    prop_oneof![
        (chance(), range(0.0, 1.0), range(1.0 / 1024.0, 1024.0), any::<[u8; 3]>().prop_map(Colour))
            .prop_map(|(p, scale, ratio, value)| Transform::RandomErasing { p, scale, ratio, value }),
        (0_u8..=16, 2_u8.., any::<u8>(), moved()).prop_map(
            |(num_ops, num_magnitude_bins, magnitude, (interpolation, fill))| Transform::RandAugment {
                num_ops,
                magnitude: magnitude % num_magnitude_bins,
                num_magnitude_bins,
                interpolation,
                fill
            }
        ),
        (0_u8..=16, [0.0_f64..=10.0, 0.0..=100.0], chance(), any::<bool>(), 0.0..=1.0, moved()).prop_map(
            |(num_ops, [magnitude, magnitude_std], p, increasing, translate, (interpolation, fill))| {
                let interpolations = vec![interpolation, Interpolation::Bicubic];
                Transform::TimmRandAugment {
                    num_ops,
                    magnitude,
                    magnitude_std,
                    p,
                    increasing,
                    translate,
                    interpolations,
                    fill,
                }
            }
        ),
        (2_u8.., moved()).prop_map(|(num_magnitude_bins, (interpolation, fill))| {
            Transform::TrivialAugmentWide { num_magnitude_bins, interpolation, fill }
        }),
        (
            [1_u8..=10, 1..=16],
            -1_i8..=16,
            prop_oneof![Just(0.001), Just(1000.0), 0.001..=4.0],
            any::<bool>(),
            of_tensors(),
        )
            .prop_map(
                |([severity, mixture_width], chain_depth, alpha, all_ops, (interpolation, fill))| {
                    Transform::AugMix {
                        severity,
                        mixture_width,
                        chain_depth,
                        alpha,
                        all_ops,
                        interpolation,
                        fill,
                    }
                }
            ),
        (prop::sample::select(&POLICIES[..]), moved()).prop_map(|(policy, (interpolation, fill))| {
            Transform::AutoAugment { policy, interpolation, fill }
        }),
    ]
}

/// A valid list, perhaps with a `RandomApply`, `RandomOrder` or `RandomChoice` of some of them.
fn steps(height: u32, width: u32) -> impl Strategy<Value = Vec<Transform>> {
    let list = || prop::collection::vec(step(height, width), 0..4);
    let one_by_one =
        |list: Vec<Transform>| list.into_iter().map(|step| InTurn(vec![step])).collect::<Vec<_>>();
    let holder = prop_oneof![
        (list(), chance()).prop_map(|(list, p)| Transform::RandomApply { transforms: InTurn(list), p }),
        list().prop_map(move |list| Transform::RandomOrder { transforms: one_by_one(list) }),
        (list(), list()).prop_map(|(one, other)| Transform::RandomChoice {
            transforms: vec![InTurn(one), InTurn(other)],
            p: Some(vec![1.0, 2.0])
        }),
    ];
    (list(), prop::option::of(holder), list())
        .prop_map(|(before, holder, after)| [before, holder.into_iter().collect(), after].concat())
}

fn view(channels_last: bool) -> impl Strategy<Value = ImageSpec> {
    let framing = prop_oneof![
        Just(Framing::Cover),
        Just(Framing::Stretch),
        (0_u32..12).prop_map(|short| Framing::Center { short }),
        // Resized so that it is large enough.
        any::<[bool; 2]>().prop_map(|[right, bottom]| Framing::Corner { short: SIDE_MAX, right, bottom }),
        Just(Framing::Random { short: 0, padding: SIDE_MAX, before: 0 }),
        Just(Framing::RandomResized { scale: [0.1, 1.0], ratio: [0.5, 2.0] }),
    ];
    let sides = (1..=SIDE_MAX, 1..=SIDE_MAX);
    // Images may have a single pixel.
    let before = prop_oneof![Just(Vec::new()), steps(1, 1)];
    let filter = || prop::sample::select(Resampling::ALL);
    let filters =
        prop_oneof![filter().prop_map(Filters::One), [filter(), filter()].prop_map(Filters::Either)];
    (sides, framing, filters, [chance(), chance()], any::<bool>(), before).prop_flat_map(
        move |((height, width), framing, resampling, [flip, flip_down], grey, before)| {
            steps(height, width).prop_map(move |pixels| ImageSpec {
                height,
                width,
                framing,
                resampling,
                flip: flip.into(),
                flip_down: flip_down.into(),
                channels_last,
                grey,
                before: before.clone(),
                pixels,
                ..ImageSpec::default()
            })
        },
    )
}

fn views() -> impl Strategy<Value = Vec<ImageSpec>> {
    any::<bool>().prop_flat_map(|channels_last| prop::collection::vec(view(channels_last), 1..4))
}

/// An image without compression.
fn image() -> impl Strategy<Value = Vec<u8>> {
    (1_usize..12, 1_usize..12).prop_flat_map(|(width, height)| {
        let count = 3 * width * height;
        // Flat ones and few levels are where histograms have their edge cases.
        let level = prop_oneof![any::<u8>(), prop::sample::select(&[0, 255][..])];
        let pixels = prop_oneof![
            any::<u8>().prop_map(move |level| vec![level; count]),
            prop::collection::vec(level, count)
        ];
        pixels.prop_map(move |pixels| [format!("P6 {width} {height} 255\n").into_bytes(), pixels].concat())
    })
}

/// The rows of `views`, no byte of which is left out; one with operations has each written once.
fn rows(
    decoder: &mut RowDecoder,
    bytes: &[u8],
    views: &[ImageSpec],
    position: u32,
) -> Vec<(Vec<u8>, Geometry)> {
    let mut out: Vec<_> =
        views.iter().map(|view| vec![None; usize::try_from(view.bytes()).unwrap()]).collect();
    let mut geometry = vec![Geometry::default(); views.len()];
    let draw = Draw::at(5, 1, position);
    decoder
        .decode_views(Media::Ppm, bytes, views, draw, &mut geometry, |view, at, piece| {
            let at = usize::try_from(at).unwrap();
            for (place, &value) in out[view][at..at + piece.len()].iter_mut().zip(piece) {
                let before = place.replace(value);
                // Without operations black is written first.
                assert!(before.is_none() || views[view].pixels.is_empty(), "written twice");
            }
            Ok::<(), ImageFault>(())
        })
        .unwrap();
    let whole = out.into_iter().map(|row| row.into_iter().map(Option::unwrap).collect());
    whole.zip(geometry).collect()
}

/// The row as planes.
fn planes(row: &[u8], view: &ImageSpec) -> Vec<u8> {
    if !view.channels_last || view.grey {
        return row.to_vec();
    }
    (0..3).flat_map(|colour| row.iter().skip(colour).step_by(3).copied()).collect()
}

fn grey(planes: &[u8]) -> Vec<u8> {
    let plane = planes.len() / 3;
    let level = |at: usize| {
        let [red, green, blue] = [0, 1, 2].map(|colour| u32::from(planes[colour * plane + at]));
        u8::try_from((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16).unwrap()
    };
    (0..plane).map(level).collect()
}

/// `planes` mirrored from left to right or from top to bottom.
fn mirrored(planes: &[u8], view: &ImageSpec, down: bool) -> Vec<u8> {
    let (width, height) = (view.width as usize, view.height as usize);
    let mut mirrored = Vec::new();
    for plane in planes.chunks(width * height) {
        let mut lines: Vec<_> = plane.chunks(width).map(<[u8]>::to_vec).collect();
        if down {
            lines.reverse();
        } else {
            lines.iter_mut().for_each(|line| line.reverse());
        }
        mirrored.extend(lines.concat());
    }
    mirrored
}

proptest! {
    #[test]
    fn a_row_is_the_same_in_every_order_of_bytes(
        views in views(), bytes in image(), position in 0_u32..1000,
    ) {
        for view in &views {
            let size = Pair([view.height, view.width]);
            let whole = [vec![Transform::Cover { size }], view.pixels.clone()].concat();
            prop_assert_eq!(ImageSpec::new(&whole).map(|spec| spec.pixels), Ok(view.pixels.clone()));
        }
        let mut decoder = RowDecoder::default();
        let found = rows(&mut decoder, &bytes, &views, position);
        prop_assert_eq!(&found, &rows(&mut decoder, &bytes, &views, position), "equal draws, equal rows");
        prop_assert_eq!(&found[..1], &rows(&mut RowDecoder::default(), &bytes, &views[..1], position)[..]);
        let last = !views[0].channels_last;
        let turned: Vec<_> = views.iter().map(|view| ImageSpec { channels_last: last, ..view.clone() }).collect();
        let coloured: Vec<_> = views.iter().map(|view| ImageSpec { grey: false, ..view.clone() }).collect();
        let turned_rows = rows(&mut decoder, &bytes, &turned, position);
        let coloured_rows = rows(&mut decoder, &bytes, &coloured, position);
        for (nth, view) in views.iter().enumerate() {
            let own = planes(&found[nth].0, view);
            prop_assert_eq!(&own, &planes(&turned_rows[nth].0, &turned[nth]));
            prop_assert_eq!(found[nth].1, turned_rows[nth].1);
            let colours = planes(&coloured_rows[nth].0, &coloured[nth]);
            prop_assert_eq!(own, if view.grey { grey(&colours) } else { colours });
        }
    }

    /// Whatever the pieces are in which a row is written.
    #[test]
    fn floats_are_made_of_the_bytes_of_the_same_row(
        views in views(), bytes in image(), position in 0_u32..1000, dtype in prop::sample::select(&Dtype::ALL[1..]),
        means in [-1.0..2.0_f32, -1.0..2.0, -1.0..2.0], stds in [0.1..2.0_f32, 0.1..2.0, 0.1..2.0],
    ) {
        let mut decoder = RowDecoder::default();
        let of = |view: &ImageSpec| match view.grey {
            true => Floats { dtype, mean: [means[0]; 3], std: [stds[0]; 3] },
            false => Floats { dtype, mean: means, std: stds },
        };
        let floating: Vec<_> =
            views.iter().map(|view| ImageSpec { floats: Some(of(view)), ..view.clone() }).collect();
        let plain = rows(&mut decoder, &bytes, &views, position);
        let found = rows(&mut decoder, &bytes, &floating, position);
        for ((view, plain), found) in views.iter().zip(plain).zip(found) {
            let (floats, colours) = (of(view), if view.grey { 1 } else { 3 });
            let plane = plain.0.len() / colours;
            let colour = |at: usize| if view.channels_last { at % colours } else { at / plane };
            let mut expected = vec![0; plain.0.len() * dtype.bytes()];
            for ((at, byte), value) in plain.0.iter().enumerate().zip(expected.chunks_mut(dtype.bytes())) {
                Lanes::plane(&floats, colour(at)).fill(&[*byte], value);
            }
            prop_assert_eq!(found, (expected, plain.1));
        }
    }

    #[test]
    fn what_comes_before_a_crop_is_done_to_the_whole_image(
        view in view(true), before in steps(1, 1), bytes in image(), position in 0_u32..1000,
    ) {
        let header = bytes.splitn(4, |byte| byte.is_ascii_whitespace());
        let sides: Vec<u32> =
            header.skip(1).take(2).map(|side| std::str::from_utf8(side).unwrap().parse().unwrap()).collect();
        let whole = ImageSpec {
            framing: Framing::Whole,
            channels_last: true,
            pixels: before.clone(),
            ..ImageSpec::cover(sides[1], sides[0])
        };
        let mut decoder = RowDecoder::default();
        let changed = rows(&mut decoder, &bytes, &[whole], position).remove(0).0;
        let changed = [format!("P6 {} {} 255\n", sides[0], sides[1]).into_bytes(), changed].concat();
        // A second list would draw other numbers, as it goes on with the stream of the first.
        let plain = ImageSpec { before: Vec::new(), pixels: Vec::new(), ..view };
        let view = ImageSpec { before, ..plain.clone() };
        let expected = rows(&mut decoder, &changed, &[plain], position);
        prop_assert_eq!(rows(&mut decoder, &bytes, &[view], position), expected);
    }

    /// So a flip may stand behind the operations that know no places.
    #[test]
    fn a_flip_before_operations_is_one_after_them(
        view in view(false), bytes in image(), position in 0_u32..1000,
    ) {
        prop_assume!(!view.pixels.iter().any(Transform::knows_places));
        let mut decoder = RowDecoder::default();
        let mut row = |flip, flip_down| {
            let view = ImageSpec { flip, flip_down, ..view.clone() };
            rows(&mut decoder, &bytes, &[view], position).remove(0)
        };
        let (plain, plain_geometry) = row(0.0, 0.0);
        for (flip, flip_down, bit) in [(1.0, 0.0, MIRRORED), (0.0, 1.0, UPSIDE_DOWN)] {
            let (found, geometry) = row(flip, flip_down);
            prop_assert_eq!(found, mirrored(&plain, &view, bit == UPSIDE_DOWN));
            prop_assert_eq!(geometry, Geometry { flipped: bit, ..plain_geometry });
        }
    }
}
