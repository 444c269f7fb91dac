//! Makes single samples once more, for shards that exist.

use shade_formats::SampleId;
use shade_formats::index::{Entry, FieldsRow};

use super::readers::Pace;
use super::recipe::{Kits, Recipe};
use super::stretch::StretchBuilder;
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::interrupt::Stop;

/// Makes samples one by one, with the memory it uses again.
pub(crate) struct Again<'a, 'k> {
    builder: StretchBuilder<'a>,
    kits: &'a Kits<'k>,
    spare: Vec<u8>,
}

/// A sample as it lies in a shard.
pub(crate) struct Made<'m> {
    /// Its members with their headers and padding.
    pub(crate) bytes: &'m [u8],
    /// Its offset counts from the start of `bytes`.
    pub(crate) entry: Entry,
    pub(crate) fields: FieldsRow,
}

impl<'a, 'k> Again<'a, 'k> {
    /// `kits` are of this recipe.
    pub(crate) fn new(catalogue: &'a Catalogue, recipe: &'a Recipe, kits: &'a Kits<'k>) -> Self {
        Self { builder: StretchBuilder::new(catalogue, recipe, 0), kits, spare: Vec::new() }
    }

    /// Makes sample `id` of the catalogue under this key; or says why it cannot be made.
    pub(crate) fn make(
        &mut self,
        id: SampleId,
        key: u32,
        stop: &Stop,
    ) -> Result<Result<Made<'_>, String>, Error> {
        self.builder.set_key(id, key);
        let spare = std::mem::take(&mut self.spare);
        let built = self.builder.build(&[id], spare, (&mut Pace::default(), self.kits), stop)?;
        self.spare = built.bytes;
        Ok(match (built.records.first(), built.bad.into_iter().next()) {
            (Some(placed), None) => {
                Ok(Made { bytes: &self.spare, entry: placed.entry, fields: placed.fields })
            }
            (_, Some((_, bad))) => Err(bad.to_string()),
            (None, None) => Err("it is not in the source".to_owned()),
        })
    }
}
