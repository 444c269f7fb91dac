//! Sizes of images, of which each batch has one: the size whose aspect ratio its images are near.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shade_formats::Size;
use shade_formats::limits::{BUCKETS_MAX, IMAGE_SIDE_MAX};

use crate::SpecError;

/// The sizes that batches have, from the tallest to the widest; none if all have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Heights and widths. The first ones are the buckets.
    rows: [[u16; 2]; BUCKETS_MAX],
    len: usize,
}

impl Buckets {
    /// All batches have one size.
    pub const NONE: Self = Self { rows: [[0; 2]; BUCKETS_MAX], len: 0 };

    /// Buckets of these heights and widths, in any order.
    ///
    /// # Errors
    /// There are too many, two have one ratio, or a side is none.
    pub fn new(given: &[[u32; 2]]) -> Result<Self, SpecError> {
        if given.len() > BUCKETS_MAX {
            return Err(SpecError::new("bucket", given.len(), format_args!("at most {BUCKETS_MAX} sizes")));
        }
        let mut rows = Vec::with_capacity(given.len());
        for &[height, width] in given {
            let side = |side| u16::try_from(side).ok().filter(|_| (1..=IMAGE_SIDE_MAX).contains(&side));
            let (Some(height), Some(width)) = (side(height), side(width)) else {
                let expected = format_args!("heights and widths of 1 to {IMAGE_SIDE_MAX}");
                return Err(SpecError::new("bucket", format_args!("[{height}, {width}]"), expected));
            };
            rows.push([height, width]);
        }
        let across = |rows: &[[u16; 2]; 2]| {
            let [[height, width], [next_height, next_width]] = rows.map(|row| row.map(u64::from));
            [width * next_height, next_width * height]
        };
        rows.sort_by(|&left, &right| {
            let [left, right] = across(&[left, right]);
            left.cmp(&right)
        });
        let twice = rows.array_windows().find(|pair| matches!(across(pair), [left, right] if left == right));
        if let Some([one, other]) = twice {
            let got = format_args!("{one:?} and {other:?}, which have one ratio");
            return Err(SpecError::new("bucket", got, "sizes of different ratios"));
        }
        let mut buckets = Self { len: rows.len(), ..Self::NONE };
        buckets.rows.iter_mut().zip(rows).for_each(|(to, row)| *to = row);
        Ok(buckets)
    }

    /// Whether all batches have one size.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Height and width of each.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = [u32; 2]> {
        self.rows.get(..self.len).unwrap_or_default().iter().map(|row| row.map(u32::from))
    }

    /// Number of the one whose ratio is nearest to that of an image of at least one pixel: by the
    /// quotient of the two ratios, of which the larger one is divided. The taller one of two that
    /// are equally near.
    #[must_use]
    pub fn nearest(&self, image: Size) -> u8 {
        let quotient = |[height, width]: [u32; 2]| {
            let (wide, tall) =
                (u64::from(image.width) * u64::from(height), u64::from(image.height) * u64::from(width));
            [wide.max(tall), wide.min(tall)].map(u128::from)
        };
        let quotients = (0..).zip(self.sizes().map(quotient));
        let nearest = quotients.min_by(|(_, [a, b]), (_, [c, d])| (a * d).cmp(&(c * b)));
        nearest.map_or(0, |(number, _)| number)
    }
}

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sizes())
    }
}

impl<'de> Deserialize<'de> for Buckets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sides(most: u32) -> impl Strategy<Value = [u32; 2]> {
        [1..=most, 1..=most]
    }

    #[test]
    fn images_by_hand() {
        let buckets = Buckets::new(&[[512, 768], [640, 640], [768, 512]]).unwrap();
        assert_eq!(buckets.sizes().collect::<Vec<_>>(), [[768, 512], [640, 640], [512, 768]]);
        let of = |width, height| buckets.nearest(Size { width, height });
        assert_eq!([of(30, 40), of(31, 30), of(40, 30), of(1, 65_535), of(65_535, 1)], [0, 1, 2, 0, 2]);
        assert_eq!(Buckets::new(&[[2, 1], [1, 2]]).unwrap().nearest(Size { width: 5, height: 5 }), 0);
    }

    #[test]
    fn what_makes_no_buckets_is_refused() {
        for (given, expected) in [
            (vec![[0, 8]], "bucket is [0, 8], but must be heights and widths of 1 to 16384"),
            (vec![[8, 16_385]], "bucket is [8, 16385]"),
            (vec![[8, 4], [3, 3], [32, 16]], "[8, 4] and [32, 16], which have one ratio"),
            ((1..66).map(|side| [side, 99]).collect(), "bucket is 65, but must be at most 64 sizes"),
        ] {
            let error = Buckets::new(&given).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn an_image_is_in_the_nearest_in_any_order(
            given in prop::collection::vec(sides(16_384), 1..9), [width, height] in sides(65_535),
        ) {
            let Ok(buckets) = Buckets::new(&given) else { return Ok(()) };
            let reversed: Vec<_> = given.iter().rev().copied().collect();
            prop_assert_eq!(Buckets::new(&reversed).unwrap(), buckets);
            let text = serde_json::to_string(&buckets).unwrap();
            prop_assert_eq!(serde_json::from_str::<Buckets>(&text).unwrap(), buckets);
            let ratio = |height: u32, width: u32| (f64::from(width) / f64::from(height)).ln();
            let far = |[tall, wide]: [u32; 2]| (ratio(tall, wide) - ratio(height, width)).abs();
            let found = buckets.sizes().nth(buckets.nearest(Size { width, height }).into()).unwrap();
            let least = buckets.sizes().map(far).fold(f64::INFINITY, f64::min);
            prop_assert!(far(found) <= least + 1e-9, "{found:?}");
        }
    }
}
