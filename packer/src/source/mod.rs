//! Lists the samples of a source into a [`Catalogue`], before a byte of it is packed.
//!
//! `image_folder` knows torchvision's rules, `pairs` adds files of other folders to its images, and
//! `coco` what a file of annotations says of them;
//! `object_folder` lists an ImageFolder in a bucket; `tars` reads WebDataset tars; `list` reads a
//! CSV of paths and labels.

pub(crate) mod coco;
mod given_labels;
pub mod image_folder;
mod labels;
mod list;
mod object_folder;
mod pairs;
mod selection;
pub(crate) mod splits;
mod tars;
mod tool_folders;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use given_labels::{GivenLabels, LabelMeaning, read_labels};
pub(crate) use image_folder::EXTENSIONS;
pub(crate) use labels::Labels;
pub use selection::Selection;
use tars::TarObjects;
pub(crate) use tars::{Cut, StreamClasses, StreamListing, StreamPiece, each_piece, is_tar};

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pair::Pair;
use crate::part::Part;
use crate::progress::{CommandProgress, Shown};
use crate::source_bucket::{ListedObject, SourceBucket};
use crate::workers::Workers;

/// The kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceKind {
    /// One folder per class, images below: torchvision's ImageFolder.
    #[default]
    ImageFolder,
    /// A folder of WebDataset tars: members of one key are a sample, `.cls` or `.json` its label.
    /// With `.txt` and without these, captions.
    Webdataset,
    /// A CSV file with the columns `path` and `label`; further columns are kept as fields.
    List,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The folder, the CSV file, or the address of a prefix; only read.
    pub(crate) path: PathBuf,
    /// The bucket, if that is an address.
    pub(crate) bucket: Option<SourceBucket>,
    /// What it is; [`SourceKind::of`] decides if it is `None`.
    pub(crate) kind: Option<SourceKind>,
    pub(crate) labels: Labels,
    pub(crate) selection: Selection,
    /// Folders with a file for each image, by name.
    pub(crate) pairs: Vec<Pair>,
    /// A file of annotations in COCO's JSON.
    pub(crate) coco: Option<PathBuf>,
}

impl SourceKind {
    /// Judges a path: a file is a list; a folder with tars and no folder holds WebDataset tars;
    /// every other folder is an ImageFolder.
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        let found = std::fs::metadata(path)
            .map_err(|fault| Error::Usage(format!("cannot use {} as a source: {fault}", path.display())))?;
        if !found.is_dir() {
            return Ok(Self::List);
        }
        let mut tars = false;
        for entry in std::fs::read_dir(path).map_err(Error::io("list", path))? {
            let entry = entry.map_err(Error::io("list", path))?.path();
            if entry.is_dir() {
                return Ok(Self::ImageFolder);
            }
            tars |= tars::is_tar(&entry) || tars::is_compressed_tar(&entry);
        }
        Ok(if tars { Self::Webdataset } else { Self::ImageFolder })
    }
}

impl SourceKind {
    /// Judges objects as [`of`](Self::of) judges a folder.
    fn of_objects(listed: &[ListedObject]) -> Self {
        let is_tar = |object: &ListedObject| {
            let path = Path::new(&object.name);
            tars::is_tar(path) || tars::is_compressed_tar(path)
        };
        match listed.iter().any(|object| object.name.contains('/')) {
            false if listed.iter().any(is_tar) => Self::Webdataset,
            _ => Self::ImageFolder,
        }
    }
}

impl Source {
    pub(crate) fn kind(&self) -> Result<SourceKind, Error> {
        match (self.kind, &self.bucket) {
            (Some(kind), _) => Ok(kind),
            (None, Some(bucket)) => {
                Ok(SourceKind::of_objects(self.objects(bucket, Shown::Quiet, &Stop::default())?))
            }
            (None, None) => SourceKind::of(&self.path),
        }
    }

    /// The source in this folder of it.
    pub(crate) fn below(&self, folder: &str) -> Self {
        let mut below = self.clone();
        let folders = below.pairs.iter_mut().map(|pair| &mut pair.folder);
        folders.chain([&mut below.path]).for_each(|path| path.push(folder));
        below.bucket = self.bucket.as_ref().map(|bucket| SourceBucket::new(bucket.url().join(folder)));
        below.selection = self.selection.below(folder);
        below
    }

    /// Lists what lies in the bucket, if the source is in one. Later calls do not list it again.
    pub(crate) fn look(&self, shown: Shown, stop: &Stop) -> Result<(), Error> {
        self.bucket.as_ref().map_or(Ok(()), |bucket| self.objects(bucket, shown, stop).map(drop))
    }

    /// What lies in the source's bucket.
    fn objects<'b>(
        &self,
        bucket: &'b SourceBucket,
        shown: Shown,
        stop: &Stop,
    ) -> Result<&'b [ListedObject], Error> {
        let shown = if bucket.is_listed() { Shown::Quiet } else { shown };
        let progress = CommandProgress::start(shown, "listing", 0, 0);
        let listed = bucket.listed(&|| stop.check().is_err(), &|count| progress.add(count, 0));
        let listed = listed.map_err(|fault| {
            let url = bucket.url().to_string();
            stop.check().err().unwrap_or(Error::Store { action: "list", url, fault })
        })?;
        if !listed.is_empty() {
            progress.finish();
            return Ok(listed);
        }
        let text = "no object lies below this address. SOURCE in a bucket is a prefix with a folder for each class, or \
                    with tars; a single file is no source there";
        Err(Error::source(&self.path, text))
    }

    /// What identifies all that was listed in the source's bucket; `None` if it is none.
    pub(crate) fn state_of_objects(&self) -> Option<i64> {
        let listed = self.bucket.as_ref()?.listed(&|| true, &|_| {}).ok()?;
        Some(SourceBucket::state_of(listed))
    }

    /// Refuses a source in a bucket, for a `command` that reads file systems alone.
    ///
    /// # Errors
    /// It is one: usage.
    pub(crate) fn refuse_bucket(&self, command: &str) -> Result<(), Error> {
        match &self.bucket {
            Some(bucket) => Err(Error::Usage(format!(
                "{command}: {} is in a bucket, which one machine packs: shade-pack create",
                bucket.url()
            ))),
            None => Ok(()),
        }
    }

    /// Lists all samples, as many files at a time as there are `workers`. What is wrong with single
    /// samples is in [`Catalogue::bad`], by path.
    pub(crate) fn list(&self, workers: &Workers, shown: Shown, stop: &Stop) -> Result<Catalogue, Error> {
        self.list_part(Part::WHOLE, workers, shown, stop)
    }

    /// Lists the samples of a part's classes.
    ///
    /// # Errors
    /// As [`list`](Self::list); or the source has no folders to divide: usage.
    pub(crate) fn list_part(
        &self,
        part: Part,
        workers: &Workers,
        shown: Shown,
        stop: &Stop,
    ) -> Result<Catalogue, Error> {
        self.look(shown, stop)?;
        let is_listed = self.bucket.is_some() && self.kind()? == SourceKind::ImageFolder;
        let shown = if is_listed { Shown::Quiet } else { shown };
        let progress = CommandProgress::start(shown, "listing", 0, 0);
        let mut catalogue = workers.install(|| self.scan(part, &progress, stop))?;
        progress.finish();
        catalogue.bad.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(catalogue)
    }

    fn scan(&self, part: Part, progress: &CommandProgress, stop: &Stop) -> Result<Catalogue, Error> {
        let labels = &self.labels;
        let kind = self.kind()?;
        self.check(kind, part)?;
        match kind {
            SourceKind::ImageFolder => self.scan_folder(part, progress, stop),
            SourceKind::Webdataset => {
                let objects = match &self.bucket {
                    Some(bucket) => {
                        let listed = self.objects(bucket, Shown::Quiet, stop)?;
                        Some(TarObjects { bucket, listed })
                    }
                    None => None,
                };
                tars::scan(&self.path, objects, labels, &self.selection, progress, stop)
            }
            // A list that is a split lies right in SOURCE, and its paths are relative to that.
            SourceKind::List => list::scan(&self.path, labels, &self.selection.at_source(), progress, stop),
        }
    }

    /// Refuses what the options ask for and a source of this kind has not.
    fn check(&self, kind: SourceKind, part: Part) -> Result<(), Error> {
        let is_folder = kind == SourceKind::ImageFolder;
        let fault = match &self.labels {
            _ if self.bucket.is_some() && kind == SourceKind::List => {
                "--from list: a list is read from a file system, and so are its files. Give a prefix of images or tars"
            }
            _ if self.bucket.is_some() && !self.pairs.is_empty() => {
                "--pair: SOURCE and the folders of pairs must be on a file system: copy them, or put the files into tars"
            }
            Labels::File(_) if is_folder => {
                "--labels: an ImageFolder's labels are its folders; --labels none packs it without labels"
            }
            Labels::Txt if kind != SourceKind::Webdataset => {
                "--labels txt: only WebDataset tars have .txt members. A file of that name is ./txt"
            }
            Labels::Folders if !is_folder => {
                "--labels folders: only an ImageFolder has class folders. A file of that name is ./folders"
            }
            Labels::None if is_folder && part != Part::WHOLE => {
                "--labels none: without classes a source cannot be listed in parts. `shade-pack plan` lists it"
            }
            _ if !self.pairs.is_empty() && !is_folder => {
                "--pair: SOURCE must be a folder of images (--from image-folder)"
            }
            _ if self.coco.is_some() && (!is_folder || self.bucket.is_some()) => {
                "--coco: SOURCE must be a folder of images on a file system"
            }
            _ if self.coco.is_some() && part != Part::WHOLE => {
                "--coco: annotations cannot be listed in parts. `shade-pack create` lists them"
            }
            _ if !self.pairs.is_empty() && part != Part::WHOLE => {
                "--pair: pairs cannot be listed in parts. `shade-pack plan` lists them"
            }
            _ if !is_folder && part != Part::WHOLE => {
                return Err(Error::Usage(format!(
                    "{} is no ImageFolder: only the folders of one can be listed in parts. `shade-pack plan` lists it",
                    self.path.display()
                )));
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(fault.to_owned()))
    }

    fn scan_folder(&self, part: Part, progress: &CommandProgress, stop: &Stop) -> Result<Catalogue, Error> {
        let Self { path, labels, selection, pairs, coco, .. } = self;
        let is_default = (!pairs.is_empty() || coco.is_some()) && *labels == Labels::Own;
        if let Some(bucket) = &self.bucket {
            let listed = self.objects(bucket, Shown::Quiet, stop)?;
            return object_folder::scan(bucket, listed, path, selection, *labels != Labels::None);
        }
        let images = if is_default || *labels == Labels::None {
            image_folder::scan_unlabelled(path, selection, progress, stop)?
        } else {
            image_folder::scan_part(path, selection, part, progress, stop)?
        };
        let mut images = match pairs.as_slice() {
            [] => images,
            _ => pairs::join(images, path, pairs, selection, progress, stop)?,
        };
        if let Some(file) = coco {
            images = coco::join(images, path, file, stop)?;
        }
        images.is_unlabelled_by_default = is_default;
        Ok(images)
    }
}
