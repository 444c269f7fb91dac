//! Records of samples, read in the trainer's process for a data loader that is not ours.
//!
//! A map-style dataset is asked for any sample at any time, in processes that fork: no daemon, no ring, no
//! plan, and no cache but the system's.

mod reader;

pub use reader::RecordReader;
