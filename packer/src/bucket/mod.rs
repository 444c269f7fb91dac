//! Datasets that are made in a bucket.
//!
//! A command that is told an address makes its dataset in a folder of the user's cache, by the same
//! code as any other, and what is complete goes from there: each shard as soon as it is written,
//! whose file is then removed, `dataset.times`, and the index last. A reader sees a whole dataset
//! or none. Records of completion stay in the folder until the end and say which shards the bucket
//! has, so that the same command on the same machine goes on after a kill. With a stream no command
//! goes on: what its records said is kept in memory until the end.
//!
//! `address` reads OUT, and `place` is where it is. `made` writes to the bucket, `publish` makes a
//! dataset of what is there, `object` reads small things of it, `claim` keeps two commands from
//! writing there at a time, `left` judges what is there already. `mark` tells whose an object is.
//! `shards_to` is what the packing of shards needs to know of it.

mod address;
mod claim;
mod left;
mod made;
mod mark;
mod object;
mod place;
mod publish;
mod shards_to;

pub(crate) use address::{is_address, out, refuse_address, refuse_local_source};
pub(crate) use left::Work;
pub(crate) use made::Bucket;
pub(crate) use object::{Got, read_small};
pub(crate) use place::{Made, Place, is_left};
pub use shards_to::ShardsTo;
