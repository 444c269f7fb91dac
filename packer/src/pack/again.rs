//! Makes single samples once more, for shards that exist.

use shade_formats::SampleId;
use shade_formats::index::{Entry, FieldsRow};

use super::readers::ReadPace;
use super::recipe::Kits;
use super::stretch::StretchBuilder;
use crate::catalogue::{Bad, Catalogue};
use crate::error::Error;
use crate::interrupt::Stop;

/// Makes samples one by one, reusing its memory.
pub(crate) struct Again<'a, 'k> {
    builder: StretchBuilder<'a>,
    kits: &'a Kits<'k>,
    spare: Vec<u8>,
}

/// A sample as it lies in a shard.
pub(crate) struct RemadeSample<'m> {
    /// Its members with their headers and padding.
    pub(crate) bytes: &'m [u8],
    /// Its offset counts from the start of `bytes`.
    pub(crate) entry: Entry,
    pub(crate) fields: FieldsRow,
}

impl<'a, 'k> Again<'a, 'k> {
    pub(crate) fn new(catalogue: &'a Catalogue, kits: &'a Kits<'k>) -> Self {
        Self { builder: StretchBuilder::new(catalogue, kits.recipe, 0), kits, spare: Vec::new() }
    }

    /// Makes sample `id` of the catalogue under this key; `None` if the catalogue has no such
    /// sample.
    pub(crate) fn make(
        &mut self,
        id: SampleId,
        key: u32,
        stop: &Stop,
    ) -> Result<Result<Option<RemadeSample<'_>>, Bad>, Error> {
        self.builder.set_key(id, key);
        let spare = std::mem::take(&mut self.spare);
        let built = self.builder.build(&[id], spare, (&mut ReadPace::default(), self.kits), stop)?;
        self.spare = built.bytes;
        if let Some((_, bad)) = built.bad.into_iter().next() {
            return Ok(Err(bad));
        }
        let made = built.records.first();
        Ok(Ok(made.map(|made| RemadeSample { bytes: &self.spare, entry: made.entry, fields: made.fields })))
    }
}
