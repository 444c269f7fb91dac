//! The command: examines, probes, writes.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use shade_dataset::{Address, Dataset, DatasetError};

use super::bucket;
use super::cli::{Doctor, DoctorError};
use super::compare::compare;
use super::interrupt::stopped_by_ctrl_c;
use super::machine;
use super::mountstats::reads_so_far;
use super::path_facts::{self, DatasetFacts, PathFacts};
use super::probe::{Probe, probe};
use super::report::Diagnosis;
use super::tier::{self, TierFacts};
use crate::proc::{mountinfo, text};

/// Examines this machine and the path, if one is given, and writes what that means for shade to
/// `out`.
///
/// # Errors
/// It cannot look, or was interrupted; the findings so far are written then too.
pub fn doctor(args: &Doctor, out: &mut impl Write) -> Result<(), DoctorError> {
    if let Some(folder) = &args.compare {
        return compare(args, folder, out);
    }
    let mounts = mountinfo::parse(&text("/proc/self/mountinfo"));
    let address = args.path.as_deref().map(Address::of_path).transpose().map_err(DatasetError::from)?;
    let in_bucket = match &address {
        Some(Address::Url(url)) => Some((Path::new(url.as_str()), url.clone())),
        Some(Address::Path(path)) => bucket::records_of(path).map(|url| (path.as_path(), url)),
        None => None,
    };
    let report = if let Some((place, url)) = in_bucket {
        let length = Duration::from_secs_f64(args.probe_seconds);
        let examined = bucket::look(place, &url, length)?;
        let tier = looked_at(args, examined.bucket.dataset.as_ref());
        Diagnosis::of_bucket(machine::look(&mounts), examined, tier)
    } else if let Some(Address::Path(path)) = &address {
        let (path, dataset) = path_facts::look(path, &mounts)?;
        let probed = match &dataset {
            Some(dataset) => probed(&path, dataset, args.probe_seconds)?,
            None => None,
        };
        let tier = looked_at(args, path.dataset.as_ref());
        Diagnosis::new(machine::look(&mounts), Some(path), probed, tier)
    } else {
        Diagnosis::new(machine::look(&mounts), None, None, looked_at(args, None))
    };
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    report.error().map_or(Ok(()), Err)
}

/// The tier, if it is asked for; it is measured with records of this dataset.
fn looked_at(args: &Doctor, dataset: Option<&DatasetFacts>) -> Option<TierFacts> {
    let record_bytes = dataset.map(|facts| facts.record_mean_bytes);
    args.tier.as_ref().map(|servers| tier::look(servers, record_bytes))
}

/// The probe of a dataset that has records, if one is wanted.
fn probed(path: &PathFacts, dataset: &Dataset, seconds: f64) -> Result<Option<Probe>, DoctorError> {
    let Some(facts) = path.dataset.as_ref().filter(|facts| facts.samples > 0 && seconds > 0.0) else {
        return Ok(None);
    };
    let stop = stopped_by_ctrl_c()?;
    let so_far = || {
        let mount = path.mount.as_ref().filter(|_| path.nfs.is_some())?;
        reads_so_far(&text("/proc/self/mountstats"), &mount.mount_point)
    };
    probe(dataset, facts, Duration::from_secs_f64(seconds), &stop, &so_far).map(Some)
}
