//! The two datasets that are served, and their ImageFolders.

use std::fs;
use std::path::PathBuf;

use shade_formats::index::{INDEX_FILE, Index};

use crate::images::{self, ICON_SIDE, PHOTO, icon};
use crate::result::Result;
use crate::scratch::Scratch;
use crate::tree::Tree;

/// Photos unless another number is asked for.
pub(crate) const PHOTOS: u32 = 2_000;
/// Each occurs several times among the files, as making one takes as long as decoding ten.
const DIFFERENT_PHOTOS: u64 = 250;
const ICONS: u32 = 20_000;

/// One ImageFolder, packed.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) tree: Tree,
    /// Its dataset, by `shade-pack create`.
    pub(crate) packed: PathBuf,
    /// Side of the decoded batches.
    pub(crate) side: u32,
    /// Width and height of the images.
    pub(crate) size: (usize, usize),
}

/// Makes and packs both.
pub(crate) fn datasets(scratch: &Scratch, photos: u32) -> Result<[Dataset; 2]> {
    let folder = scratch.folder();
    let photos = Tree::repeat("JPEG 100 KB", folder, photos, &images::photos(DIFFERENT_PHOTOS, &PHOTO)?)?;
    let icons = Tree::write("PNG 500 B", folder, ICONS, |number| icon(number.into()))?;
    Ok([
        Dataset::pack(photos, scratch, 224, PHOTO.size)?,
        Dataset::pack(icons, scratch, 28, (ICON_SIDE, ICON_SIDE))?,
    ])
}

impl Dataset {
    fn pack(tree: Tree, scratch: &Scratch, side: u32, size: (usize, usize)) -> Result<Self> {
        let packed = tree.source.with_extension("packed");
        scratch.programs.pack(&tree.source, &packed)?;
        Ok(Self { tree, packed, side, size })
    }

    pub(crate) fn index(&self) -> Result<Index> {
        Ok(Index::open(fs::read(self.packed.join(INDEX_FILE))?)?)
    }
}
