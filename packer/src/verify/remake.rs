//! Makes damaged samples again from the source, exactly as they were packed.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::{FileType, stat};
use shade_formats::SampleId;
use shade_formats::index::{Codec, Entry, Media};

use crate::catalogue::{Bad, Catalogue, NewSample, SampleStore, check_bytes, is_safe_path};
use crate::config::{Compression, ZSTD_LEVEL};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::PackOptions;
use crate::pack::{Again, Kits, Recipe, Zstd, fields_row};
use crate::progress::Shown;
use crate::source::image_folder::changed_ns;
use crate::source::{Labels, Selection, Source, SourceKind, UNLABELLED};
use crate::workers::Workers;

#[derive(Debug, thiserror::Error)]
pub(super) enum RemakeFault {
    #[error("the dataset does not say how it was made")]
    NoOptions,
    #[error("it is not in the source")]
    NotInSource,
    #[error("the source has changed since, or was packed by another version")]
    OtherBytes,
    #[error(transparent)]
    Bad(#[from] Bad),
}

pub(super) struct Remaker<'a, 'k> {
    dataset: &'a Dataset,
    /// The samples that must be made, as they are in the source, labelled as in the dataset.
    catalogue: Catalogue,
    /// Ids in the catalogue by ids in the dataset.
    ids: HashMap<u32, SampleId>,
    /// For each recipe by which a record may have been made.
    kits: &'a [Kits<'k>],
}

pub(super) struct RemakerThread<'a, 'k> {
    shared: &'a Remaker<'a, 'k>,
    /// For each recipe, once it was needed.
    again: Vec<Option<Again<'a, 'k>>>,
}

impl<'a, 'k> Remaker<'a, 'k> {
    pub(super) fn new(
        dataset: &'a Dataset,
        wanted: &[SampleId],
        source: Source,
        workers: &Workers,
        kits: &'a [Kits<'k>],
        shown: Shown,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let options = PackOptions::all(dataset.index.options());
        let mut remaker = Self { dataset, catalogue: Catalogue::default(), ids: HashMap::new(), kits };
        let Some(first) = options.first() else { return Ok(remaker) };
        // Appended parts may come from sources of several kinds. The kind is then judged by the
        // path.
        let alike = options.iter().all(|options| options.source == first.source);
        let selection = Selection::excluding(first.exclude()).unwrap_or_default();
        // A dataset without labels needs no word about them.
        let is_unlabelled = dataset.class_names().eq([UNLABELLED.as_bytes()]);
        let labels = match source.labels {
            Labels::Own if is_unlabelled => Labels::None,
            labels => labels,
        };
        let source = Source { kind: alike.then_some(first.source), labels, selection, ..source };
        if source.kind()? == SourceKind::ImageFolder {
            remaker.look_up(wanted, &source.path, workers, stop)?;
        } else {
            remaker.choose(wanted, &source.list(workers, shown, stop)?);
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
        self.catalogue = Catalogue::new(vec![SampleStore::Folder(root.to_owned())]);
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

    /// Takes the wanted samples from a listed source.
    fn choose(&mut self, wanted: &[SampleId], listed: &Catalogue) {
        let paths = wanted.iter().filter_map(|sample| Some((self.dataset.index.path(*sample)?, *sample)));
        let wanted: HashMap<&[u8], SampleId> = paths.collect();
        self.catalogue = Catalogue::new(listed.stores.clone());
        for (id, sample) in (0u32..).map(SampleId).zip(listed.samples()) {
            let Some(&of_dataset) = wanted.get(sample.path.as_bytes()) else { continue };
            let label = self.dataset.index.entry(of_dataset).map_or(0, |entry| entry.label);
            if let Ok(Some(new)) = self.catalogue.push_from(listed, id, label) {
                self.ids.insert(of_dataset.0, new);
            }
        }
    }

    pub(super) fn thread(&self) -> RemakerThread<'_, 'k> {
        RemakerThread { shared: self, again: self.kits.iter().map(|_| None).collect() }
    }
}

/// All recipes by which a record of the dataset may have been made.
pub(super) fn recipes(dataset: &Dataset) -> Vec<Recipe> {
    let options = PackOptions::all(dataset.index.options());
    options.iter().flat_map(|options| recipes_of(dataset, options)).collect()
}

/// The recipes of a dataset with these options.
fn recipes_of(dataset: &Dataset, options: &PackOptions) -> Vec<Recipe> {
    let layout = options.layout();
    let recipe = |zstd| Recipe { transform: layout.transform, zstd, cls: layout.cls };
    let level = match layout.compression {
        Compression::None => return vec![recipe(None)],
        Compression::Auto => ZSTD_LEVEL,
        Compression::Zstd { level } => level,
    };
    // Every kind of image may be compressed: the index says which records are.
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
    /// Makes a sample again and appends its members to `bytes`, which must be `len` bytes.
    pub(super) fn remake(
        &mut self,
        sample: SampleId,
        entry: &Entry,
        len: u64,
        bytes: &mut Vec<u8>,
        stop: &Stop,
    ) -> Result<Result<(), RemakeFault>, Error> {
        let Remaker { dataset, catalogue, ids, kits } = self.shared;
        if kits.is_empty() {
            return Ok(Err(RemakeFault::NoOptions));
        }
        let Some(&id) = ids.get(&sample.0) else {
            return Ok(Err(RemakeFault::NotInSource));
        };
        let (key, fields) = (dataset.index.key(sample), fields_row(&dataset.index, sample));
        let expected = |made: &Entry| {
            (made.crc32c, made.stored_len, made.raw_len, made.codec)
                == (entry.crc32c, entry.stored_len, entry.raw_len, entry.codec)
        };
        let mut fault = RemakeFault::OtherBytes;
        for (kits, again) in kits.iter().zip(&mut self.again) {
            if codec_of(kits.recipe) != entry.codec {
                continue;
            }
            let again = again.get_or_insert_with(|| Again::new(catalogue, kits));
            match again.make(id, key, stop)? {
                Ok(Some(made))
                    if expected(&made.entry) && made.fields == fields && made.bytes.len() as u64 == len =>
                {
                    bytes.extend_from_slice(made.bytes);
                    return Ok(Ok(()));
                }
                Ok(_) => {}
                Err(bad) => fault = bad.into(),
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
