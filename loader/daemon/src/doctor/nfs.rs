//! The options of an NFS mount that matter for reads.

use serde::Serialize;

use super::mountstats::ReadsSoFar;
use crate::proc::mountinfo::Mount;

/// An NFS mount.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Nfs {
    /// Protocol version: `3`, `4.0`, `4.2`; empty if the mount does not say.
    pub(super) version: String,
    /// Most bytes of one READ; a longer record is read by several at once.
    pub(super) rsize_bytes: Option<u64>,
    /// Most bytes of one WRITE.
    pub(super) wsize_bytes: Option<u64>,
    /// TCP connections to the server.
    pub(super) nconnect: u64,
    /// Transport: `tcp`, `tcp6`, `rdma`.
    pub(super) proto: Option<String>,
    /// Whether reads wait for a server that does not answer; otherwise they fail after some time.
    pub(super) hard: bool,
    /// Most session slots that this client requests (`nfs.max_session_slots`), if known.
    pub(super) session_slots_max: Option<u64>,
    /// Its reads so far.
    pub(super) reads: Option<ReadsSoFar>,
}

impl Nfs {
    /// From a mount's options; `None` if it is no NFS mount. The caller adds the counters.
    pub(super) fn of(mount: &Mount) -> Option<Self> {
        if !["nfs", "nfs4"].contains(&mount.kind.as_str()) {
            return None;
        }
        let number = |name| mount.option(name).and_then(|value| value.parse().ok());
        let mut version = mount.option("vers").unwrap_or_default().to_owned();
        // Older kernels show 4.1 as vers=4,minorversion=1.
        if let Some(minor) = mount.option("minorversion") {
            version = format!("{version}.{minor}");
        }
        Some(Self {
            version,
            rsize_bytes: number("rsize"),
            wsize_bytes: number("wsize"),
            nconnect: number("nconnect").unwrap_or(1).max(1),
            proto: mount.option("proto").map(str::to_owned),
            hard: !mount.has("soft") && !mount.has("softerr"),
            session_slots_max: None,
            reads: None,
        })
    }

    /// Whether reads in flight are limited by the slots of a session: NFS 4.1 and later.
    pub(super) fn has_sessions(&self) -> bool {
        self.version.strip_prefix("4.").is_some_and(|minor| minor != "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::mountinfo;

    fn of(kind: &str, options: &str) -> Option<Nfs> {
        let line = format!("96 27 0:45 / /data rw,noatime - {kind} 10.0.0.1:/export rw,{options}");
        Nfs::of(mountinfo::parse(&line).first().unwrap())
    }

    #[test]
    fn real_mounts_are_understood() {
        let nfs =
            of("nfs4", "vers=4.2,rsize=1048576,wsize=262144,namlen=255,hard,proto=tcp,nconnect=8,timeo=600")
                .unwrap();
        assert_eq!(
            (nfs.version.as_str(), nfs.nconnect, nfs.hard, nfs.has_sessions()),
            ("4.2", 8, true, true)
        );
        assert_eq!((nfs.rsize_bytes, nfs.wsize_bytes), (Some(1_048_576), Some(262_144)));
        let nfs = of("nfs", "vers=3,rsize=65536,wsize=65536,soft,proto=tcp6,timeo=11,mountvers=3").unwrap();
        assert_eq!(
            (nfs.version.as_str(), nfs.nconnect, nfs.hard, nfs.has_sessions()),
            ("3", 1, false, false)
        );
        assert_eq!(nfs.proto.as_deref(), Some("tcp6"));
        assert!(!of("nfs4", "vers=4.0,softerr").unwrap().has_sessions());
        assert!(!of("nfs4", "vers=4.0,softerr").unwrap().hard);
        assert_eq!(of("nfs4", "vers=4,minorversion=1").unwrap().version, "4.1");
        assert_eq!(of("nfs4", "rsize=big,nconnect=0").unwrap().nconnect, 1);
    }

    #[test]
    fn what_is_no_nfs_has_no_such_options() {
        for kind in ["ext4", "nfsd", "fuse.sshfs"] {
            assert_eq!(of(kind, "vers=4.2"), None, "{kind}");
        }
    }
}
