//! Sizes of resized images.

use shade_formats::Size;

/// The size whose short side is `short`, as torchvision's `Resize(short)` has it: the long side is
/// `short * long / short side`, rounded down. `None` where `short` is 0 or the short side is
/// `short` or less already: torchvision would enlarge, but packing must not.
#[must_use]
pub fn resize_short(size: Size, short: u32) -> Option<Size> {
    let side = size.width.min(size.height);
    (1..side).contains(&short).then(|| scaled(size, short, side))
}

/// The size whose long side is `max`; the short side is `max * short / long side`, rounded down as
/// torchvision does for `Resize(.., max_size)`, but at least 1. `None` where `max` is 0 or the long
/// side is `max` or less already.
#[must_use]
pub fn resize_max(size: Size, max: u32) -> Option<Size> {
    let side = size.width.max(size.height);
    (1..side).contains(&max).then(|| scaled(size, max, side))
}

/// [`resize_short`], then [`resize_max`] of the result: torchvision's `Resize(short,
/// max_size=max)`, except that nothing is enlarged. `None` where neither changes anything.
#[must_use]
pub fn resize_both(size: Size, short: u32, max: u32) -> Option<Size> {
    let shortened = resize_short(size, short);
    resize_max(shortened.unwrap_or(size), max).or(shortened)
}

/// `size` times `to / from`, sides rounded down, but at least 1.
pub(crate) fn scaled(size: Size, to: u32, from: u32) -> Size {
    let scale = |side: u32| {
        let side = u64::from(side) * u64::from(to) / u64::from(from.max(1));
        u32::try_from(side).unwrap_or(u32::MAX).max(1)
    };
    Size { width: scale(size.width), height: scale(size.height) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn the_short_side_is_met_and_the_long_one_rounded_down() {
        // torchvision 0.29, _compute_resized_output_size
        assert_eq!(resize_short(size(500, 375), 224), Some(size(298, 224)));
        assert_eq!(resize_short(size(375, 500), 224), Some(size(224, 298)));
        assert_eq!(resize_short(size(257, 256), 255), Some(size(255, 255)));
        assert_eq!(resize_short(size(4_000_000_000, 7), 6), Some(size(3_428_571_428, 6)));
    }

    #[test]
    fn nothing_is_enlarged() {
        assert_eq!(resize_short(size(500, 375), 375), None);
        assert_eq!(resize_short(size(500, 375), 400), None);
        assert_eq!(resize_max(size(500, 375), 500), None);
        assert_eq!(resize_both(size(500, 375), 375, 500), None);
        assert_eq!((resize_short(size(5, 3), 0), resize_max(size(5, 3), 0)), (None, None));
    }

    #[test]
    fn the_long_side_is_capped_and_no_side_vanishes() {
        assert_eq!(resize_max(size(500, 375), 256), Some(size(256, 192)));
        assert_eq!(resize_max(size(375, 500), 333), Some(size(249, 333)));
        assert_eq!(resize_max(size(1000, 1), 10), Some(size(10, 1)));
    }

    #[test]
    fn short_comes_before_max() {
        // torchvision: Resize(224, max_size=256) of 500 x 375 is int(256 * 224 / 298) = 192 rows.
        assert_eq!(resize_both(size(500, 375), 224, 256), Some(size(256, 192)));
        assert_eq!(resize_both(size(500, 375), 224, 300), Some(size(298, 224)));
        assert_eq!(resize_both(size(900, 100), 224, 300), Some(size(300, 33)));
    }
}
