//! The index, `dataset.shade`: the record of each sample. `INDEX.md` has the byte tables.

mod builder;
mod check;
mod entry;
mod extras;
mod field_ends;
mod field_rows;
mod kind;
mod layout;
mod media;
mod members;
mod names;
mod places;
mod reader;

pub use builder::IndexBuilder;
pub use entry::{Codec, Entry, Media};
pub use extras::{FieldsRow, FieldsSpan};
pub use field_ends::FieldEnd;
pub use kind::{KIND_BYTES, Kind};
pub use layout::HEADER_BYTES;
pub use media::{sniff, sniff_directory, tiff_directory};
pub use members::FieldPlace;
pub use places::{Places, PlacesKind};
pub use reader::{Index, Shard, WantedFields};

/// The index's file name inside a dataset's directory. Its appearance commits the dataset.
pub const INDEX_FILE: &str = "dataset.shade";
