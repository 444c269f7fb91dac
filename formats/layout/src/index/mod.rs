//! The index, `dataset.shade`: the record of each sample. `INDEX.md` has the byte tables.

mod builder;
mod check;
mod entry;
mod extras;
mod kind;
mod layout;
mod media;
mod names;
mod places;
mod reader;

pub use builder::IndexBuilder;
pub use entry::{Codec, Entry, Media};
pub use extras::{FieldsRow, FieldsSpan};
pub use kind::{KIND_BYTES, Kind};
pub use layout::HEADER_BYTES;
pub use media::sniff;
pub use places::{FieldPlace, Places, PlacesKind};
pub use reader::{Index, Shard};

/// The index's file name inside a dataset's directory. Its appearance commits the dataset.
pub const INDEX_FILE: &str = "dataset.shade";
