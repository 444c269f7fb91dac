//! `dataset.plan`: what `plan` has decided, for `create --part` and `finish`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shade_formats::SampleId;
use shade_formats::index::Media;
use shade_formats::limits::{DICTIONARY_BYTES_MAX, SHARDS_MAX};

use super::rows::{decode, encode};
use super::runs::{Kind, RunsFile, RunsWriter};
use crate::catalogue::{Bad, Catalogue, SampleStore};
use crate::config::{Accept, OnBad};
use crate::create::{Planned, Prepared};
use crate::error::Error;
use crate::options::{PackOptions, Work};
use crate::pack::{COMPRESSIBLE, Recipe, Zstd};
use crate::pair::Pair;
use crate::part::Part;
use crate::plan::{PLAN_FILE, PackPlan};
use crate::source::SourceKind;

/// A plan, open for reading. Each of its runs is a shard.
#[derive(Debug)]
pub(crate) struct PlanFile {
    file: RunsFile,
    outline: PlanOutline,
}

#[derive(Debug, Serialize, Deserialize)]
struct PlanOutline {
    /// Identifies the work.
    work: String,
    on_bad: OnBad,
    #[serde(default)]
    allow_empty: bool,
    /// One dataset, or one for each split. Their shards follow one another.
    datasets: Vec<DatasetOutline>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DatasetOutline {
    split: Option<String>,
    plan_id: String,
    options: PackOptions,
    samples: u32,
    shards: u32,
    classes: Vec<String>,
    stores: Vec<StoreOutline>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<PairOutline>,
    /// What listing found and cannot be packed.
    bad: Vec<Bad>,
    zstd: Option<ZstdOutline>,
    forgone_percent: Option<u64>,
}

/// A folder or a container of samples.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoreOutline {
    Folder(StorePlace),
    Container(StorePlace),
}

/// A folder of files beside the images.
#[derive(Debug, Serialize, Deserialize)]
struct PairOutline {
    name: String,
    folder: StorePlace,
    files: String,
}

/// The source may have another path on each machine; what lies outside of it has one path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StorePlace {
    /// Below the source's folder; empty for that folder itself.
    Below(PathBuf),
    At(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
struct ZstdOutline {
    level: i32,
    media: Vec<String>,
    dictionary: Vec<u8>,
}

/// Writes the plan into `folder`, in place of one that is there. `sources` are the datasets' own.
///
/// # Errors
/// A path is not UTF-8; the file cannot be written.
pub(crate) fn write_plan(
    folder: &Path,
    work: &Work,
    accept: Accept,
    datasets: &[(PathBuf, Prepared)],
    sync: bool,
) -> Result<(), Error> {
    let path = folder.join(PLAN_FILE);
    let mut writer = RunsWriter::create(&path, Kind::Plan)?;
    let mut outlines = Vec::new();
    let mut rows = Vec::new();
    for (source, prepared) in datasets {
        let Planned { catalogue, plan, .. } = &prepared.planned;
        for number in 0..plan.shard_count() {
            rows.clear();
            let samples = plan.shard(number);
            for &id in samples {
                encode(catalogue, id, &mut rows).map_err(|fault| Error::source(source, fault))?;
            }
            writer.run(u32::try_from(samples.len()).unwrap_or(u32::MAX), &rows)?;
        }
        outlines.push(DatasetOutline::of(source, prepared)?);
    }
    let Accept { on_bad, allow_empty } = accept;
    let outline = PlanOutline { work: work.id.clone(), on_bad, allow_empty, datasets: outlines };
    writer.finish(&outline, sync)
}

impl PlanFile {
    /// Opens the plan in a folder of unfinished work.
    ///
    /// # Errors
    /// There is none, it cannot be read or is damaged; or another version of the program or of zstd
    /// made it: usage.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let (file, outline): (_, PlanOutline) = RunsFile::open(&folder.join(PLAN_FILE), Kind::Plan)?;
        let shards = outline.datasets.iter().map(|dataset| u64::from(dataset.shards)).sum::<u64>();
        if shards != file.runs.len() as u64 || shards > u64::from(SHARDS_MAX) {
            return Err(file.damaged(format!("{shards} shards, but {} runs", file.runs.len())));
        }
        for dataset in &outline.datasets {
            let split = dataset.split.as_deref().unwrap_or("the source");
            if matches!(split, "" | "." | "..") || split.contains('/') {
                return Err(file.damaged(format!("'{split}' is not a folder's name")));
            }
            if let Some(other) = dataset.options.other_zstd() {
                return Err(Error::Usage(format!(
                    "{} was made with zstd {other}, this program has another version: use one program on all machines",
                    file.path.display()
                )));
            }
            if dataset.zstd.as_ref().is_some_and(|zstd| zstd.dictionary.len() > DICTIONARY_BYTES_MAX) {
                return Err(file.damaged("its dictionary is too long".to_owned()));
            }
        }
        Ok(Self { file, outline })
    }

    /// Identifies the work.
    pub(crate) fn work(&self) -> &str {
        &self.outline.work
    }

    pub(crate) fn accept(&self) -> Accept {
        Accept { on_bad: self.outline.on_bad, allow_empty: self.outline.allow_empty }
    }

    /// Refuses a plan of other work than its samples and options make.
    pub(crate) fn check_work(&self, found: &Work) -> Result<(), Error> {
        let expected = self.work();
        if found.id == expected {
            return Ok(());
        }
        Err(self.file.damaged(format!("its samples and options are work {}, not {expected}", found.id)))
    }

    /// The dictionary of dataset `number`; empty for none.
    pub(crate) fn dictionary(&self, number: usize) -> &[u8] {
        let zstd = self.outline.datasets.get(number).and_then(|dataset| dataset.zstd.as_ref());
        zstd.map_or(&[], |zstd| zstd.dictionary.as_slice())
    }

    /// What listing found and cannot be packed, of all datasets.
    pub(crate) fn bad(&self) -> impl Iterator<Item = &Bad> {
        self.outline.datasets.iter().flat_map(|dataset| &dataset.bad)
    }

    /// Shards of all datasets together.
    pub(crate) fn shard_count(&self) -> usize {
        self.file.runs.len()
    }

    /// The datasets' splits, each with the number of shards before it.
    pub(crate) fn datasets(&self) -> Vec<(Option<&str>, usize)> {
        let mut first = 0;
        let dataset = |dataset: &'_ DatasetOutline| {
            let before = first;
            first += dataset.shards as usize;
            before
        };
        let firsts: Vec<usize> = self.outline.datasets.iter().map(dataset).collect();
        let splits = self.outline.datasets.iter().map(|dataset| dataset.split.as_deref());
        splits.zip(firsts).collect()
    }

    /// What a part has of dataset `number`, without the samples of other parts. `source` is the
    /// source on this machine.
    pub(crate) fn part(
        &self,
        number: usize,
        first: usize,
        source: &Path,
        part: Part,
    ) -> Result<Prepared, Error> {
        let dataset = self.dataset(number)?;
        let mut catalogue = self.catalogue(dataset, source);
        let mut shards = Vec::new();
        let mut next = 0;
        for shard in 0..dataset.shards as usize {
            let ids =
                if part.has(first + shard) { self.run(first + shard, &mut catalogue)? } else { Vec::new() };
            let start = next;
            next = catalogue.len();
            if ids.iter().any(|id| id.0 >= dataset.samples) {
                return Err(self.file.damaged(format!("shard {shard} has a sample that does not exist")));
            }
            shards.push((start..next).map(SampleId).collect::<Vec<_>>());
        }
        let plan = PackPlan::of_shards(shards.iter().map(Vec::as_slice));
        self.prepared(dataset, catalogue, plan)
    }

    /// All of dataset `number`, with the samples in the order of their ids. `source` only serves to
    /// name files.
    pub(crate) fn whole(&self, number: usize, first: usize, source: &Path) -> Result<Prepared, Error> {
        let dataset = self.dataset(number)?;
        let mut shuffled = self.catalogue(dataset, source);
        let mut order = Vec::new();
        let mut ends = Vec::new();
        for shard in 0..dataset.shards as usize {
            order.extend(self.run(first + shard, &mut shuffled)?);
            ends.push(order.len());
        }
        let catalogue = self.sorted(dataset, &shuffled, source)?;
        drop(shuffled);
        let plan = dataset.options.plan(&catalogue);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let written = starts.zip(ends.iter().copied()).map(|(start, end)| order.get(start..end));
        if !(0..plan.shard_count()).map(|number| Some(plan.shard(number))).eq(written) {
            return Err(self.file.damaged("its shards are not those of its samples and options".to_owned()));
        }
        self.prepared(dataset, catalogue, plan)
    }

    fn dataset(&self, number: usize) -> Result<&DatasetOutline, Error> {
        let dataset = self.outline.datasets.get(number);
        dataset.ok_or_else(|| self.file.damaged(format!("it has no dataset {number}")))
    }

    fn catalogue(&self, dataset: &DatasetOutline, source: &Path) -> Catalogue {
        let base = base_of(source, dataset.options.source);
        let mut catalogue = Catalogue::new(dataset.stores.iter().map(|store| store.at(base)).collect());
        catalogue.pairs = dataset.pairs.iter().map(|pair| pair.at(base)).collect();
        catalogue.classes.clone_from(&dataset.classes);
        catalogue.bad.clone_from(&dataset.bad);
        catalogue
    }

    /// Adds the samples of a shard to a catalogue.
    fn run(&self, number: usize, catalogue: &mut Catalogue) -> Result<Vec<SampleId>, Error> {
        let bytes = self.file.read(number)?;
        let ids = decode(&bytes, catalogue)
            .map_err(|fault| self.file.damaged(format!("shard {number}: {fault}")))?;
        let expected = self.file.runs.get(number).map_or(0, |run| run.samples);
        if ids.len() as u64 != u64::from(expected) {
            return Err(self.file.damaged(format!("shard {number}: {} samples, not {expected}", ids.len())));
        }
        Ok(ids)
    }

    /// The samples of `shuffled` in the order of their ids, each of which must be there once.
    fn sorted(
        &self,
        dataset: &DatasetOutline,
        shuffled: &Catalogue,
        source: &Path,
    ) -> Result<Catalogue, Error> {
        let mut places: Vec<Option<SampleId>> = vec![None; dataset.samples as usize];
        for place in (0..shuffled.len()).map(SampleId) {
            let id = shuffled.whole_id(place);
            match places.get_mut(id.index()) {
                Some(free @ None) => *free = Some(place),
                _ => return Err(self.file.damaged(format!("sample {} is there twice, or not", id.0))),
            }
        }
        let mut catalogue = self.catalogue(dataset, source);
        for (id, place) in places.into_iter().enumerate() {
            let place = place.ok_or_else(|| self.file.damaged(format!("sample {id} is missing")))?;
            let label = shuffled.sample(place).map_or(0, |sample| sample.label);
            let pushed = catalogue.push_from(shuffled, place, label);
            pushed.map_err(|fault| self.file.damaged(format!("sample {id}: {fault}")))?;
        }
        Ok(catalogue)
    }

    fn prepared(
        &self,
        dataset: &DatasetOutline,
        catalogue: Catalogue,
        plan: PackPlan,
    ) -> Result<Prepared, Error> {
        let layout = dataset.options.layout();
        let zstd = dataset.zstd.as_ref().map(|zstd| zstd.decode(&self.file)).transpose()?;
        Ok(Prepared {
            planned: Planned {
                split: dataset.split.clone(),
                catalogue,
                plan,
                plan_id: dataset.plan_id.clone(),
                options: dataset.options.clone(),
            },
            recipe: Recipe { transform: layout.transform, zstd, cls: layout.cls, ..Recipe::default() },
            forgone_percent: dataset.forgone_percent,
        })
    }
}

impl DatasetOutline {
    fn of(source: &Path, prepared: &Prepared) -> Result<Self, Error> {
        let Prepared { planned, recipe, forgone_percent } = prepared;
        let Planned { split, catalogue, plan, plan_id, options } = planned;
        let base = base_of(source, options.source);
        let stores = catalogue.stores.iter().map(|store| StoreOutline::of(store, base));
        Ok(Self {
            split: split.clone(),
            plan_id: plan_id.clone(),
            options: options.clone(),
            samples: catalogue.len(),
            shards: u32::try_from(plan.shard_count()).unwrap_or(u32::MAX),
            classes: catalogue.classes.clone(),
            stores: stores.collect::<Result<_, _>>()?,
            pairs: catalogue
                .pairs
                .iter()
                .map(|pair| PairOutline::of(pair, base))
                .collect::<Result<_, _>>()?,
            bad: catalogue.bad.clone(),
            zstd: recipe.zstd.as_ref().map(ZstdOutline::of),
            forgone_percent: *forgone_percent,
        })
    }
}

/// The folder below which a source's files are.
fn base_of(source: &Path, kind: SourceKind) -> &Path {
    let parent = source.parent().filter(|parent| !parent.as_os_str().is_empty());
    match kind {
        SourceKind::List => parent.unwrap_or(Path::new(".")),
        SourceKind::ImageFolder | SourceKind::Webdataset => source,
    }
}

impl StoreOutline {
    fn of(store: &SampleStore, base: &Path) -> Result<Self, Error> {
        Ok(match store {
            SampleStore::Folder(path) => Self::Folder(StorePlace::of(path, base)?),
            // A plan is refused for a stream.
            SampleStore::Container(path) | SampleStore::Piece { path, .. } => {
                Self::Container(StorePlace::of(path, base)?)
            }
            SampleStore::Bucket(_) | SampleStore::BucketTar(_) => {
                let text = format!("{}: a plan is refused for a bucket", base.display());
                return Err(Error::Defect(text));
            }
        })
    }

    fn at(&self, base: &Path) -> SampleStore {
        match self {
            Self::Folder(place) => SampleStore::Folder(place.at(base)),
            Self::Container(place) => SampleStore::Container(place.at(base)),
        }
    }
}

impl PairOutline {
    /// A folder outside of the source has the same path on all machines, in whatever folder they
    /// work.
    fn of(pair: &Pair, base: &Path) -> Result<Self, Error> {
        let Pair { name, folder, files } = pair;
        let mut place = StorePlace::of(folder, base)?;
        if let StorePlace::At(path) = &mut place {
            *path = std::path::absolute(&path).map_err(Error::io("look at", folder))?;
        }
        Ok(Self { name: name.clone(), folder: place, files: files.clone() })
    }

    fn at(&self, base: &Path) -> Pair {
        Pair { name: self.name.clone(), folder: self.folder.at(base), files: self.files.clone() }
    }
}

impl StorePlace {
    fn of(path: &Path, base: &Path) -> Result<Self, Error> {
        let place = match path.strip_prefix(base) {
            Ok(below) => Self::Below(below.to_owned()),
            Err(_) => Self::At(path.to_owned()),
        };
        let (Self::Below(written) | Self::At(written)) = &place;
        // JSON has no other text.
        if written.to_str().is_none() {
            return Err(Error::source(path, "its path is not UTF-8: rename it"));
        }
        Ok(place)
    }

    fn at(&self, base: &Path) -> PathBuf {
        match self {
            Self::Below(below) if below.as_os_str().is_empty() => base.to_owned(),
            Self::Below(below) => base.join(below),
            Self::At(path) => path.clone(),
        }
    }
}

impl ZstdOutline {
    fn of(zstd: &Zstd) -> Self {
        let media = zstd.media.iter().map(|media| media.name().to_owned()).collect();
        Self { level: zstd.level, media, dictionary: zstd.dictionary.clone() }
    }

    fn decode(&self, file: &RunsFile) -> Result<Zstd, Error> {
        let known = |name: &String| COMPRESSIBLE.iter().copied().find(|media: &Media| media.name() == name);
        let media = |name| known(name).ok_or_else(|| file.damaged(format!("it compresses '{name}'")));
        let media = self.media.iter().map(media).collect::<Result<_, _>>()?;
        Ok(Zstd { level: self.level, media, dictionary: self.dictionary.clone() })
    }
}
