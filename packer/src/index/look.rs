//! Reads the beginning of each image, and a TIFF's directory, or all of it for its checksum.

use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{KIND_BYTES, Kind, Media, sniff, sniff_directory, tiff_directory};

use crate::catalogue::{Bad, Catalogue, FieldContent, Sample};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pack::{Gate, SourceFault, SourceReader};
use crate::progress::CommandProgress;
use crate::workers::Workers;

/// Samples of one task.
const SAMPLES_PER_TASK: usize = 16;
/// Bytes of an image that are read first: its kind, and the size of nearly all. A distant store
/// answers with them as fast as with fewer.
const HEAD_BYTES: u32 = 16 << 10;
/// Bytes that are read if the size is not among the first: cameras put a preview before it.
const LONG_HEAD_BYTES: u32 = 256 << 10;
/// Bytes of a TIFF before all else: its byte order, and where its directory is.
const TIFF_START_BYTES: usize = 8;
/// Bytes that are read of a TIFF's directory: its first 1,365 entries. They are sorted, and the
/// size is among the first.
const DIRECTORY_BYTES: u32 = 16 << 10;
/// Bytes of files that are read whole at a time.
const MEMORY_BYTES: u64 = 1 << 30;

/// What is known of a sample's image.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    pub(super) media: Media,
    pub(super) width: u16,
    pub(super) height: u16,
    /// `None` without `--checksums`.
    pub(super) crc32c: Option<u32>,
    /// The checksum of each field, in the catalogue's order.
    pub(super) fields: Vec<Option<u32>>,
    /// What it is, if trainers cannot decode it.
    pub(super) not_decodable: Option<Kind>,
}

/// How images are looked at.
pub(super) struct Looking<'a> {
    catalogue: &'a Catalogue,
    checksums: bool,
    memory: Gate,
    progress: &'a CommandProgress,
    stop: &'a Stop,
}

impl<'a> Looking<'a> {
    pub(super) fn new(
        catalogue: &'a Catalogue,
        checksums: bool,
        progress: &'a CommandProgress,
        stop: &'a Stop,
    ) -> Self {
        Self { catalogue, checksums, memory: Gate::new(MEMORY_BYTES), progress, stop }
    }

    /// Looks at all samples. Those that cannot be one are bad.
    pub(super) fn all(&self, workers: &Workers) -> Result<Vec<Result<Looked, Bad>>, Error> {
        let ids: Vec<SampleId> = (0..self.catalogue.len()).map(SampleId).collect();
        let tasks: Vec<&[SampleId]> = ids.chunks(SAMPLES_PER_TASK).collect();
        let looked = workers.each(&tasks, self.stop, |ids| self.some(ids))?;
        Ok(looked.into_iter().flatten().collect())
    }

    fn some(&self, ids: &[SampleId]) -> Result<Vec<Result<Looked, Bad>>, Error> {
        let (mut reader, mut bytes) = (SourceReader::new(self.stop), Vec::new());
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            self.stop.check()?;
            let Some(sample) = self.catalogue.sample(*id) else { continue };
            let room = if self.checksums { sample.bytes } else { sample.bytes.min(LONG_HEAD_BYTES) };
            let pass = self.memory.pass(room.into(), self.stop)?;
            let looked = self.one(*id, &sample, &mut reader, &mut bytes);
            drop(pass);
            if let Some(error) = looked.as_ref().err().and_then(|fault| fault.of_the_store(&sample)) {
                self.stop.check()?;
                return Err(error);
            }
            all.push(looked.map_err(|fault| Bad::new(&sample.file(), format!("{}: {fault}", sample.path))));
            self.progress.add(1, if self.checksums { sample.bytes.into() } else { 0 });
        }
        Ok(all)
    }

    fn one(
        &self,
        id: SampleId,
        sample: &Sample<'_>,
        reader: &mut SourceReader<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Looked, SourceFault> {
        bytes.clear();
        if self.checksums {
            reader.image(sample, bytes)?;
        } else {
            reader.head(sample, HEAD_BYTES, bytes)?;
        }
        let has_size = |bytes: &[u8]| matches!(sniff(bytes), (_, 1.., 1..));
        let is_cut = bytes.len() < sample.bytes as usize;
        if is_cut && !has_size(bytes) && matches!(sniff(bytes).0, Media::Jpeg | Media::Webp | Media::Png) {
            bytes.clear();
            reader.head(sample, LONG_HEAD_BYTES, bytes)?;
        }
        let (media, mut width, mut height) = sniff(bytes);
        let kind = Kind::of(bytes.get(..KIND_BYTES).unwrap_or(bytes));
        let not_decodable = (!matches!(kind, Kind::Image(_))).then_some(kind);
        let crc = self.checksums.then(|| crc32c(bytes));
        if is_cut && media == Media::Tiff && width == 0 {
            (width, height) = size_by_directory(sample, reader, bytes)?;
        }
        let mut fields = Vec::new();
        for field in self.catalogue.fields(id) {
            let is_stored = matches!(field.content, FieldContent::Stored { .. });
            fields.push(if self.checksums && is_stored {
                bytes.clear();
                reader.field(sample, &field, bytes)?;
                Some(crc32c(bytes))
            } else {
                None
            });
        }
        Ok(Looked { media, width, height, crc32c: crc, fields, not_decodable })
    }
}

/// The size of a TIFF by its directory, which most programs write behind the pixels; 0 x 0 if it is
/// unknown. `bytes` begins as the TIFF does, and has other bytes afterwards.
fn size_by_directory(
    sample: &Sample<'_>,
    reader: &mut SourceReader<'_>,
    bytes: &mut Vec<u8>,
) -> Result<(u16, u16), SourceFault> {
    let Some(at) = tiff_directory(bytes).filter(|at| *at < sample.bytes) else { return Ok((0, 0)) };
    bytes.truncate(TIFF_START_BYTES);
    reader.part(sample, at, DIRECTORY_BYTES, bytes)?;
    let (start, directory) = bytes.split_at_checked(TIFF_START_BYTES).unwrap_or_default();
    Ok(sniff_directory(start, directory))
}
