//! An ImageFolder on disk and its dataset, packed by the real packer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shade_formats::index::{Entry, INDEX_FILE, Index, IndexBuilder, Shard};
use shade_formats::{SampleId, ShardId};
use tempfile::TempDir;

use crate::images::{Source, class_names, jpeg, png};
use crate::program;

/// Small, so that a dataset has several shards.
const SHARD_BYTES: &str = "48KiB";

/// A packed dataset and its source. Both are removed when it is dropped.
pub struct Packed {
    /// The ImageFolder.
    pub images: PathBuf,
    /// The dataset's folder, canonical.
    pub dataset: PathBuf,
    /// The source files; a sample's id is its place here.
    pub sources: Vec<Source>,
    folder: TempDir,
}

impl Packed {
    /// Packs PNGs and JPEGs of many sizes: `per_class` in the first class, one more in each next.
    #[must_use]
    pub fn mixed(per_class: u32) -> Self {
        Self::made_of(per_class, |number, seed| {
            let (width, height) = (16 + number * 5 % 29, 16 + number * 3 % 31);
            if number.is_multiple_of(2) {
                (format!("{number:03}.png"), png(width, height, seed))
            } else {
                (format!("{number:03}.jpg"), jpeg(width, height, seed))
            }
        })
    }

    /// Packs PNGs of `side` x `side` pixels, as many as [`Packed::mixed`] does.
    #[must_use]
    pub fn pngs(per_class: u32, side: u32) -> Self {
        Self::made_of(per_class, |number, seed| (format!("{number:03}.png"), png(side, side, seed)))
    }

    /// Packs these files, which must be in the order of torchvision.
    #[must_use]
    pub fn of(sources: Vec<Source>) -> Self {
        Self::in_shards_of(SHARD_BYTES, sources)
    }

    /// The same, in shards of about `bytes`, as `--shard-size` takes it.
    #[must_use]
    pub fn in_shards_of(bytes: &str, sources: Vec<Source>) -> Self {
        let folder = tempfile::Builder::new().prefix("whole-").tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (images, dataset) = (root.join("images"), root.join("dataset"));
        for source in &sources {
            let path = images.join(&source.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &source.bytes).unwrap();
        }
        let packing = Command::new(program("shade-pack"))
            .arg("create")
            .args([&images, &dataset])
            .args(["--quiet", "--shard-size", bytes])
            .output()
            .unwrap();
        assert!(packing.status.success(), "{packing:?}");
        Self { images, dataset, sources, folder }
    }

    /// A path beside the dataset for other files of a test.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The dataset's index.
    #[must_use]
    pub fn index(&self) -> Index {
        Index::open(fs::read(self.dataset.join(INDEX_FILE)).unwrap()).unwrap()
    }

    /// The entry of `sample` and its shard's file.
    #[must_use]
    pub fn place(&self, sample: u32) -> (Entry, PathBuf) {
        let index = self.index();
        let entry = index.entry(SampleId(sample)).unwrap();
        let shard = self.dataset.join(index.shard(entry.shard).unwrap().name);
        (entry, shard)
    }

    /// The name of `sample` in errors: id, original path, shard and place.
    #[must_use]
    pub fn name_of(&self, sample: u32) -> String {
        let (entry, shard) = self.place(sample);
        let (path, shard) = (&self.sources[sample as usize].path, file_name(&shard));
        format!("sample {sample} ({path}) in shard {shard} at byte {}", entry.offset)
    }

    /// Flips a bit in the middle of `sample`'s record.
    pub fn damage(&self, sample: u32) {
        let (entry, shard) = self.place(sample);
        let mut bytes = fs::read(&shard).unwrap();
        let at = usize::try_from(entry.offset).unwrap() + entry.stored_len as usize / 2;
        bytes[at] ^= 0x10;
        fs::write(&shard, bytes).unwrap();
    }

    /// Replaces the index by one of 16 TiB, more than any memory, in records of 1 GiB that do not
    /// exist.
    pub fn claim_to_be_huge(&self) {
        const RECORDS: u32 = 1 << 14;
        let (entry, old) = (self.place(0).0, self.index());
        let len = 1 << 30;
        let mut index = IndexBuilder::new();
        let shard = old.shard(entry.shard).unwrap();
        index.push_class(b"a").unwrap();
        for number in 0..RECORDS {
            let name = format!("huge-{number:06}.tar");
            index.push_shard(Shard { name: &name, bytes: 2 << 30, records: 1, ..shard }).unwrap();
        }
        for number in 0..RECORDS {
            let entry = Entry { shard: ShardId(number), stored_len: len, raw_len: len, label: 0, ..entry };
            index.push_sample(&entry, format!("a/{number}.png").as_bytes()).unwrap();
        }
        index.set_options(old.options());
        fs::write(self.dataset.join(INDEX_FILE), index.finish().unwrap()).unwrap();
    }

    fn made_of(per_class: u32, file: impl Fn(u32, u64) -> (String, Vec<u8>)) -> Self {
        let mut sources = Vec::new();
        for (label, class) in (0..).zip(class_names()) {
            for number in 0..per_class + label {
                let (name, bytes) = file(number, u64::from(1000 * label + number));
                sources.push(Source { path: format!("{class}/{name}"), label, bytes });
            }
        }
        Self::of(sources)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
