//! zstd records: plain frames, and frames that need one of the dataset's dictionaries.

use std::sync::Arc;

use shade_formats::index::{Codec, Entry, Index};
use shade_images::scratch;
use zstd::zstd_safe::{DCtx, DDict, get_dict_id_from_dict, get_dict_id_from_frame, get_error_name};

use super::FillFault;

/// The dataset's dictionaries, prepared once and shared by all workers: zstd only reads them, and a prepared one takes
/// more memory than its bytes. Few, as a dataset has one for each dataset that was merged into it.
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

/// What one worker decompresses with. The context is made by its first compressed record.
pub(super) struct Decompressor {
    context: Option<DCtx<'static>>,
    dictionaries: Dictionaries,
}

impl Decompressor {
    pub(super) fn new(dictionaries: Dictionaries) -> Self {
        Self { context: None, dictionaries }
    }

    /// Another one with the same dictionaries, for when a panic may have left this one half-changed.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.dictionaries.clone())
    }

    /// Decompresses `stored`, the one zstd frame of the record of `entry`, which must give exactly as many bytes as
    /// the index says. However much more a frame claims to hold, no more is ever written than there is room for.
    pub(super) fn decompress<'a>(
        &mut self,
        stored: &[u8],
        entry: &Entry,
        raw: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], FillFault> {
        let fault = |text: String| FillFault::Decompress {
            stored_len: entry.stored_len,
            raw_len: entry.raw_len,
            text,
        };
        let context = match &mut self.context {
            Some(context) => context,
            empty => {
                empty.insert(DCtx::try_create().ok_or_else(|| fault("no memory to do it in".to_owned()))?)
            }
        };
        let raw = scratch(raw, entry.raw_len as usize);
        let written = if entry.codec == Codec::ZstdDictionary {
            let id = get_dict_id_from_frame(stored).map_or(0, std::num::NonZeroU32::get);
            let dictionary = self.dictionaries.get(id).ok_or(FillFault::Dictionary { id })?;
            context.decompress_using_ddict(raw, stored, dictionary)
        } else {
            context.decompress(raw, stored)
        };
        let written = written.map_err(|code| fault(get_error_name(code).to_owned()))?;
        if written != entry.raw_len as usize {
            return Err(fault(format!("it holds {written} bytes")));
        }
        Ok(raw)
    }
}
