//! Makes damaged samples again from the source, exactly as they were packed.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;

use rustix::fs::{FileType, stat};
use shade_formats::SampleId;
use shade_formats::index::{Codec, Entry, Media};

use super::read::RepairSource;
use crate::catalogue::{Catalogue, NewSample, Store, check_bytes};
use crate::config::{Compression, ZSTD_LEVEL};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::extract::is_safe_path;
use crate::interrupt::Stop;
use crate::options::Options;
use crate::pack::{Again, Kits, Recipe, Zstd, fields_row};
use crate::progress::{Progress, Shown};
use crate::source::image_folder::changed_ns;
use crate::source::{Kind, Selection, Source};
use crate::workers::Workers;

/// What all threads make samples from.
pub(super) struct Remaker<'a, 'k> {
    dataset: &'a Dataset,
    /// Of the source, the samples that are wanted, labelled as in the dataset.
    catalogue: Catalogue,
    /// Ids there by ids in the dataset.
    ids: HashMap<u32, SampleId>,
    ways: &'a [Way<'k>],
}

/// A way in which a record of the dataset may have been made.
pub(super) struct Way<'k> {
    recipe: &'k Recipe,
    kits: Kits<'k>,
}

impl<'k> Way<'k> {
    /// With kits for `jobs` threads.
    pub(super) fn new(recipe: &'k Recipe, jobs: NonZeroUsize) -> Self {
        Self { recipe, kits: Kits::new(recipe, jobs) }
    }
}

/// What one thread makes samples with.
pub(super) struct RemakerThread<'a, 'k> {
    shared: &'a Remaker<'a, 'k>,
    /// Of each way, once it was needed.
    again: Vec<Option<Again<'a, 'k>>>,
}

impl<'a, 'k> Remaker<'a, 'k> {
    /// Finds `wanted` in the source.
    ///
    /// # Errors
    /// See [`Source::scan`].
    pub(super) fn new(
        dataset: &'a Dataset,
        wanted: &[SampleId],
        source: &RepairSource,
        workers: &Workers,
        ways: &'a [Way<'k>],
        shown: Shown,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let options = Options::all(dataset.index.options());
        let mut remaker = Self { dataset, catalogue: Catalogue::default(), ids: HashMap::new(), ways };
        let Some(first) = options.first() else { return Ok(remaker) };
        // Parts that were appended may come from sources of several kinds: what is given is then judged by itself.
        let alike = options.iter().all(|options| options.source == first.source);
        let selection = Selection::excluding(first.exclude()).unwrap_or_default();
        let (path, labels) = (source.path.clone(), source.labels.clone());
        let source = Source { path, kind: alike.then_some(first.source), labels, selection };
        if source.kind()? == Kind::ImageFolder {
            remaker.look_up(wanted, &source.path, workers, stop)?;
        } else {
            let listing = Progress::start(shown, "listing", 0, 0);
            let catalogue = workers.install(|| source.scan(&listing, stop))?;
            listing.finish();
            remaker.choose(wanted, &catalogue);
        }
        Ok(remaker)
    }

    /// Looks for each sample at its path below `root`.
    fn look_up(
        &mut self,
        wanted: &[SampleId],
        root: &Path,
        workers: &Workers,
        stop: &Stop,
    ) -> Result<(), Error> {
        self.catalogue = Catalogue::new(vec![Store::Folder(root.to_owned())]);
        let look = |sample: &SampleId| {
            let path = self.dataset.index.path(*sample).and_then(|path| std::str::from_utf8(path).ok());
            let path = path.filter(|path| is_safe_path(path));
            let found = path.and_then(|path| Some((path, stat(root.join(path)).ok()?)));
            Ok(found.and_then(|(path, found)| {
                let bytes = check_bytes(u64::try_from(found.st_size).ok()?).ok()?;
                let is_file = FileType::from_raw_mode(found.st_mode).is_file();
                is_file.then_some((path, bytes, changed_ns(&found)))
            }))
        };
        let found = workers.each(wanted, stop, look)?;
        for (sample, found) in wanted.iter().zip(found) {
            let Some((path, bytes, changed_ns)) = found else { continue };
            let label = self.dataset.index.entry(*sample).map_or(0, |entry| entry.label);
            let pushed =
                self.catalogue.push(NewSample { path, label, bytes, changed_ns, store: 0, offset: 0 });
            self.ids.extend(pushed.map(|id| (sample.0, id)));
        }
        Ok(())
    }

    /// Takes what is wanted from a source that was listed.
    fn choose(&mut self, wanted: &[SampleId], listed: &Catalogue) {
        let paths = wanted.iter().filter_map(|sample| Some((self.dataset.index.path(*sample)?, *sample)));
        let wanted: HashMap<&[u8], SampleId> = paths.collect();
        self.catalogue = Catalogue::new(listed.stores.clone());
        for (id, sample) in (0u32..).map(SampleId).zip(listed.samples()) {
            let Some(&of_dataset) = wanted.get(sample.path.as_bytes()) else { continue };
            let label = self.dataset.index.entry(of_dataset).map_or(0, |entry| entry.label);
            let pushed = self.catalogue.push_from(listed, id, label);
            self.ids.extend(pushed.map(|new| (of_dataset.0, new)));
        }
    }

    pub(super) fn thread(&self) -> RemakerThread<'_, 'k> {
        RemakerThread { shared: self, again: self.ways.iter().map(|_| None).collect() }
    }
}

/// All recipes that a record of the dataset may have been made by.
pub(super) fn recipes(dataset: &Dataset) -> Vec<Recipe> {
    let options = Options::all(dataset.index.options());
    options.iter().flat_map(|options| recipes_of(dataset, options)).collect()
}

/// Those of a dataset with these options.
fn recipes_of(dataset: &Dataset, options: &Options) -> Vec<Recipe> {
    let layout = options.layout();
    let recipe = |zstd| Recipe { transform: layout.transform, zstd, cls: layout.cls };
    let level = match layout.compression {
        Compression::None => return vec![recipe(None)],
        Compression::Auto => ZSTD_LEVEL,
        Compression::Zstd { level } => level,
    };
    // Whether a record was compressed the index says, so every kind may be.
    let all =
        [Media::Other, Media::Jpeg, Media::Png, Media::Webp, Media::Ppm, Media::Bmp, Media::Gif, Media::Tiff];
    let zstd = |dictionary: &[u8]| {
        recipe(Some(Zstd { level, media: all.to_vec(), dictionary: dictionary.to_owned() }))
    };
    let mut recipes = vec![recipe(None), zstd(&[])];
    recipes.extend(dataset.index.dictionaries().map(zstd));
    recipes
}

impl RemakerThread<'_, '_> {
    /// Makes a sample again and appends its members to `bytes`, which must be `len` bytes; or says why it cannot be made.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or zstd cannot be set up.
    pub(super) fn remake(
        &mut self,
        sample: SampleId,
        entry: &Entry,
        len: u64,
        bytes: &mut Vec<u8>,
        stop: &Stop,
    ) -> Result<Result<(), String>, Error> {
        let Remaker { dataset, catalogue, ids, ways } = self.shared;
        if ways.is_empty() {
            return Ok(Err("the dataset does not say how it was made".to_owned()));
        }
        let Some(&id) = ids.get(&sample.0) else {
            return Ok(Err("it is not in the source".to_owned()));
        };
        let (key, fields) = (dataset.index.key(sample), fields_row(&dataset.index, sample));
        let expected = |made: &Entry| {
            (made.crc32c, made.stored_len, made.raw_len, made.codec)
                == (entry.crc32c, entry.stored_len, entry.raw_len, entry.codec)
        };
        let mut fault = "the source has changed since, or was packed by another version".to_owned();
        for (way, again) in ways.iter().zip(&mut self.again) {
            if codec_of(way.recipe) != entry.codec {
                continue;
            }
            let again = again.get_or_insert_with(|| Again::new(catalogue, way.recipe, &way.kits));
            match again.make(id, key, stop)? {
                Ok(made)
                    if expected(&made.entry) && made.fields == fields && made.bytes.len() as u64 == len =>
                {
                    bytes.extend_from_slice(made.bytes);
                    return Ok(Ok(()));
                }
                Ok(_) => {}
                Err(refused) => fault = refused,
            }
        }
        Ok(Err(fault))
    }
}

fn codec_of(recipe: &Recipe) -> Codec {
    match &recipe.zstd {
        None => Codec::None,
        Some(zstd) if zstd.dictionary.is_empty() => Codec::Zstd,
        Some(_) => Codec::ZstdDictionary,
    }
}
