//! The work without a loader: `pread` of every record, and decoding of every image.

use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use shade_formats::index::Entry;
use shade_formats::{SampleId, ShardId};
use turbojpeg::{Decompressor, Image, PixelFormat};

use crate::dataset::Dataset;
use crate::machine::cores;
use crate::result::Result;

/// The bare work for a batch.
#[derive(Debug)]
pub(crate) enum Rival {
    Pread(Pread),
    Decode(Decode),
}

impl Rival {
    pub(crate) fn new(dataset: &Dataset, decode: &shade_client::Decode) -> Result<Self> {
        match decode {
            shade_client::Decode::Raw => Pread::new(dataset).map(Self::Pread),
            _ => Decode::new(dataset).map(Self::Decode),
        }
    }

    /// Its row's name.
    pub(crate) fn name(&self, dataset: &Dataset) -> String {
        match self {
            Self::Pread(_) => format!("pread alone, {}", dataset.tree.name),
            Self::Decode(_) => format!("decoder alone, {}", dataset.tree.name),
        }
    }

    /// Goes through all records once. Returns samples a second.
    pub(crate) fn run(&mut self) -> Result<f64> {
        match self {
            Self::Pread(pread) => pread.run(),
            Self::Decode(decode) => decode.run(),
        }
    }
}

/// One thread that reads records in random order into one buffer.
#[derive(Debug)]
pub(crate) struct Pread {
    shards: Vec<File>,
    entries: Vec<Entry>,
    buffer: Vec<u8>,
}

impl Pread {
    fn new(dataset: &Dataset) -> Result<Self> {
        let index = dataset.index()?;
        let names = (0..index.shard_count()).filter_map(|id| Some(index.shard(ShardId(id))?.name.to_owned()));
        let shards =
            names.map(|name| File::open(dataset.packed.join(name))).collect::<std::io::Result<_>>()?;
        let mut entries: Vec<Entry> = (0..index.len()).filter_map(|id| index.entry(SampleId(id))).collect();
        entries.shuffle(&mut ChaCha8Rng::seed_from_u64(3));
        let largest = entries.iter().map(|entry| entry.stored_len).max().unwrap_or(0);
        Ok(Self { shards, entries, buffer: vec![0; largest as usize] })
    }

    fn run(&mut self) -> Result<f64> {
        let started = Instant::now();
        for entry in &self.entries {
            let shard = self.shards.get(entry.shard.0 as usize).ok_or("no such shard")?;
            let into = self.buffer.get_mut(..entry.stored_len as usize).ok_or("no such length")?;
            shard.read_exact_at(into, entry.offset)?;
        }
        Ok(self.entries.len() as f64 / started.elapsed().as_secs_f64())
    }
}

/// A decoder per core over images in memory: into pixels, not into batches.
#[derive(Debug)]
pub(crate) struct Decode {
    images: Vec<Vec<u8>>,
    size: (usize, usize),
}

impl Decode {
    fn new(dataset: &Dataset) -> Result<Self> {
        let mut images = Vec::new();
        for class in fs::read_dir(&dataset.tree.source)? {
            for image in fs::read_dir(class?.path())? {
                images.push(fs::read(image?.path())?);
            }
        }
        Ok(Self { images, size: dataset.size })
    }

    fn run(&self) -> Result<f64> {
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            let work = || self.work(&next).map_err(|error| error.to_string());
            let threads: Vec<_> = (0..cores()).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a decoder panicked".to_owned())?)
        })?;
        Ok(self.images.len() as f64 / started.elapsed().as_secs_f64())
    }

    fn work(&self, next: &AtomicUsize) -> Result<()> {
        let mut jpeg = Decompressor::new()?;
        let (width, height) = self.size;
        let mut pixels = vec![0; 3 * width * height];
        while let Some(image) = self.images.get(next.fetch_add(1, Ordering::Relaxed)) {
            if image.starts_with(b"\xff\xd8") {
                let pixels = pixels.as_mut_slice();
                let rgb = Image { pixels, width, pitch: 3 * width, height, format: PixelFormat::RGB };
                jpeg.decompress(image, rgb)?;
            } else {
                png::Decoder::new(Cursor::new(image)).read_info()?.next_frame(&mut pixels)?;
            }
            std::hint::black_box(&pixels);
        }
        Ok(())
    }
}
