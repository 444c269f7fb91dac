//! Which of the two passes comes first: Pillow's rule.

use crate::Size;

/// The order of the two passes of resizing. Each rounds to bytes, so where a filter has weights
/// below 0 the order shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Along the lines, then down the columns.
    #[default]
    AcrossFirst,
    /// Down the columns, then along the lines.
    DownFirst,
}

impl Order {
    /// The order in which Pillow resizes an image of size `from` to size `to`.
    ///
    /// Pillow 13.0 and newer begin with the columns where these become shorter by more than twice
    /// the pixels by which the lines do. Older ones always begin with the lines.
    pub(crate) fn of(from: Size, to: Size) -> Self {
        let shorter = |from: u32, to: u32| i64::from(from) - i64::from(to);
        let (across, down) = (shorter(from.width, to.width), shorter(from.height, to.height));
        if down > 0 && down > 2 * across { Self::DownFirst } else { Self::AcrossFirst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_shorter_columns_come_first() {
        let order = |from: [u32; 2], to: [u32; 2]| {
            let [from, to] = [from, to].map(|[width, height]| Size { width, height });
            Order::of(from, to)
        };
        // As seen of Pillow 13.0: the last height with the columns first, and the next one.
        for (from, width, height) in [
            ([40, 200], 30, 179),
            ([40, 200], 10, 139),
            ([40, 200], 5, 129),
            ([100, 200], 50, 99),
            ([100, 200], 80, 159),
            ([40, 200], 60, 199),
        ] {
            assert_eq!(order(from, [width, height]), Order::DownFirst, "{from:?}");
            assert_eq!(order(from, [width, height + 1]), Order::AcrossFirst, "{from:?}");
        }
        assert_eq!(order([200, 200], [100, 1]), Order::AcrossFirst);
        assert_eq!(order([1, u32::MAX], [u32::MAX, 1]), Order::DownFirst);
        assert_eq!(order([u32::MAX, 1], [1, u32::MAX]), Order::AcrossFirst);
    }
}
