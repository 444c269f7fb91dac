//! The default address of a dataset's daemon.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

/// Name, in the abstract namespace, of the socket of user `uid`'s daemon for one dataset and job.
/// `dataset` is canonical.
///
/// An abstract name leaves nothing on disk, is gone with the daemon, and can be bound by exactly
/// one of two daemons that start at once. It has at most 65 of the 107 bytes that fit an address.
#[must_use]
pub fn socket_name(uid: u32, dataset: &Path, job: &str) -> Vec<u8> {
    let mut key = dataset.as_os_str().as_bytes().to_vec();
    // No path has a zero byte, so different (path, job) give different keys.
    key.push(0);
    key.extend_from_slice(job.as_bytes());
    format!("shade-load/{uid}/{:032x}", xxh3_128(&key)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_user_dataset_and_job_and_fit_an_address() {
        let names = [
            socket_name(0, Path::new("/data/a"), "b"),
            socket_name(u32::MAX, Path::new("/data/a"), "b"),
            socket_name(0, Path::new("/data/ab"), ""),
            socket_name(0, Path::new("/data/a"), ""),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 65 && name.starts_with(b"shade-load/"), "{name:?}");
            assert!(!names[..at].contains(name));
        }
    }

    #[test]
    fn the_name_never_changes_between_versions() {
        let name = socket_name(1000, Path::new("/data/train"), "default");
        assert_eq!(name.escape_ascii().to_string(), "shade-load/1000/4ce8f27a5eca9decfa65a026a6cebc0f");
    }
}
