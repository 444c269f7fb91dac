//! Messages between trainer and daemon: one SEQPACKET message on the socket is one value here.
//! `CONTROL.md` has the byte tables. [`socket_name`] is the default address of a dataset's daemon.

mod codec;
mod field;
mod pooled;
mod redo;
mod reply;
mod request;
mod scores;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

pub use codec::PROTOCOL;
pub use pooled::{PlacedScore, Pooled, PooledSample};
pub use redo::{RedoRow, Step, redo_from_bytes, redo_to_bytes};
pub use reply::{
    REFUSE_BUSY, REFUSE_DATASET, REFUSE_DRAINING, REFUSE_ENDING, REFUSE_PERMISSION, REFUSE_PROTOCOL,
    REFUSE_REPLACED, REFUSE_RESOURCES, REFUSE_SPEC, REFUSE_STOPPED, Reply, WELCOME_FDS,
};
pub use request::Request;
pub use scores::{Member, OfStratum, Scores};

/// Name, in the abstract namespace, of the socket of user `uid`'s daemon for one dataset, whatever
/// its jobs. `dataset` is canonical.
///
/// An abstract name leaves nothing on disk, is gone with the daemon, and can be bound by exactly
/// one of two daemons that start at once. It has at most 65 of the 107 bytes that fit an address.
#[must_use]
pub fn socket_name(uid: u32, dataset: &Path) -> Vec<u8> {
    let hash = xxh3_128(dataset.as_os_str().as_bytes());
    format!("{}{hash:032x}", socket_prefix(uid)).into_bytes()
}

/// What the names of all daemons of user `uid` begin with.
#[must_use]
pub fn socket_prefix(uid: u32) -> String {
    format!("shade-load/{uid}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_user_and_dataset_and_fit_an_address() {
        let names = [
            socket_name(0, Path::new("/data/a")),
            socket_name(u32::MAX, Path::new("/data/a")),
            socket_name(0, Path::new("/data/ab")),
            socket_name(0, Path::new("/")),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 65 && name.starts_with(b"shade-load/"), "{name:?}");
            assert!(!names[..at].contains(name));
        }
    }

    #[test]
    fn the_name_never_changes_within_a_protocol() {
        let name = socket_name(1000, Path::new("/data/train"));
        assert_eq!(name.escape_ascii().to_string(), "shade-load/1000/77f7417945dbe90a9c740eb3ec9b01e8");
    }
}
