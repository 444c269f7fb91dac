//! The command: examines, probes, writes.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shade_dataset::Dataset;

use super::cli::{Doctor, DoctorError};
use super::machine;
use super::mountstats::reads_so_far;
use super::path_facts::{self, PathFacts};
use super::probe::{Probe, probe};
use super::report::Diagnosis;
use super::tier;
use crate::proc::{mountinfo, text};

/// Examines this machine and the path, if one is given, and writes what that means for shade to
/// `out`.
///
/// # Errors
/// It cannot look, or was interrupted; the findings so far are written then too.
pub fn doctor(args: &Doctor, out: &mut impl Write) -> Result<(), DoctorError> {
    let mounts = mountinfo::parse(&text("/proc/self/mountinfo"));
    let (path, dataset) = match &args.path {
        Some(path) => {
            let (path, dataset) = path_facts::look(path, &mounts)?;
            (Some(path), dataset)
        }
        None => (None, None),
    };
    let probed = match (&path, &dataset) {
        (Some(path), Some(dataset)) => probed(path, dataset, args.probe_seconds)?,
        _ => None,
    };
    let record_bytes =
        path.as_ref().and_then(|path| path.dataset.as_ref()).map(|facts| facts.record_mean_bytes);
    let tier = args.tier.as_ref().map(|servers| tier::look(servers, record_bytes));
    let no_tier = tier.as_ref().and_then(|tier| tier.error.clone());
    let interrupted = probed.as_ref().is_some_and(|probe| probe.interrupted);
    let forbidden = probed.as_ref().and_then(|probe| probe.forbidden.clone());
    let report = Diagnosis::new(machine::look(&mounts), path, probed, tier);
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    match forbidden.map(DoctorError::Forbidden).or(no_tier.map(DoctorError::Tier)) {
        Some(error) => Err(error),
        None if interrupted => Err(DoctorError::Interrupted),
        None => Ok(()),
    }
}

/// The probe of a dataset that has records, if one is wanted.
fn probed(path: &PathFacts, dataset: &Dataset, seconds: f64) -> Result<Option<Probe>, DoctorError> {
    let Some(facts) = path.dataset.as_ref().filter(|facts| facts.samples > 0 && seconds > 0.0) else {
        return Ok(None);
    };
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| DoctorError::Probe(std::io::Error::other(error)))?;
    let so_far = || {
        let mount = path.mount.as_ref().filter(|_| path.nfs.is_some())?;
        reads_so_far(&text("/proc/self/mountstats"), &mount.mount_point)
    };
    probe(dataset, facts, Duration::from_secs_f64(seconds), &stop, &so_far).map(Some)
}
