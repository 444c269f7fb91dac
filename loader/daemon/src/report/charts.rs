//! What is drawn of a recording. Pure.

use super::epochs::EpochFigures;
use super::recorded::Recorded;
use super::series::Point;
use super::svg::{Chart, Figures, Form};

/// More ranks than these are not told apart by colours: the least and the most are drawn.
const RANKS_MAX: usize = 8;

/// All charts, in their order.
pub(super) fn charts(recorded: &Recorded) -> Vec<Chart> {
    let over_time = OverTime::of(&recorded.points);
    let (epochs, points) = (&recorded.epochs, &recorded.points);
    vec![
        waits(&over_time, points),
        hits(epochs, recorded.cached()),
        read_rate(&over_time, points),
        latency(&over_time, points),
        ready(&over_time, points),
        cache(&over_time, points),
        losses(epochs),
        coverage(epochs, recorded.header.samples),
    ]
}

/// The times of all points, in a unit that suits them.
struct OverTime {
    across: &'static str,
    at: Vec<f64>,
}

impl OverTime {
    fn of(points: &[Point]) -> Self {
        let end_s = points.last().map_or(0.0, |point| point.at_s);
        let (across, unit_s) = match end_s {
            end if end < 180.0 => ("time, s", 1.0),
            end if end < 3.0 * 3600.0 => ("time, min", 60.0),
            _ => ("time, h", 3600.0),
        };
        Self { across, at: points.iter().map(|point| point.at_s / unit_s).collect() }
    }

    fn chart(
        &self,
        id: &'static str,
        title: &'static str,
        says: &'static str,
        unit: &'static str,
        series: Vec<Figures>,
    ) -> Chart {
        let (across, at) = (self.across, self.at.clone());
        Chart { id, title, says, unit, across, form: Form::Lines, most: None, at, series }
    }
}

fn of_points(points: &[Point], of: impl Fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
    points.iter().map(of).collect()
}

fn named(name: &str, figures: Vec<Option<f64>>) -> Figures {
    (name.to_owned(), figures)
}

fn waits(over_time: &OverTime, points: &[Point]) -> Chart {
    let by_cause = |number: usize, name: &str| {
        let share = |point: &Point| point.job.waits.in_order().get(number).map(|(_, share)| 100.0 * share);
        named(name, of_points(points, share))
    };
    let causes = ["storage", "workers", "plan", "ranks"];
    let series = causes.into_iter().enumerate().map(|(number, name)| by_cause(number, name)).collect();
    let says =
        "Share of the time that trainers waited for batches, by what they waited for. Mean of the ranks.";
    let chart = over_time.chart("waits", "Waits", says, "%", series);
    Chart { form: Form::Stacked, most: Some(100.0), ..chart }
}

fn read_rate(over_time: &OverTime, points: &[Point]) -> Chart {
    let rate = of_points(points, |point| Some(point.job.read_mb_per_s));
    let says = "Bytes that were read for the job, from the store and from a tier.";
    over_time.chart("read-rate", "Reads", says, "MB/s", vec![named("read", rate)])
}

fn latency(over_time: &OverTime, points: &[Point]) -> Chart {
    let series = vec![
        named("p50", of_points(points, |point| point.daemon.p50_ms)),
        named("p99", of_points(points, |point| point.daemon.p99_ms)),
    ];
    let says = "Median and 99th percentile of the daemon's recent reads.";
    over_time.chart("latency", "Read latency", says, "ms", series)
}

fn ready(over_time: &OverTime, points: &[Point]) -> Chart {
    let mut ranks: Vec<u32> =
        points.iter().flat_map(|point| &point.job.by_rank).map(|rank| rank.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let in_rings = |point: &Point| point.job.by_rank.iter().map(|rank| rank.in_ring).collect::<Vec<_>>();
    let series = if ranks.len() <= RANKS_MAX {
        let of_rank = |number: u32| {
            let in_ring = |point: &Point| {
                let rank = point.job.by_rank.iter().find(|rank| rank.rank == number)?;
                Some(f64::from(rank.in_ring))
            };
            (format!("rank {number}"), of_points(points, in_ring))
        };
        ranks.into_iter().map(of_rank).collect()
    } else {
        vec![
            named(
                "fewest of a rank",
                of_points(points, |point| in_rings(point).into_iter().min().map(f64::from)),
            ),
            named(
                "most of a rank",
                of_points(points, |point| in_rings(point).into_iter().max().map(f64::from)),
            ),
        ]
    };
    let says = "Finished batches in each rank's ring, the one that its trainer uses among them.";
    over_time.chart("ready", "Ready batches", says, "batches", series)
}

fn cache(over_time: &OverTime, points: &[Point]) -> Chart {
    let share = |point: &Point| {
        Some(100.0 * point.daemon.cache_used_bytes as f64 / point.daemon.cache_bytes.max(1) as f64)
    };
    let says = "What the cache holds of its capacity.";
    let chart = over_time.chart("cache", "Cache", says, "%", vec![named("used", of_points(points, share))]);
    Chart { form: Form::Stacked, most: Some(100.0), ..chart }
}

fn over_epochs(
    id: &'static str,
    title: &'static str,
    says: &'static str,
    unit: &'static str,
    epochs: &[EpochFigures],
    series: Vec<Figures>,
) -> Chart {
    let at = epochs.iter().map(|epoch| f64::from(epoch.epoch)).collect();
    Chart { id, title, says, unit, across: "epoch", form: Form::Lines, most: None, at, series }
}

fn of_epochs(name: &str, epochs: &[EpochFigures], of: impl Fn(&EpochFigures) -> Option<f64>) -> Figures {
    named(name, epochs.iter().map(of).collect())
}

fn hits(epochs: &[EpochFigures], cached: f64) -> Chart {
    let says = "Accesses that the cache served, beside the most that a cache of this size can serve on these \
                plans: 1 - D/N + c. The first epoch may begin with an empty cache.";
    let series = vec![
        of_epochs("hits", epochs, |epoch| Some(100.0 * epoch.hit_ratio())),
        of_epochs("bound", epochs, |epoch| Some(100.0 * epoch.hits_bound(cached))),
    ];
    Chart { most: Some(100.0), ..over_epochs("hits", "Hits", says, "%", epochs, series) }
}

fn losses(epochs: &[EpochFigures]) -> Chart {
    let says = "Quantiles of the losses that the training reported.";
    let epochs = if epochs.iter().any(|epoch| epoch.losses.is_some()) { epochs } else { &[] };
    let series = vec![
        of_epochs("p10", epochs, |epoch| Some(epoch.losses?.p10)),
        of_epochs("p50", epochs, |epoch| Some(epoch.losses?.p50)),
        of_epochs("p90", epochs, |epoch| Some(epoch.losses?.p90)),
    ];
    over_epochs("losses", "Losses", says, "loss", epochs, series)
}

fn coverage(epochs: &[EpochFigures], samples: u32) -> Chart {
    let says = "Distinct samples of each epoch, and of all epochs so far, over the samples of the dataset.";
    let share = |count: u64| Some(100.0 * count as f64 / f64::from(samples.max(1)));
    let series = vec![
        of_epochs("in the epoch", epochs, |epoch| share(epoch.distinct)),
        of_epochs("so far", epochs, |epoch| share(epoch.seen)),
    ];
    Chart { most: Some(100.0), ..over_epochs("coverage", "Coverage", says, "%", epochs, series) }
}
