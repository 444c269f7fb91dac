//! The shapes of a decoded batch's views, and the table in its block that tells them.

use crate::limits::{IMAGE_SIDE_MAX, VIEWS_MAX};
use crate::{Dtype, FormatError, ViewShape};

/// Bytes of one view in the table: height, width, channels and the values' type, each u32.
pub(super) const ENTRY_BYTES: usize = 16;

/// The shapes of 1 to [`VIEWS_MAX`] views, or of none where a batch has no views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shapes {
    count: usize,
    /// The first `count` count.
    shapes: [ViewShape; VIEWS_MAX],
}

impl Shapes {
    /// Refuses an impossible number of views, and an impossible shape.
    pub(super) fn new(views: &[ViewShape]) -> Result<Self, FormatError> {
        let mut shapes = [ViewShape::default(); VIEWS_MAX];
        match shapes.get_mut(..views.len()) {
            Some(places) if !views.is_empty() => places.copy_from_slice(views),
            _ => return Err(views_fault(views.len())),
        }
        for (at, shape) in (0_u64..).zip(views) {
            let is_side = |side| (1..=IMAGE_SIDE_MAX).contains(&side);
            if !(is_side(shape.height) && is_side(shape.width) && matches!(shape.channels, 1 | 3)) {
                let ViewShape { height, width, channels, .. } = shape;
                let got = format_args!("{channels} x {height} x {width}");
                let expected = format_args!("1 or 3 channels, and sides of 1 to {IMAGE_SIDE_MAX} pixels");
                return Err(FormatError::new("view of a batch", at * ENTRY_BYTES as u64, got, expected));
            }
        }
        Ok(Self { count: views.len(), shapes })
    }

    /// Reads a table.
    pub(super) fn decode(table: &[u8]) -> Result<Self, FormatError> {
        let (entries, rest) = table.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || entries.len() > VIEWS_MAX {
            return Err(views_fault(entries.len()));
        }
        let shape = |(at, entry): (u64, &[u8; ENTRY_BYTES])| {
            let [height, width, channels, code] = words(entry);
            let dtype = Dtype::from_code(code).ok_or_else(|| {
                FormatError::new("type of a view's values", at * ENTRY_BYTES as u64 + 12, code, "type 0 to 3")
            })?;
            Ok(ViewShape { height, width, channels, dtype })
        };
        Self::new(&(0..).zip(entries).map(shape).collect::<Result<Vec<_>, _>>()?)
    }

    /// The table.
    pub(super) fn encode(&self) -> Vec<u8> {
        let entry = |shape: &ViewShape| [shape.height, shape.width, shape.channels, shape.dtype as u32];
        self.as_slice().iter().flat_map(entry).flat_map(u32::to_le_bytes).collect()
    }

    pub(super) fn as_slice(&self) -> &[ViewShape] {
        self.shapes.get(..self.count).unwrap_or_default()
    }
}

/// The four numbers of an entry.
fn words(entry: &[u8; ENTRY_BYTES]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(entry.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// The fault of an impossible number of views.
pub(super) fn views_fault(views: usize) -> FormatError {
    FormatError::new("views of a batch", 0, views, format_args!("1 to {VIEWS_MAX} views"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_shapes_in_range_or_an_error(table in prop::collection::vec(0_u8..4, 0..300)) {
            if let Ok(shapes) = Shapes::decode(&table) {
                prop_assert_eq!(shapes.as_slice().len() * ENTRY_BYTES, table.len());
                prop_assert!(shapes.as_slice().iter().all(|shape| (1..1 << 32).contains(&shape.bytes())));
            }
        }
    }

    #[test]
    fn a_table_is_read_back() {
        let shapes = [
            ViewShape { height: 224, width: 192, channels: 3, dtype: Dtype::Bfloat16 },
            ViewShape { height: 1, width: IMAGE_SIDE_MAX, channels: 1, dtype: Dtype::Uint8 },
        ];
        let shapes = Shapes::new(&shapes).unwrap();
        assert_eq!(Shapes::decode(&shapes.encode()), Ok(shapes));
        let pixel = ViewShape { height: 1, width: 1, channels: 3, dtype: Dtype::Uint8 };
        for bad in [
            ViewShape { height: 0, ..pixel },
            ViewShape { width: IMAGE_SIDE_MAX + 1, ..pixel },
            ViewShape { channels: 2, ..pixel },
        ] {
            assert!(Shapes::new(&[bad]).is_err(), "{bad:?}");
        }
        for dtype in Dtype::ALL {
            let mut table = Shapes::new(&[ViewShape { dtype, ..pixel }]).unwrap().encode();
            assert_eq!(Shapes::decode(&table).unwrap().as_slice()[0].bytes(), 3 * dtype.bytes() as u64);
            table[12] = 4;
            assert!(Shapes::decode(&table).is_err(), "there is no such type");
        }
    }
}
