//! Where samples come from. A source is listed into a [`Catalogue`] before a byte of it is packed.
//!
//! `image_folder` knows torchvision's rules; `tars` reads WebDataset tars; `list` reads a CSV of paths and labels.

pub mod image_folder;
mod labels;
pub mod list;
mod selection;
pub(crate) mod splits;
pub mod tars;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use selection::Selection;

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::progress::Progress;

/// What a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One folder per class, images below: torchvision's ImageFolder.
    #[default]
    ImageFolder,
    /// A folder of WebDataset tars: members of one key are a sample, `.cls`, `.json` or `.txt` its label.
    Webdataset,
    /// A CSV file with the columns `path` and `label`; further columns are kept as fields.
    List,
}

/// A source, as it was named.
#[derive(Clone, Debug)]
pub struct Source {
    /// The folder, or the CSV file; only read.
    pub path: PathBuf,
    /// What it is; `None` leaves it to [`Kind::of`].
    pub kind: Option<Kind>,
    /// A JSON object from the source's labels to class names.
    pub labels: Option<PathBuf>,
    /// What is left out.
    pub selection: Selection,
}

impl Kind {
    /// Judges a path: a file is a list; a folder that holds tars and no other folder holds WebDataset tars; every other
    /// folder is an ImageFolder.
    ///
    /// # Errors
    /// There is no such path.
    pub fn of(path: &Path) -> Result<Self, Error> {
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
            tars |= tars::is_tar(&entry);
        }
        Ok(if tars { Self::Webdataset } else { Self::ImageFolder })
    }
}

impl Source {
    /// What it is, said or judged.
    ///
    /// # Errors
    /// There is no such path.
    pub fn kind(&self) -> Result<Kind, Error> {
        self.kind.map_or_else(|| Kind::of(&self.path), Ok)
    }

    /// Lists all samples, as many files at a time as the current rayon pool has threads.
    ///
    /// # Errors
    /// See [`image_folder::scan`], [`tars::scan`] and [`list::scan`]. What is wrong with single samples is in
    /// [`Catalogue::bad`] instead.
    pub fn scan(&self, progress: &Progress, stop: &Stop) -> Result<Catalogue, Error> {
        let labels = self.labels.as_deref();
        match self.kind()? {
            Kind::ImageFolder if labels.is_some() => {
                Err(Error::Usage("--labels: an ImageFolder's labels are its folders".to_owned()))
            }
            Kind::ImageFolder => image_folder::scan(&self.path, &self.selection, progress, stop),
            Kind::Webdataset => tars::scan(&self.path, labels, &self.selection, progress, stop),
            Kind::List => list::scan(&self.path, labels, &self.selection, progress, stop),
        }
    }
}
