//! The views of each image: one row for each is made of it, all in one pass over its bytes.

use std::fmt;

use super::ImageSpec;
use super::codec::{Field, Reader, Writer};
use super::spec_error::SpecError;
use crate::limits::VIEWS_MAX;
use crate::{FormatError, ViewShape};

/// The views of each image, 1 to [`VIEWS_MAX`]. Most jobs have one.
#[derive(Clone, Copy)]
pub struct Views {
    count: usize,
    /// The first `count` count.
    specs: [ImageSpec; VIEWS_MAX],
}

impl Views {
    /// These views of each image.
    ///
    /// # Errors
    /// There are none, or too many. The specs are for [`Views::validate`].
    pub fn new(views: &[ImageSpec]) -> Result<Self, SpecError> {
        let mut specs = [ImageSpec::default(); VIEWS_MAX];
        match specs.get_mut(..views.len()) {
            Some(places) if !views.is_empty() => places.copy_from_slice(views),
            _ => {
                let expected = format_args!("1 to {VIEWS_MAX} lists of transforms");
                return Err(SpecError::new("views", views.len(), expected));
            }
        }
        Ok(Self { count: views.len(), specs })
    }

    /// The views' specs.
    #[must_use]
    pub fn specs(&self) -> &[ImageSpec] {
        self.specs.get(..self.count).unwrap_or_default()
    }

    /// The spec of the first view.
    #[must_use]
    pub fn first(&self) -> &ImageSpec {
        let [first, ..] = &self.specs;
        first
    }

    /// The views' shapes.
    #[must_use]
    pub fn shapes(&self) -> Vec<ViewShape> {
        self.specs().iter().map(ImageSpec::shape).collect()
    }

    /// Height and width of each view, for people.
    pub(super) fn sizes(&self) -> String {
        let size = |view: &ImageSpec| format!("{} x {}", view.height, view.width);
        self.specs().iter().map(size).collect::<Vec<_>>().join(" and ")
    }

    /// Whether colours lie side by side: in all views or in none.
    #[must_use]
    pub fn channels_last(&self) -> bool {
        self.specs().iter().any(|view| view.channels_last)
    }

    /// Bytes of one row: of an image of each view. Below 2^34 for views that are
    /// [valid](Self::validate).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.specs().iter().map(ImageSpec::bytes).sum()
    }

    /// Refuses numbers that make no image, and views that differ in the order of their bytes.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.specs().iter().try_for_each(ImageSpec::validate)?;
        if self.specs().iter().any(|view| view.channels_last != self.channels_last()) {
            return Err(SpecError::new("channels_last", "true and false", "the same for all views"));
        }
        Ok(())
    }
}

impl Field for Views {
    fn write(&self, writer: &mut Writer) {
        // At most 16.
        writer.put(&u8::try_from(self.count).unwrap_or(u8::MAX));
        self.specs().iter().for_each(|view| writer.put(view));
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        let count = reader.choice(name, |count| {
            (1..=VIEWS_MAX).contains(&usize::from(count)).then_some(usize::from(count))
        })?;
        let mut specs = [ImageSpec::default(); VIEWS_MAX];
        for view in specs.iter_mut().take(count) {
            *view = reader.get("view")?;
        }
        Ok(Self { count, specs })
    }
}

impl PartialEq for Views {
    /// Looks at the views that count only: most jobs have one.
    fn eq(&self, other: &Self) -> bool {
        self.specs() == other.specs()
    }
}

impl From<ImageSpec> for Views {
    /// One view.
    fn from(view: ImageSpec) -> Self {
        let mut specs = [ImageSpec::default(); VIEWS_MAX];
        let [first, ..] = &mut specs;
        *first = view;
        Self { count: 1, specs }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.specs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_one_to_sixteen_and_all_have_the_same_order_of_bytes() {
        let view = ImageSpec::cover(8, 9);
        assert_eq!(Views::new(&[view]), Ok(view.into()));
        assert_eq!(Views::new(&[]).unwrap_err().field, "views");
        assert_eq!(Views::new(&[view; VIEWS_MAX + 1]).unwrap_err().field, "views");
        Views::new(&[view; VIEWS_MAX]).unwrap().validate().unwrap();
        let last = ImageSpec { channels_last: true, ..view };
        assert_eq!(Views::new(&[view, last]).unwrap().validate().unwrap_err().field, "channels_last");
        let bad = Views::new(&[view, ImageSpec::cover(0, 9)]).unwrap();
        assert_eq!(bad.validate().unwrap_err().field, "height");
    }
}
