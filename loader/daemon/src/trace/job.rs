//! Which job is recorded.

use super::error::TraceError;
use crate::ask::DaemonStatus;
use crate::control::{Address, Call};

/// The first training on a dataset has this name, unless it has another.
const FIRST_JOB: &str = "default";

/// The job `given`, or the only one that trains, or the first that will.
pub(super) fn job_to_record(given: Option<&str>, address: &Address) -> Result<String, TraceError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    choose(&DaemonStatus::parse(&Call::connect(address)?.status()?)?)
}

fn choose(daemon: &DaemonStatus) -> Result<String, TraceError> {
    let mut candidates: Vec<_> = daemon.jobs.iter().filter(|job| job.admit).collect();
    if candidates.is_empty() {
        candidates = daemon.jobs.iter().collect();
    }
    match candidates[..] {
        [] => Ok(FIRST_JOB.to_owned()),
        [only] => Ok(only.name.clone()),
        _ => {
            let names = daemon.jobs.iter().map(|job| job.name.clone()).collect();
            Err(TraceError::SeveralJobs { names })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_training_is_recorded_and_several_are_named() {
        let chosen = |jobs: &[(&str, bool)]| {
            let job = |(name, admit): &(&str, bool)| {
                format!(
                    r#"{{"name":"{name}","ranks":1,"world_size":1,"ranks_here":1,"admit":{admit},"epoch":null,"accesses":0,"hit_ratio":0.0}}"#
                )
            };
            let jobs: Vec<_> = jobs.iter().map(job).collect();
            let json = format!(
                r#"{{"pid":7,"dataset":"/d","cache_bytes":2,"cache_used_bytes":1,"draining":false,"jobs":[{}]}}"#,
                jobs.join(",")
            );
            choose(&DaemonStatus::parse(&json).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&[]), Ok("default".to_owned()));
        assert_eq!(chosen(&[("a.eval", false)]), Ok("a.eval".to_owned()));
        assert_eq!(chosen(&[("a.eval", false), ("b", true)]), Ok("b".to_owned()));
        let error = chosen(&[("a", true), ("b.eval", false), ("c", true)]).unwrap_err();
        assert!(error.contains("--job: a, b.eval, c"), "{error}");
    }
}
