//! `index`: an index of images that stay where they are, as files of an ImageFolder or in
//! WebDataset tars.
//!
//! `run` lists the source as `create` does, `look` reads the beginning of each image, `make` builds
//! the index, `unchanged` tells whether one that is there is still right, and `probe` measures what
//! packing would gain.

mod args;
mod look;
mod make;
mod probe;
mod report;
mod run;
mod unchanged;

pub(crate) use args::IndexArgs;
#[cfg(test)]
pub(crate) use report::Indexed;
pub(crate) use run::index;
