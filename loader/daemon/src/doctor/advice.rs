//! Advice that follows from the facts: what to change, and what to know. Pure.

use indicatif::BinaryBytes;
use serde::Serialize;

use super::kernel::NfsReads;
use super::machine::Machine;
use super::nfs::Nfs;
use super::path_facts::PathFacts;
use super::probe::Probe;
use super::sweep::{Bound, Wire};
use crate::daemon::AutoCache;

/// Below this a usual record needs several READs.
const RSIZE_MIN_BYTES: u64 = 256 << 10;

/// One thing to change or to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Advice {
    /// What it is about, one word: `rsize`, `memlock`.
    pub(super) topic: &'static str,
    /// The fact that it follows from.
    pub(super) fact: String,
    /// What the fact means, or what to do.
    pub(super) advice: String,
    /// The command, option or mount option that changes it; `None` where there is nothing to
    /// change.
    pub(super) change: Option<String>,
}

/// All advice that follows from these facts: changes first.
pub(super) fn advice(machine: &Machine, path: Option<&PathFacts>, probe: Option<&Probe>) -> Vec<Advice> {
    let mut all = of_machine(machine, path);
    if let Some(path) = path {
        all.extend(of_path(machine, path));
    }
    all.extend(probe.into_iter().flat_map(of_probe));
    let nfs = path.and_then(|path| path.nfs.as_ref());
    all.extend(nfs.filter(|nfs| nfs.has_sessions()).zip(probe).and_then(|(_, probe)| slots(probe)));
    all.sort_by_key(|advice| advice.change.is_none());
    all
}

pub(super) fn change(
    topic: &'static str,
    fact: String,
    advice: impl Into<String>,
    change: impl Into<String>,
) -> Advice {
    Advice { topic, fact, advice: advice.into(), change: Some(change.into()) }
}

pub(super) fn note(topic: &'static str, fact: String, advice: impl Into<String>) -> Advice {
    Advice { topic, fact, advice: advice.into(), change: None }
}

/// A mount option as a change: NFS mounts keep their options when they are remounted.
fn mount_option(option: &str) -> String {
    format!("mount option {option} (umount, then mount: a remount does not change it)")
}

fn of_machine(machine: &Machine, path: Option<&PathFacts>) -> Vec<Advice> {
    let mut all = Vec::new();
    if let Some(reason) = &machine.io_uring.reason {
        all.push(Advice {
            topic: "io_uring",
            fact: format!("io_uring cannot be used: {reason}"),
            advice: "shade reads with threads instead, at most 128 at a time: more CPU time and less depth, the same \
                     bytes"
                .to_owned(),
            change: machine.io_uring.remedy.clone(),
        });
    }
    let dataset = path.and_then(|path| path.dataset.as_ref());
    let cache = dataset.map(|dataset| AutoCache::of(&machine.memory, dataset.cached_bytes, 0).bytes);
    all.extend(memlock(machine, cache));
    let memory = &machine.memory;
    if let Some(limit) = memory.cgroup.as_ref().filter(|limit| limit.limit_bytes < memory.total_bytes) {
        all.push(note(
            "cgroup",
            format!(
                "the control group's memory limit is {}, the machine has {}",
                BinaryBytes(limit.limit_bytes),
                BinaryBytes(memory.total_bytes)
            ),
            "cache, rings and trainers must fit into the limit together, or the kernel ends one of them; a cache \
             without a size takes half of what is free in it: raise the limit for more (docker run --memory, \
             sbatch --mem)",
        ));
    }
    all
}

/// `cache`: bytes that would be locked, if there is a dataset.
fn memlock(machine: &Machine, cache: Option<u64>) -> Option<Advice> {
    let limit = machine.memlock.soft_bytes?;
    let wanted = cache.unwrap_or(machine.memory.total_bytes / 2);
    if machine.memlock.allows(wanted) {
        return None;
    }
    let cache =
        cache.map_or("a cache".to_owned(), |bytes| format!("the default cache of {}", BinaryBytes(bytes)));
    let command = if machine.memlock.hard_bytes.is_none_or(|hard| hard >= wanted) {
        "ulimit -l unlimited, before shade-load starts"
    } else {
        "LimitMEMLOCK=infinity in the systemd unit, --ulimit memlock=-1 for docker, or memlock in /etc/security/limits.conf"
    };
    Some(change(
        "memlock",
        format!("RLIMIT_MEMLOCK is {} and there is no CAP_IPC_LOCK", BinaryBytes(limit)),
        format!("{cache} cannot be locked in memory: under memory pressure the kernel swaps it out"),
        command,
    ))
}

fn of_path(machine: &Machine, path: &PathFacts) -> Vec<Advice> {
    let Some(nfs) = &path.nfs else {
        return path.mount.iter().map(|mount| no_nfs(&mount.kind)).collect();
    };
    let mut all = Vec::new();
    if let Some(rsize) = nfs.rsize_bytes.filter(|rsize| *rsize < RSIZE_MIN_BYTES) {
        all.push(change(
            "rsize",
            format!("rsize is {}", BinaryBytes(rsize)),
            format!(
                "a larger record needs several READs{}; if the mount stays below, the server limits it (Linux: \
                 /proc/fs/nfsd/max_block_size)",
                if nfs.has_sessions() { ", and each takes a session slot" } else { "" }
            ),
            mount_option("rsize=1048576"),
        ));
    }
    if nfs.nconnect <= 1 && nfs.proto.as_deref().is_none_or(|proto| proto.starts_with("tcp")) {
        all.push(change(
            "nconnect",
            "there is one TCP connection to the server (nconnect=1)".to_owned(),
            format!(
                "more connections raise the bandwidth{}",
                if nfs.has_sessions() {
                    "; they raise neither the session slots nor the reads in flight"
                } else {
                    ""
                }
            ),
            "mount option nconnect=8, once all mounts of that server are unmounted: mounts share its connections, and a \
             new one gets those that exist",
        ));
    }
    all.extend(version(nfs));
    if !nfs.hard {
        all.push(change(
            "soft",
            "the mount is soft".to_owned(),
            "reads from a busy or restarting server can fail with EIO, which ends an epoch; a hard mount waits",
            mount_option("hard"),
        ));
    }
    all.extend(regime(machine, path));
    all
}

fn no_nfs(kind: &str) -> Advice {
    note("mount", format!("the file system is {kind}, not NFS"), "none of its mount options matters to shade")
}

fn version(nfs: &Nfs) -> Option<Advice> {
    let fact = format!("the mount speaks NFS {}", nfs.version);
    if nfs.version == "3" {
        return Some(note(
            "version",
            fact,
            "no session limits the reads in flight, as one does from 4.1 on; keep version 3 if the server allows few \
             reads there",
        ));
    }
    if nfs.has_sessions() {
        let asked = nfs.session_slots_max.map_or(String::new(), |slots| format!(", here at most {slots}"));
        return Some(note(
            "version",
            fact,
            format!(
                "reads in flight are limited by the session slots that the server grants, which may be fewer than the \
                 client asks for with nfs.max_session_slots{asked} (set in /etc/modprobe.d, before the first mount)"
            ),
        ));
    }
    nfs.version.starts_with('4').then(|| {
        change(
            "version",
            fact,
            "before 4.1 there are no sessions, and open files of version 4.0 cost the server more; 4.2 is what Linux \
             mounts by default",
            mount_option("vers=4.2"),
        )
    })
}

/// Direct reads keep the whole depth on every kernel, buffered ones on none.
fn regime(machine: &Machine, path: &PathFacts) -> Option<Advice> {
    let kernel = &machine.kernel;
    let regime = kernel.nfs_reads?;
    match &path.io {
        Some(io) if !io.direct => Some(change(
            "io",
            format!("shards would be read through the page cache ({}) on Linux {}", io.why, kernel.release),
            format!("{}: depth costs that many kernel threads", regime.meaning()),
            "shade-load serve --io direct, if the file system takes it",
        )),
        _ if regime == NfsReads::Workers => Some(note(
            "kernel",
            format!("Linux {}: {}", kernel.release, regime.meaning()),
            "leave --io at auto, which reads NFS directly",
        )),
        _ => None,
    }
}

/// The number of session slots that the server has granted, and whether it is the limit.
fn slots(probe: &Probe) -> Option<Advice> {
    let wire = probe.wire?;
    let Wire { depth, asked_mean, in_flight_mean, rtt_ms, rtt_alone_ms } = wire;
    let fact = format!(
        "at depth {depth}, {asked_mean:.0} reads were wanted at a time and {in_flight_mean:.0} were on the wire, with \
         an RTT of {rtt_ms:.1} ms ({rtt_alone_ms:.1} alone)"
    );
    let advice = match wire.bound() {
        Bound::Slots => format!(
            "the server grants about {in_flight_mean:.0} session slots, and they are the limit: more of them would \
             bring more records a second. The server decides (Linux: more nfsd threads and memory)"
        ),
        Bound::Server => format!(
            "the server grants about {in_flight_mean:.0} session slots, and they are not the limit: the server or the \
             link is, as answers take longer with more requests"
        ),
        Bound::Reader => "all that was wanted was on the wire: session slots are not the limit".to_owned(),
    };
    Some(note("slots", fact, advice))
}

fn of_probe(probe: &Probe) -> Vec<Advice> {
    let mut all = Vec::new();
    let verify = "shade-pack verify DATASET";
    if let Some(first) = &probe.first_bad_shard {
        all.push(change(
            "shards",
            format!("{} of the shards are not as the index says, first: {first}", probe.bad_shards),
            "their records will fail; copy the dataset again, or make them again as this says",
            verify,
        ));
    }
    if let Some(forbidden) = &probe.forbidden {
        all.push(change(
            "permission",
            forbidden.clone(),
            "this user may not read the shards, which are not damaged; over NFS, root is nobody unless the export says \
             no_root_squash",
            "chmod -R a+rX DATASET, by its owner",
        ));
    }
    if let Some(first) = probe.first_error.as_ref().filter(|_| probe.forbidden.is_none()) {
        all.push(change(
            "errors",
            format!("{} of the reads failed, first: {first}", probe.errors),
            "records that cannot be read or have another checksum end an epoch unless on_error says otherwise",
            verify,
        ));
    }
    if probe.unanswered > 0 {
        all.push(note(
            "server",
            format!("{} of the reads did not come back in time", probe.unanswered),
            "the server does not answer or is very slow; nothing can cancel these reads, and the kernel keeps this \
             process until they are answered",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::machine::{IoUring, Kernel, Memlock};
    use crate::doctor::path_facts::{DatasetFacts, Io};
    use crate::proc::cgroup::MemoryLimit;
    use crate::proc::{SystemMemory, mountinfo};

    fn machine() -> Machine {
        Machine {
            kernel: Kernel { release: "6.1.0-37-amd64".into(), nfs_reads: Some(NfsReads::Inline) },
            io_uring: IoUring { usable: true, setup: Some("best".into()), reason: None, remedy: None },
            memlock: Memlock { soft_bytes: None, hard_bytes: None, cap_ipc_lock: false },
            memory: SystemMemory { total_bytes: 64 << 30, available_bytes: 60 << 30, cgroup: None },
            cpus: 8,
        }
    }

    fn path(kind: &str, options: &str) -> PathFacts {
        let line = format!("96 27 0:45 / /data rw,noatime - {kind} 10.0.0.1:/export rw,{options}");
        let mount = mountinfo::parse(&line).pop();
        PathFacts {
            path: "/data/set".into(),
            nfs: mount.as_ref().and_then(Nfs::of),
            mount,
            read_ahead_kib: Some(128),
            io: Some(Io { direct: true, align_bytes: Some(512), why: "nfs keeps full depth so".into() }),
            dataset: Some(DatasetFacts { samples: 10, cached_bytes: 20 << 30, ..DatasetFacts::default() }),
            no_dataset: None,
        }
    }

    const GOOD: &str = "vers=4.2,rsize=1048576,hard,proto=tcp,nconnect=8";

    /// Topics of changes, and of notes.
    fn topics(
        machine: &Machine,
        path: Option<&PathFacts>,
        probe: Option<&Probe>,
    ) -> (Vec<&'static str>, Vec<&'static str>) {
        let all = advice(machine, path, probe);
        assert!(all.iter().all(|advice| !advice.fact.is_empty() && !advice.advice.is_empty()));
        let of = |change: bool| {
            all.iter().filter(|advice| advice.change.is_some() == change).map(|advice| advice.topic).collect()
        };
        (of(true), of(false))
    }

    #[test]
    fn a_good_machine_needs_nothing() {
        assert_eq!(topics(&machine(), None, None), (vec![], vec![]));
        assert_eq!(topics(&machine(), Some(&path("nfs4", GOOD)), None), (vec![], vec!["version"]));
        assert_eq!(topics(&machine(), Some(&path("ext4", "")), None), (vec![], vec!["mount"]));
    }

    #[test]
    fn each_mount_option_has_its_advice() {
        let table: [(&str, &[&str], &[&str]); 8] = [
            ("vers=4.2,rsize=131072,hard,proto=tcp,nconnect=8", &["rsize"], &["version"]),
            ("vers=4.2,rsize=262144,hard,proto=tcp,nconnect=2", &[], &["version"]),
            ("vers=4.2,rsize=1048576,hard,proto=tcp", &["nconnect"], &["version"]),
            ("vers=4.2,rsize=1048576,hard,proto=rdma", &[], &["version"]),
            ("vers=4.1,rsize=1048576,soft,proto=tcp,nconnect=4", &["soft"], &["version"]),
            ("vers=4.1,rsize=1048576,softerr,proto=tcp,nconnect=4", &["soft"], &["version"]),
            ("vers=4.0,rsize=1048576,hard,proto=tcp,nconnect=4", &["version"], &[]),
            ("vers=3,rsize=32768,soft,proto=tcp", &["rsize", "nconnect", "soft"], &["version"]),
        ];
        for (options, change, know) in table {
            let got = topics(&machine(), Some(&path("nfs4", options)), None);
            assert_eq!(got, (change.to_vec(), know.to_vec()), "{options}");
        }
    }

    #[test]
    fn the_kernel_matters_on_nfs_and_most_for_buffered_reads() {
        let mut machine = machine();
        machine.kernel = Kernel { release: "6.12.48".into(), nfs_reads: Some(NfsReads::Workers) };
        let mut path = path("nfs4", GOOD);
        assert_eq!(topics(&machine, Some(&path), None), (vec![], vec!["version", "kernel"]));
        path.io = Some(Io { direct: false, align_bytes: None, why: "nfs aligns at 4096".into() });
        assert_eq!(topics(&machine, Some(&path), None), (vec!["io"], vec!["version"]));
        assert_eq!(topics(&machine, None, None), (vec![], vec![]));
    }

    #[test]
    fn locked_memory_is_compared_with_the_cache() {
        let limited = |soft_bytes, cap_ipc_lock| Machine {
            memlock: Memlock { soft_bytes: Some(soft_bytes), hard_bytes: Some(soft_bytes), cap_ipc_lock },
            ..machine()
        };
        let path = path("ext4", "");
        let low = limited(8 << 20, false);
        assert_eq!(topics(&low, Some(&path), None).0, ["memlock"]);
        assert_eq!(topics(&low, None, None).0, ["memlock"]);
        let [advice] = &advice(&low, None, None)[..] else { panic!("one advice") };
        assert!(advice.fact.contains("8.00 MiB") && advice.change.as_ref().unwrap().contains("LimitMEMLOCK"));
        assert_eq!(topics(&limited(20 << 30, false), Some(&path), None).0, [""; 0]);
        assert_eq!(topics(&limited(0, true), Some(&path), None).0, [""; 0]);
    }

    #[test]
    fn a_control_group_s_limit_counts_where_it_is_below_the_machine_s_memory() {
        let limited = |limit_bytes| {
            let cgroup = Some(MemoryLimit {
                folder: PathBuf::new(),
                limit_bytes,
                used_bytes: Some(1),
                free_bytes: limit_bytes,
            });
            Machine { memory: SystemMemory { cgroup, ..machine().memory }, ..machine() }
        };
        let path = path("ext4", "");
        assert_eq!(topics(&limited(32 << 30), Some(&path), None).1, ["cgroup", "mount"]);
        assert_eq!(topics(&limited(65 << 30), Some(&path), None).1, ["mount"]);
        assert_eq!(topics(&limited(8 << 30), Some(&path), None), (vec![], vec!["cgroup", "mount"]));
    }

    #[test]
    fn denied_io_uring_is_told_with_its_reason() {
        let denied = |remedy: Option<&str>| IoUring {
            usable: false,
            setup: None,
            reason: Some("a seccomp filter forbids io_uring".into()),
            remedy: remedy.map(str::to_owned),
        };
        let all = advice(&Machine { io_uring: denied(Some("another profile")), ..machine() }, None, None);
        let [advice] = &all[..] else { panic!("{all:?}") };
        assert!(advice.fact.contains("seccomp") && advice.advice.contains("threads"), "{advice:?}");
        assert_eq!(advice.change.as_deref(), Some("another profile"));
        assert_eq!(topics(&Machine { io_uring: denied(None), ..machine() }, None, None).1, ["io_uring"]);
    }

    #[test]
    fn slots_are_told_where_there_are_sessions_and_nowhere_else() {
        let wire =
            Wire { depth: 256, asked_mean: 250.0, in_flight_mean: 28.4, rtt_ms: 50.7, rtt_alone_ms: 50.1 };
        let probe = Probe { wire: Some(wire), ..Probe::default() };
        let path_of = |options: &str| path("nfs4", options);
        let told = |options: &str| {
            let all = advice(&machine(), Some(&path_of(options)), Some(&probe));
            all.iter().map(|a| format!("{}: {}", a.fact, a.advice)).collect::<Vec<_>>().join("\n")
        };
        let text = told(GOOD);
        assert!(text.contains("about 28 session slots, and they are the limit"), "{text}");
        for options in ["vers=3,rsize=32768,hard,proto=tcp", "vers=4.0,rsize=32768,hard,proto=tcp"] {
            let text = told(options);
            assert!(!text.contains("slot"), "{options}: {text}");
        }
        let slow = Probe { wire: Some(Wire { rtt_ms: 900.0, ..wire }), ..probe.clone() };
        let all = advice(&machine(), Some(&path_of(GOOD)), Some(&slow));
        assert!(all.iter().any(|a| a.topic == "slots" && a.advice.contains("not the limit")), "{all:?}");
    }

    #[test]
    fn connections_are_those_of_all_mounts_of_a_server() {
        let all = advice(&machine(), Some(&path("nfs4", "vers=4.2,rsize=1048576,hard,proto=tcp")), None);
        let advice = all.iter().find(|advice| advice.topic == "nconnect").unwrap();
        assert!(advice.change.as_ref().unwrap().contains("all mounts of that server"), "{advice:?}");
    }

    #[test]
    fn what_may_not_be_read_is_no_damage() {
        let forbidden = Some("cannot open /data/set/shard-000000.tar: Permission denied".to_owned());
        let probe = Probe { errors: 9, first_error: forbidden.clone(), forbidden, ..Probe::default() };
        let [advice] = &advice(&machine(), None, Some(&probe))[..] else { panic!("one advice") };
        assert!(
            advice.topic == "permission" && advice.change.as_ref().unwrap().contains("chmod"),
            "{advice:?}"
        );
    }

    #[test]
    fn what_went_wrong_in_the_probe_is_told() {
        let probe = Probe {
            errors: 3,
            first_error: Some("sample 7: checksum mismatch".into()),
            unanswered: 2,
            bad_shards: 1,
            first_bad_shard: Some("shard a: gone".into()),
            ..Probe::default()
        };
        assert_eq!(topics(&machine(), None, Some(&probe)), (vec!["shards", "errors"], vec!["server"]));
        assert_eq!(topics(&machine(), None, Some(&Probe::default())), (vec![], vec![]));
    }
}
