//! The two ImageFolders that everything here works on, and their packed forms. Gone when dropped.

use std::fs;
use std::path::{Path, PathBuf};

use shade_formats::index::{INDEX_FILE, Index};
use tempfile::TempDir;

use crate::Result;
use crate::images::{ICON_SIDE, PHOTO_SIZE, icon, photos};
use crate::programs::Programs;

const PHOTOS: u32 = 2_000;
/// Each occurs eight times among the files: making one takes as long as decoding it ten times.
const DIFFERENT_PHOTOS: u64 = 250;
const ICONS: u32 = 20_000;
const CLASSES: u32 = 10;

/// One ImageFolder, packed.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) name: &'static str,
    /// The ImageFolder.
    pub(crate) source: PathBuf,
    /// What `shade-pack create` made of it.
    pub(crate) packed: PathBuf,
    pub(crate) files: u32,
    pub(crate) bytes: u64,
    /// Side of the decoded batches.
    pub(crate) side: u32,
    /// Width and height of the images.
    pub(crate) size: (usize, usize),
}

/// Both, with the programs that work on them.
#[derive(Debug)]
pub(crate) struct Datasets {
    pub(crate) programs: Programs,
    pub(crate) folder: TempDir,
    pub(crate) all: [Dataset; 2],
}

impl Datasets {
    /// Makes and packs them, in TMPDIR if that is set, else among the build's files.
    pub(crate) fn create(programs: Programs) -> Result<Self> {
        let parent = std::env::var_os("TMPDIR").map_or_else(|| programs.folder.clone(), PathBuf::from);
        let folder = tempfile::Builder::new().prefix("shade-benches-").tempdir_in(parent)?;
        let photos = photos(DIFFERENT_PHOTOS)?;
        let photo = |number: u32| {
            let at = usize::try_from(u64::from(number) % DIFFERENT_PHOTOS)?;
            Ok(photos.get(at).ok_or("no photograph")?.clone())
        };
        let icon = |number: u32| icon(number.into());
        let all = [
            Dataset::create("JPEG 100 KB", folder.path(), PHOTOS, photo, 224, PHOTO_SIZE)?,
            Dataset::create("PNG 500 B", folder.path(), ICONS, icon, 28, (ICON_SIDE, ICON_SIDE))?,
        ];
        for dataset in &all {
            programs.pack(&dataset.source, &dataset.packed)?;
        }
        Ok(Self { programs, folder, all })
    }
}

impl Dataset {
    fn create(
        name: &'static str,
        folder: &Path,
        files: u32,
        image: impl Fn(u32) -> Result<Vec<u8>>,
        side: u32,
        size: (usize, usize),
    ) -> Result<Self> {
        let (kind, _) = name.split_once(' ').unwrap_or((name, ""));
        let extension = kind.to_lowercase();
        let source = folder.join(kind);
        for class in 0..CLASSES {
            fs::create_dir_all(source.join(format!("class-{class}")))?;
        }
        let mut bytes = 0;
        for number in 0..files {
            let image = image(number)?;
            bytes += image.len() as u64;
            fs::write(source.join(format!("class-{}/{number:06}.{extension}", number % CLASSES)), image)?;
        }
        Ok(Self { name, source, packed: folder.join(format!("{kind}-packed")), files, bytes, side, size })
    }

    /// Bytes of an image on average.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / f64::from(self.files)
    }

    pub(crate) fn index(&self) -> Result<Index> {
        Ok(Index::open(fs::read(self.packed.join(INDEX_FILE))?)?)
    }
}
