//! Sizes of simulated caches.

use shade_job::{Capacity, CapacityError};

use crate::error::SimulateError;
use crate::sizes::Sizes;

/// A cache size as given: a share of all samples' bytes, bytes, or a number of samples where sizes
/// are not known.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSize {
    text: String,
    capacity: Capacity,
}

impl std::str::FromStr for CacheSize {
    type Err = CapacityError;

    fn from_str(text: &str) -> Result<Self, CapacityError> {
        let text = text.trim();
        Ok(Self { text: text.to_owned(), capacity: text.parse()? })
    }
}

impl CacheSize {
    /// As it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The capacity if all samples take `total`: in bytes, or in samples where sizes are not known.
    /// It was given as this option.
    ///
    /// # Errors
    /// It is given in bytes and sizes are not known.
    pub(super) fn resolve(&self, option: &str, sizes: &Sizes, total: u64) -> Result<u64, SimulateError> {
        let counted =
            matches!(self.capacity, Capacity::Share(_)) || self.text.bytes().all(|c| c.is_ascii_digit());
        if counted || sizes.are_known() {
            return Ok(self.capacity.of(total));
        }
        Err(SimulateError::Usage(format!(
            "{option} {}: the samples have no sizes; give --sizes or --sizes-file, or a number of samples \
             (1000), or a share (10%)",
            self.text
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str, sizes: &Sizes) -> Option<u64> {
        text.parse::<CacheSize>().unwrap().resolve("--cache", sizes, 5000).ok()
    }

    #[test]
    fn without_sizes_numbers_count_samples_and_bytes_are_refused() {
        assert_eq!(resolve("1000", &Sizes::Unit), Some(1000));
        assert_eq!(resolve(" 10% ", &Sizes::Unit), Some(500));
        assert_eq!(resolve("1kB", &Sizes::Unit), None);
    }

    #[test]
    fn with_sizes_all_are_bytes_and_may_exceed_the_data() {
        let sizes = Sizes::Same(10);
        assert_eq!(resolve("1000", &sizes), Some(1000));
        assert_eq!(resolve("8kB", &sizes), Some(8000));
        assert_eq!(resolve("100%", &sizes), Some(5000));
    }
}
