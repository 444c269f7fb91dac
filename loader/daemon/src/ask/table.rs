//! Daemons and jobs as a table, one line a job.

use indicatif::BinaryBytes;
use shade_core::JobStatus;
use shade_formats::printable::OneLine;

use crate::status::DaemonStatus;

const HEADS: [&str; 7] = ["dataset", "process", "cache", "job", "ranks", "epoch", "hit ratio"];
/// Between two columns.
const GAP: &str = "  ";
/// No value.
const NONE: &str = "-";

/// The table, with a line of heads.
pub(super) fn table(daemons: &[DaemonStatus]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    for daemon in daemons {
        if daemon.jobs.is_empty() {
            lines.push(line(daemon, None));
        }
        lines.extend(daemon.jobs.iter().map(|job| line(daemon, Some(job))));
    }
    let mut widths = [0; HEADS.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

fn line(daemon: &DaemonStatus, job: Option<&JobStatus>) -> [String; HEADS.len()] {
    let drains = if daemon.draining { " (draining)" } else { "" };
    let (used, all) = (BinaryBytes(daemon.cache_used_bytes), BinaryBytes(daemon.cache_bytes));
    let cell = |of: &dyn Fn(&JobStatus) -> String| job.map_or_else(|| NONE.to_owned(), of);
    [
        // Any text may be a name, and this goes to a terminal.
        OneLine(&daemon.dataset).to_string(),
        format!("{}{drains}", daemon.pid),
        format!("{used} of {all}"),
        cell(&|job| OneLine(&job.name).to_string()),
        cell(&|job| format!("{}/{}", job.ranks, job.ranks_here)),
        cell(&|job| job.epoch.map_or_else(|| NONE.to_owned(), |epoch| epoch.to_string())),
        cell(&|job| match job.counts.counts.accesses {
            0 => NONE.to_owned(),
            _ => format!("{:.1} %", 100.0 * job.counts.hit_ratio),
        }),
    ]
}

/// The jobs for people: "jobs a, b".
pub(super) fn names(jobs: &[JobStatus]) -> String {
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    match names[..] {
        [] => "no job".to_owned(),
        [one] => format!("job {}", OneLine(one)),
        _ => format!("jobs {}", OneLine(names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_a_line_and_a_daemon_without_jobs_one_too() {
        let busy = r#"{"pid":42,"dataset":"/data/a","cache_bytes":2097152,"cache_used_bytes":1048576,
            "draining":true,"later":1,"jobs":[
            {"name":"default","ranks":1,"world_size":4,"ranks_here":2,"admit":true,"epoch":3,
             "accesses":8,"hit_ratio":0.5},
            {"name":"default.eval","ranks":1,"world_size":1,"ranks_here":1,"admit":false,"epoch":null,
             "accesses":0,"hit_ratio":0.0}]}"#;
        let idle =
            r#"{"pid":7,"dataset":"/b","cache_bytes":1,"cache_used_bytes":0,"draining":false,"jobs":[]}"#;
        let shown = table(&[busy, idle].map(|json| DaemonStatus::parse(json).unwrap()));
        let expected = "\
dataset  process        cache                 job           ranks  epoch  hit ratio
/data/a  42 (draining)  1.00 MiB of 2.00 MiB  default       1/2    3      50.0 %
/data/a  42 (draining)  1.00 MiB of 2.00 MiB  default.eval  1/1    -      -
/b       7              0 B of 1 B            -             -      -      -
";
        assert_eq!(shown, expected);
    }
}
