//! Counters of an NFS mount, from /proc/self/mountstats.

use serde::Serialize;

use crate::proc::mountinfo::unescaped;

/// The READ and READ_PLUS operations of one NFS mount since it was mounted, by all processes. A
/// client of version 4.2 may send the latter only (Linux 6.12).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ReadsSoFar {
    /// READ and READ_PLUS operations.
    pub(super) ops: u64,
    /// Bytes that came back in them, headers included.
    pub(super) bytes: u64,
    /// Mean time from sending a request to its answer. Milliseconds, as the kernel counts them.
    pub(super) rtt_mean_ms: Option<f64>,
    /// Mean time that a request waited before it was sent.
    pub(super) queued_mean_ms: Option<f64>,
    /// Operations that were sent again after a timeout.
    pub(super) timeouts: u64,
    /// Connections to the server.
    pub(super) connections: u64,
}

impl ReadsSoFar {
    /// Adds the operations of one kind, with their total times queued and on the wire.
    fn add(&mut self, ops: u64, timeouts: u64, bytes: u64, queued_ms: u64, rtt_ms: u64) {
        let before = self.ops;
        self.ops = before.saturating_add(ops);
        self.bytes = self.bytes.saturating_add(bytes);
        self.timeouts = self.timeouts.saturating_add(timeouts);
        let all = self.ops;
        let mean = |old: Option<f64>, sum_ms: u64| {
            (all > 0).then(|| (old.unwrap_or_default() * before as f64 + sum_ms as f64) / all as f64)
        };
        self.queued_mean_ms = mean(self.queued_mean_ms, queued_ms);
        self.rtt_mean_ms = mean(self.rtt_mean_ms, rtt_ms);
    }

    /// Operations since `before`, and the sum of their RTTs in milliseconds.
    pub(super) fn since(&self, before: &Self) -> (u64, f64) {
        let rtt_ms = |of: &Self| of.rtt_mean_ms.unwrap_or_default() * of.ops as f64;
        (self.ops.saturating_sub(before.ops), (rtt_ms(self) - rtt_ms(before)).max(0.0))
    }
}

/// The reads of the NFS mount at `mount_point`; the last one's if there are several.
pub(super) fn reads_so_far(text: &str, mount_point: &str) -> Option<ReadsSoFar> {
    let mut found = None;
    let mut ours = false;
    for line in text.lines() {
        if let Some(device) = line.strip_prefix("device ") {
            ours = is_nfs_at(device, mount_point);
            if ours {
                found = Some(ReadsSoFar::default());
            }
        } else if let Some(reads) = found.as_mut().filter(|_| ours) {
            take_line(line.trim(), reads);
        }
    }
    found
}

/// `10.0.0.1:/export mounted on /data with fstype nfs4 statvers=1.1`
fn is_nfs_at(device: &str, mount_point: &str) -> bool {
    let parts = device.split_once(" mounted on ").and_then(|(_, rest)| rest.split_once(" with fstype "));
    parts.is_some_and(|(point, kind)| kind.starts_with("nfs") && unescaped(point) == mount_point)
}

fn take_line(line: &str, reads: &mut ReadsSoFar) {
    if line.starts_with("xprt:") {
        reads.connections += 1;
    } else if let Some(numbers) = line.strip_prefix("READ:").or_else(|| line.strip_prefix("READ_PLUS:")) {
        // Operations, transmissions, major timeouts, bytes sent, bytes received, milliseconds
        // queued, of RTT, in all.
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        if let [ops, _, timeouts, _, received, queued_ms, rtt_ms, ..] = *numbers {
            reads.add(ops, timeouts, received, queued_ms, rtt_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two mounts of a Linux 6.12 client, shortened.
    const TEXT: &str = "\
device proc mounted on /proc with fstype proc
device 10.0.0.1:/export mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,hard,proto=tcp,nconnect=2,timeo=600
\tage:\t4711
\tcaps:\tcaps=0x1fffbfff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40fdbe3e,bm2=0x60803,acl=0x3,sessions,pnfs=not configured,lease_time=90
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t12 340 0 0 3 11 360 0 0 0 0 0 4 0 5 0 0 4 0 0 0 0 0 0 0 0 0
\tbytes:\t0 0 733184000 0 733184000 0 0 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 12 6420 6420 0 7100 0 32 210 5010
\txprt:\ttcp 0 0 2 0 12 6400 6400 0 7000 0 30 190 4990
\tper-op statistics
\t        NULL: 2 2 0 88 48 0 0 0 0
\t        READ: 6400 6401 1 1484800 733798400 640 5120 5800 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
\t   READDIR: 2 2 0 448 912 0 1 1 0

device filer:/vol mounted on /my\\040photos with fstype nfs statvers=1.1
\txprt:\ttcp 0 0 1 0 0 5 5 0 5 0 2 0 0
\t        READ: 0 0 0 0 0 0 0 0 0
";

    #[test]
    fn the_reads_of_a_mount_are_found() {
        let reads = reads_so_far(TEXT, "/data").unwrap();
        let expected = ReadsSoFar {
            ops: 6400,
            bytes: 733_798_400,
            rtt_mean_ms: Some(0.8),
            queued_mean_ms: Some(0.1),
            timeouts: 1,
            connections: 2,
        };
        assert_eq!(reads, expected);
    }

    #[test]
    fn reads_of_either_kind_count() {
        // As a client of 6.12 has it with version 4.2: READ stays 0.
        let plus = TEXT.replace("        READ: 6400", "   READ_PLUS: 6400");
        let plus = plus.replace("       WRITE: 0", "        READ: 0 0 0 0 0 0 0 0 0\n       WRITE: 0");
        assert_eq!(reads_so_far(&plus, "/data"), reads_so_far(TEXT, "/data"));
        let both = TEXT
            .replace("       WRITE: 0", "   READ_PLUS: 1600 1600 1 1 6401600 320 12800 13200 0\n  WRITE: 0");
        let reads = reads_so_far(&both, "/data").unwrap();
        assert_eq!((reads.ops, reads.bytes, reads.timeouts), (8000, 740_200_000, 2));
        assert_eq!((reads.rtt_mean_ms, reads.queued_mean_ms), (Some(17_920.0 / 8000.0), Some(0.12)));
        let (ops, rtt_ms) = reads.since(&reads_so_far(TEXT, "/data").unwrap());
        assert!(ops == 1600 && (rtt_ms - 12_800.0).abs() < 1e-6, "{rtt_ms}");
    }

    #[test]
    fn a_fresh_mount_has_no_mean() {
        let reads = reads_so_far(TEXT, "/my photos").unwrap();
        assert_eq!((reads.ops, reads.rtt_mean_ms, reads.connections), (0, None, 1));
    }

    #[test]
    fn other_mounts_have_no_reads() {
        assert_eq!(reads_so_far(TEXT, "/proc"), None);
        assert_eq!(reads_so_far(TEXT, "/dat"), None);
        assert_eq!(reads_so_far("", "/data"), None);
    }

    #[test]
    fn of_two_mounts_at_one_point_the_last_counts() {
        let text = TEXT.replace("/my\\040photos", "/data");
        assert_eq!(reads_so_far(&text, "/data").unwrap().connections, 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read(numbers in "[0-9 -]{0,80}", noise in ".{0,80}") {
            let text = format!("device {noise}\ndevice a mounted on /a with fstype nfs\n{noise}\nREAD:{numbers}\n");
            prop_assert!(reads_so_far(&text, "/a").is_some());
        }
    }
}
