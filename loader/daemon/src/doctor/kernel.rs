//! What a kernel's release means for reads from NFS.

use serde::Serialize;
use shade_reads::linux_version;

/// From this Linux on io_uring trusts FMODE_NOWAIT alone, which NFS did not set.
const WORKERS_SINCE: (u32, u32) = (6, 5);
/// From this Linux on NFS sets FMODE_NOWAIT for files opened O_RDONLY.
const INLINE_AGAIN_SINCE: (u32, u32) = (7, 2);

/// How a kernel carries out io_uring's reads of NFS files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum NfsReads {
    /// Linux up to 6.4: the submitting thread sends the request.
    Inline,
    /// Linux 6.5 to 7.1: every read goes through a kernel worker (io-wq).
    Workers,
    /// Linux 7.2 and later: inline for direct reads of files opened read-only, as shade opens them.
    InlineDirect,
}

impl NfsReads {
    /// For this release; `None` if its version is unknown.
    pub(super) fn of(release: &str) -> Option<Self> {
        linux_version(release).map(|version| {
            if version < WORKERS_SINCE {
                Self::Inline
            } else if version < INLINE_AGAIN_SINCE {
                Self::Workers
            } else {
                Self::InlineDirect
            }
        })
    }

    /// What it means for shade.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Inline | Self::InlineDirect => {
                "NFS reads are sent inline if direct, and block a kernel worker each if buffered"
            }
            Self::Workers => {
                "NFS reads go to kernel workers: one is enough for all if direct, one each is blocked if buffered"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NfsReads;

    #[test]
    fn releases_of_real_systems_fall_into_three_regimes() {
        let table = [
            ("5.14.0-570.el9.x86_64", Some(NfsReads::Inline)),
            ("6.1.0-37-cloud-amd64", Some(NfsReads::Inline)),
            ("6.4.16", Some(NfsReads::Inline)),
            ("6.5.0-1024-aws", Some(NfsReads::Workers)),
            ("6.8.0-79-generic", Some(NfsReads::Workers)),
            ("6.12.48+deb13-amd64", Some(NfsReads::Workers)),
            ("6.18.44-fc-v445", Some(NfsReads::Workers)),
            ("7.1.9", Some(NfsReads::Workers)),
            ("7.2.0-rc1", Some(NfsReads::InlineDirect)),
            ("10.0.0", Some(NfsReads::InlineDirect)),
            ("", None),
            ("plan9", None),
        ];
        for (release, expected) in table {
            assert_eq!(NfsReads::of(release), expected, "{release:?}");
        }
    }
}
