//! An ImageFolder of made images, to pack.

use std::fs;
use std::path::{Path, PathBuf};

use crate::result::Result;

const CLASSES: u32 = 10;

/// An ImageFolder, just written and so in the page cache.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: &'static str,
    pub(crate) source: PathBuf,
    pub(crate) files: u32,
    bytes: u64,
}

impl Tree {
    /// Writes `files` images into `folder`. The first word of `name` is their format.
    pub(crate) fn write(
        name: &'static str,
        folder: &Path,
        files: u32,
        image: impl Fn(u32) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let extension = name.split(' ').next().unwrap_or(name).to_lowercase();
        let source = folder.join(name.replace(' ', "-"));
        for class in 0..CLASSES {
            fs::create_dir_all(source.join(format!("class-{class}")))?;
        }
        let mut bytes = 0;
        for number in 0..files {
            let image = image(number)?;
            bytes += image.len() as u64;
            fs::write(source.join(format!("class-{}/{number:06}.{extension}", number % CLASSES)), image)?;
        }
        Ok(Self { name, source, files, bytes })
    }

    /// The same with a few `images`, each of which occurs many times.
    pub(crate) fn repeat(name: &'static str, folder: &Path, files: u32, images: &[Vec<u8>]) -> Result<Self> {
        let image = |number: u32| {
            let at = (number as usize).checked_rem(images.len()).ok_or("no images")?;
            Ok(images.get(at).ok_or("no image")?.clone())
        };
        Self::write(name, folder, files, image)
    }

    /// Mean bytes of an image.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / f64::from(self.files)
    }
}
