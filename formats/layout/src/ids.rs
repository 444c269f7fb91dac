//! Identifiers with explicit widths, so that a shard number is never taken for a sample.

/// A sample: its position in torchvision's ImageFolder order, `0 .. num_samples`. A dataset holds
/// fewer than 2³² samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u32);

/// A shard: its position in the index's shard table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// Which bytes a dataset holds: a hash over its entries, class names and fields, equal for equal
/// datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContentId(pub u128);

impl SampleId {
    /// The id as an array position.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ShardId {
    /// The id as an array position.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for SampleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for ShardId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for ContentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
