//! Decompresses records: plain zstd frames, and frames that need one of the dataset's dictionaries.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, Index};
use zstd::zstd_safe::{DCtx, DDict, get_dict_id_from_dict, get_dict_id_from_frame, get_error_name};

use crate::fault::{Mismatch, RecordFault, ZstdFault};

/// The dataset's dictionaries, prepared once and shared by all threads: zstd only reads them, and a
/// prepared one needs more memory than its bytes. There are few: one for each merged dataset.
#[derive(Clone)]
pub struct Dictionaries {
    prepared: Arc<[(u32, DDict<'static>)]>,
}

impl Dictionaries {
    /// Prepares those of `index`. One that zstd refuses is left out; records that need it become
    /// faults with its id.
    #[must_use]
    pub fn prepare(index: &Index) -> Self {
        let prepared = index
            .dictionaries()
            .filter_map(|bytes| Some((get_dict_id_from_dict(bytes)?.get(), DDict::try_create(bytes)?)));
        Self { prepared: prepared.collect() }
    }

    fn get(&self, id: u32) -> Option<&DDict<'static>> {
        self.prepared.iter().find(|(prepared, _)| *prepared == id).map(|(_, dictionary)| dictionary)
    }
}

impl fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.prepared.iter().map(|(id, _)| id)).finish()
    }
}

/// A thread's decompressor. The first compressed record makes its context.
pub struct Decompressor {
    context: Option<DCtx<'static>>,
    dictionaries: Dictionaries,
}

impl Decompressor {
    /// A decompressor of records of the dataset that has these dictionaries.
    #[must_use]
    pub fn new(dictionaries: Dictionaries) -> Self {
        Self { context: None, dictionaries }
    }

    /// A new one with the same dictionaries, after a panic that may have left this one
    /// half-changed.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self::new(self.dictionaries.clone())
    }

    /// Decompresses `stored`, the one zstd frame of the record of `entry`, into the beginning of
    /// `raw`. It must give exactly as many bytes as the index says. A frame that claims to hold
    /// more never writes beyond them.
    ///
    /// # Errors
    /// It is no such frame, or its dictionary is missing.
    pub fn decompress<'a>(
        &mut self,
        stored: &[u8],
        entry: &Entry,
        raw: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ZstdFault> {
        let Entry { stored_len, raw_len, .. } = *entry;
        let fault = |text: String| ZstdFault::Frame { stored_len, raw_len, text };
        let no_memory = || fault("no memory to do it in".to_owned());
        let context = match &mut self.context {
            Some(context) => context,
            empty => empty.insert(DCtx::try_create().ok_or_else(no_memory)?),
        };
        let len = raw_len as usize;
        if raw.len() < len {
            raw.try_reserve_exact(len - raw.len()).map_err(|_| no_memory())?;
            raw.resize(len, 0);
        }
        let raw = raw.get_mut(..len).unwrap_or_default();
        let written = if entry.codec == Codec::ZstdDictionary {
            let id = get_dict_id_from_frame(stored).map_or(0, NonZeroU32::get);
            let dictionary = self.dictionaries.get(id).ok_or(ZstdFault::Dictionary { id })?;
            context.decompress_using_ddict(raw, stored, dictionary)
        } else {
            context.decompress(raw, stored)
        };
        let written = written.map_err(|code| fault(get_error_name(code).to_owned()))?;
        if written != len {
            return Err(fault(format!("it holds {written} bytes")));
        }
        Ok(raw)
    }

    /// The record of `entry`: `stored`, checked, and decompressed into the beginning of `raw` if it
    /// is compressed.
    ///
    /// # Errors
    /// It is not as it was packed.
    pub fn unpack<'a>(
        &mut self,
        stored: &'a [u8],
        entry: &Entry,
        raw: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RecordFault> {
        Mismatch::compare(crc32c(stored), entry.crc32c)?;
        if entry.codec.is_compressed() { Ok(self.decompress(stored, entry, raw)?) } else { Ok(stored) }
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").field("dictionaries", &self.dictionaries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::ShardId;
    use shade_formats::index::{IndexBuilder, Media};
    use zstd::bulk::Compressor;

    use super::*;

    fn text_of(number: usize) -> Vec<u8> {
        (0..200).flat_map(|word| format!("{} pixels of row {word}; ", number + word).into_bytes()).collect()
    }

    fn entry(stored: &[u8], raw_len: usize, codec: Codec) -> Entry {
        Entry {
            shard: ShardId(0),
            offset: 512,
            stored_len: u32::try_from(stored.len()).unwrap(),
            raw_len: u32::try_from(raw_len).unwrap(),
            crc32c: Some(crc32c(stored)),
            label: 0,
            width: 0,
            height: 0,
            codec,
            media: Media::Other,
        }
    }

    fn fault(found: Result<&[u8], RecordFault>) -> String {
        found.unwrap_err().to_string()
    }

    #[test]
    fn records_come_back_whatever_their_codec_and_no_other_bytes_do() {
        let bytes = zstd::dict::from_samples(&(0..100).map(text_of).collect::<Vec<_>>(), 4096).unwrap();
        let mut index = IndexBuilder::new();
        index.push_dictionary(&bytes).unwrap();
        let dictionaries = Dictionaries::prepare(&Index::open(index.finish().unwrap()).unwrap());
        let (mut zstd, mut memory) = (Decompressor::new(dictionaries), Vec::new());
        let raw = text_of(7);
        let frame = zstd::bulk::compress(&raw, 3).unwrap();
        let with_dictionary = Compressor::with_dictionary(3, &bytes).unwrap().compress(&raw).unwrap();
        let plain = entry(&frame, raw.len(), Codec::Zstd);
        let small = entry(&with_dictionary, raw.len(), Codec::ZstdDictionary);
        let stored = entry(&raw, raw.len(), Codec::None);
        // The memory of a longer record is of use to a shorter one.
        let long = vec![7; 2 * raw.len()];
        let long_frame = zstd::bulk::compress(&long, 3).unwrap();
        let of_long = entry(&long_frame, long.len(), Codec::Zstd);
        assert_eq!(zstd.unpack(&long_frame, &of_long, &mut memory).unwrap(), long);
        for (bytes, entry) in [(&frame, &plain), (&with_dictionary, &small), (&raw, &stored)] {
            assert_eq!(zstd.unpack(bytes, entry, &mut memory).unwrap(), raw, "{entry:?}");
        }
        let changed = zstd.unpack(&frame[1..], &plain, &mut memory);
        assert!(matches!(changed, Err(RecordFault::Checksum(_))), "{changed:?}");
        let len = raw.len();
        for (bytes, raw_len, codec, expected) in [
            (&frame, len - 1, Codec::Zstd, "too small"),
            (&frame, len + 1, Codec::Zstd, "it holds"),
            (&raw, len, Codec::Zstd, "Unknown frame"),
            (&with_dictionary, len, Codec::Zstd, "Dictionary mismatch"),
            (&frame, len, Codec::ZstdDictionary, "needs dictionary 0"),
        ] {
            let text = fault(zstd.unpack(bytes, &entry(bytes, raw_len, codec), &mut memory));
            assert!(text.contains(expected) && text.contains("zstd record"), "{expected}: {text}");
        }
    }
}
