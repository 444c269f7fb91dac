//! The guest for scenarios: the dataset, the server's folder, the client's mount, the link, the
//! server.

use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use shade_formats::index::{Entry, Index};
use shade_formats::{SampleId, ShardId};
use shade_reads::linux_version;
use shade_tests::{Packed, Source, png};

/// The exported folder in the server's own file system.
const SERVER: &str = "/srv/nfs";
/// The same folder through NFS.
const CLIENT: &str = "/mnt/nfs";
/// Records of at most 4 KiB.
pub(crate) const SMALL: u32 = 256;
/// Records of many blocks: 24 to 100 KiB.
const LARGE: u32 = 12;

/// A guest and the dataset for its server.
pub(crate) struct World {
    /// The dataset, outside the server's folder. Small records have the ids below [`SMALL`].
    pub packed: Packed,
    /// Its index.
    pub index: Arc<Index>,
    /// NFS' major version, 3 or 4.
    pub nfs: u32,
    release: String,
}

/// A copy of the dataset on the server. Scenarios with a copy each share nothing in the client's
/// caches.
pub(crate) struct Place {
    /// Its folder in the server's file system.
    pub server: PathBuf,
    /// The same folder through NFS.
    pub client: PathBuf,
}

impl World {
    pub(crate) fn create() -> Self {
        let small = (0..SMALL).map(|number| ("ant", 0, number, 20 + number % 17));
        let large = (0..LARGE).map(|number| ("bee", 1, number, 90 + 8 * number));
        let source = |(class, label, number, side): (&str, u32, u32, u32)| {
            let bytes = png(side, side, u64::from(1000 * label + number));
            Source { path: format!("{class}/{number:03}.png"), label, bytes }
        };
        let packed = Packed::of(small.chain(large).map(source).collect());
        let index = Arc::new(packed.index());
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.contains(&format!(" {CLIENT} nfs"))).unwrap();
        let nfs = if mount.contains(" nfs4 ") { 4 } else { 3 };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned();
        Self { packed, index, nfs, release }
    }

    /// Whether io_uring hands every read of an NFS file to its workers: Linux 6.5 to 7.1.
    pub(crate) fn reads_go_to_workers(&self) -> bool {
        ((6, 5)..(7, 2)).contains(&linux_version(&self.release).unwrap())
    }

    /// Puts a copy of the dataset on the server.
    pub(crate) fn place(&self, name: &str) -> Place {
        let place = Place { server: Path::new(SERVER).join(name), client: Path::new(CLIENT).join(name) };
        fs::create_dir(&place.server).unwrap();
        for file in fs::read_dir(&self.packed.dataset).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), place.server.join(file.file_name())).unwrap();
        }
        place
    }

    /// All ids.
    pub(crate) fn all(&self) -> Vec<u32> {
        (0..self.index.len()).collect()
    }

    pub(crate) fn entry(&self, sample: u32) -> Entry {
        self.index.entry(SampleId(sample)).unwrap()
    }

    /// The samples of a shard in the order in which they lie there.
    pub(crate) fn samples_of(&self, shard: ShardId) -> Vec<u32> {
        let mut samples = self.all();
        samples.retain(|&sample| self.entry(sample).shard == shard);
        samples.sort_by_key(|&sample| self.entry(sample).offset);
        samples
    }

    /// The shard with the most records.
    pub(crate) fn fullest_shard(&self) -> ShardId {
        let shards = (0..self.index.shard_count()).map(ShardId);
        shards.max_by_key(|&shard| self.index.shard(shard).unwrap().records).unwrap()
    }

    pub(crate) fn shard_name(&self, shard: ShardId) -> &str {
        self.index.shard(shard).unwrap().name
    }

    /// Makes the server close files that it holds open for NFSv3 clients. It holds a file for a
    /// while after each read, and a removed file stays readable for that time. Files opened by
    /// NFSv4 clients stay open.
    pub(crate) fn close_idle_files(&self) {
        on_server(&["exportfs", "-f"]);
    }

    /// Stops the server like a crash: clients are not told.
    pub(crate) fn stop_server(&self) {
        fs::write("/proc/fs/nfsd/threads", "0").unwrap();
    }

    pub(crate) fn start_server(&self) {
        let unwanted = if self.nfs == 4 { "3" } else { "4" };
        on_server(&["rpc.nfsd", "--no-nfs-version", unwanted, "8"]);
    }
}

impl Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, shards) = (self.index.len(), self.index.shard_count());
        write!(f, "Linux {}, NFSv{}, {records} records in {shards} shards", self.release, self.nfs)
    }
}

/// READ requests of the client so far that were answered, over all files.
pub(crate) fn read_rpcs() -> u64 {
    let stats = fs::read_to_string("/proc/self/mountstats").unwrap();
    let mount =
        stats.split("\ndevice ").find(|part| part.contains(&format!(" mounted on {CLIENT} "))).unwrap();
    let count = |line: &str| {
        let rest = line.trim().strip_prefix("READ: ").or_else(|| line.trim().strip_prefix("READ_PLUS: "))?;
        rest.split(' ').next().unwrap().parse::<u64>().ok()
    };
    mount.lines().filter_map(count).sum()
}

/// READ requests that the server has had and the client has no answer to.
pub(crate) fn reads_in_flight() -> u64 {
    // Process 1 is in the server's network. Its counts come first, so that none is counted that is
    // answered in between.
    let stats = fs::read_to_string("/proc/1/net/rpc/nfsd").unwrap();
    let count = |line: &str| -> Option<u64> {
        let (kind, counts) = line.split_once(' ')?;
        // By their numbers in the protocols: READ, and READ_PLUS.
        let numbers: &[usize] = match kind {
            "proc3" => &[6],
            "proc4ops" => &[25, 68],
            _ => return None,
        };
        // The first is the number of counts.
        let counts: Vec<u64> = counts.split(' ').skip(1).map(|count| count.parse().unwrap()).collect();
        Some(numbers.iter().map(|&number| counts.get(number).copied().unwrap_or_default()).sum())
    };
    let had: u64 = stats.lines().filter_map(count).sum();
    had.saturating_sub(read_rpcs())
}

/// A change of the link from server to client, undone when dropped.
pub(crate) struct Link(());

impl Link {
    /// A link with this round-trip time on top of its own.
    pub(crate) fn delayed(rtt: Duration) -> Self {
        Self::with(&format!("delay {}us", rtt.as_micros()))
    }

    /// A link with these settings of netem.
    pub(crate) fn with(netem: &str) -> Self {
        let command = "tc qdisc replace dev srv0 root netem limit 100000".split(' ').chain(netem.split(' '));
        on_server(&command.collect::<Vec<_>>());
        Self(())
    }

    /// Packets lost so far.
    pub(crate) fn dropped(&self) -> u64 {
        let shown = on_server(&["tc", "-s", "qdisc", "show", "dev", "srv0"]);
        let rest = shown.split("dropped ").nth(1).unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        on_server(&["tc", "qdisc", "del", "dev", "srv0", "root"]);
    }
}

/// Runs a command in the server's network and returns its output.
fn on_server(command: &[&str]) -> String {
    let output = Command::new("nsenter").args(["-t", "1", "-n"]).args(command).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
