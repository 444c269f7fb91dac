//! Where complete shards go, if they do not stay where they are written.

use super::address::below;
use super::made::Bucket;

/// A folder of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct ShardsTo<'a> {
    pub(crate) bucket: &'a Bucket,
    /// The folder below the bucket's address; `None` for the address itself.
    pub(crate) split: Option<&'a str>,
}

impl ShardsTo<'_> {
    /// The name below the bucket's address of a file of the dataset.
    pub(crate) fn name(&self, file: &str) -> String {
        below(self.split, file)
    }
}
