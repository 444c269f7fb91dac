//! Lists a folder of WebDataset tars.
//!
//! `folder` finds the tars and puts together what each holds; `groups` reads one tar's headers and
//! puts members of one key together, through a `window` onto the file; `names` has the rules for
//! members' names, `label` those for the members a label is read from, and `sample` makes a group a
//! sample.
//!
//! For a tar from a pipe `cut` leaves pieces of it on disk, and `stream` lists one after the other.

mod cut;
mod folder;
mod groups;
mod label;
mod names;
mod sample;
mod stream;
mod window;

pub(crate) use cut::{Cut, StreamPiece, each_piece};
pub(crate) use folder::{TarObjects, is_compressed_tar, is_tar, scan};
pub(crate) use stream::{StreamClasses, StreamListing};
