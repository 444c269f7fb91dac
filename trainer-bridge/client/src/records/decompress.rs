//! zstd records: plain frames, and frames that need one of the dataset's dictionaries.

use std::num::NonZeroU32;
use std::sync::Arc;

use shade_formats::index::{Codec, Entry, Index};
use zstd::zstd_safe::{DCtx, DDict, get_dict_id_from_dict, get_dict_id_from_frame, get_error_name};

/// The dataset's dictionaries, prepared once and shared by all threads: zstd only reads them.
#[derive(Clone)]
pub(super) struct Dictionaries {
    prepared: Arc<[(u32, DDict<'static>)]>,
}

impl Dictionaries {
    /// Prepares those of `index`. One that zstd refuses is left out: records that need it are faults, with its id.
    pub(super) fn prepare(index: &Index) -> Self {
        let prepared = index
            .dictionaries()
            .filter_map(|bytes| Some((get_dict_id_from_dict(bytes)?.get(), DDict::try_create(bytes)?)));
        Self { prepared: prepared.collect() }
    }

    fn get(&self, id: u32) -> Option<&DDict<'static>> {
        self.prepared.iter().find(|(prepared, _)| *prepared == id).map(|(_, dictionary)| dictionary)
    }
}

impl std::fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.prepared.iter().map(|(id, _)| id)).finish()
    }
}

/// What one thread decompresses with. The context is made by its first compressed record.
#[derive(Default)]
pub(super) struct Decompressor {
    context: Option<DCtx<'static>>,
}

impl Decompressor {
    /// The record of `entry`, whose `stored` bytes are one zstd frame that must give exactly as many bytes as the index
    /// says. However much more a frame claims to hold, no more is ever written than that.
    pub(super) fn decompress(
        &mut self,
        stored: &[u8],
        entry: &Entry,
        dictionaries: &Dictionaries,
    ) -> Result<Vec<u8>, String> {
        let (stored_len, raw_len) = (entry.stored_len, entry.raw_len);
        let fault =
            |text: &str| format!("zstd record of {stored_len} bytes: {text}, expected {raw_len} bytes");
        let context = match &mut self.context {
            Some(context) => context,
            empty => empty.insert(DCtx::try_create().ok_or_else(|| fault("no memory to do it in"))?),
        };
        let mut raw = Vec::new();
        // Not more than the index says, and the vector's capacity is where zstd stops.
        raw.try_reserve_exact(raw_len as usize).map_err(|error| fault(&error.to_string()))?;
        let written = if entry.codec == Codec::ZstdDictionary {
            let id = get_dict_id_from_frame(stored).map_or(0, NonZeroU32::get);
            let dictionary = dictionaries.get(id).ok_or_else(|| {
                fault(&format!("it needs dictionary {id}, and the index holds no such dictionary"))
            })?;
            context.decompress_using_ddict(&mut raw, stored, dictionary)
        } else {
            context.decompress(&mut raw, stored)
        };
        let written = written.map_err(|code| fault(get_error_name(code)))?;
        if written != raw_len as usize || raw.len() != written {
            return Err(fault(&format!("it holds {written} bytes")));
        }
        Ok(raw)
    }
}
