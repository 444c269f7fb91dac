//! The page. Every text of a recording is escaped, and nothing is loaded from anywhere. Pure.

use super::charts::charts;
use super::recorded::Recorded;
use super::series::whole;
use super::svg::{Chart, escape, figure};
use crate::monitor::{Place, Verdict, WAITS_MIN, WAITS_MUCH};

/// Colours and layout, for light and dark.
const STYLE: &str = include_str!("page.css");
/// The browser itself keeps the page from loading anything, and from running a script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page of a recorded training.
pub(super) fn page(recorded: &Recorded) -> String {
    let job = escape(&recorded.header.job);
    let sections: String = charts(recorded).iter().map(Chart::section).collect();
    let (verdict, facts, footer) = (verdict(recorded), facts(recorded), footer(recorded));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{job}: report of a training</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{verdict}\
         {facts}{sections}{footer}</body>\n</html>\n"
    )
}

/// The first line: what `top` says.
fn verdict(recorded: &Recorded) -> String {
    let Some(whole) = whole(&recorded.points) else {
        return "<h1 class=\"verdict some\">Why the training waited is not in this recording: it is too short, \
                or of an older version</h1>\n"
            .to_owned();
    };
    let header = &recorded.header;
    let place = Place::of("", &header.dataset, header.cache_bytes);
    let Verdict { waited, said, remedy } = Verdict::of(&header.job, &whole.waits, whole.remedy, &place);
    let heat = match waited {
        waited if waited >= WAITS_MUCH => "much",
        waited if waited >= WAITS_MIN => "some",
        _ => "good",
    };
    format!("<h1 class=\"verdict {heat}\"><b>{}</b>: {}</h1>\n", escape(&said), escape(&remedy))
}

fn facts(recorded: &Recorded) -> String {
    let header = &recorded.header;
    let (accesses, hits) =
        recorded.epochs.iter().fold((0, 0), |(all, hits), epoch| (all + epoch.accesses, hits + epoch.hits));
    let mut facts = vec![
        escape(&header.dataset),
        format!("{} samples", header.samples),
        format!("{} epochs", recorded.epochs.len()),
        format!("{accesses} accesses, {} % hits", figure(100.0 * hits as f64 / accesses.max(1) as f64)),
        format!("policy {}", escape(&header.policy)),
        format!(
            "cache {} MB, {} % of the dataset",
            figure(header.cache_bytes as f64 / 1e6),
            figure(100.0 * header.cache_bytes as f64 / recorded.charged_bytes.max(1) as f64)
        ),
    ];
    if let Some(job) = &recorded.job {
        facts.push(format!("batches of {}, ranks: {}", job.batch_size, job.world_size));
    }
    if let Some(whole) = whole(&recorded.points) {
        facts.push(format!(
            "{} s watched: {} samples/s, {} MB/s read",
            figure(whole.seconds),
            figure(whole.samples_per_s),
            figure(whole.read_mb_per_s)
        ));
    }
    format!("<p class=\"facts\">{}</p>\n", facts.join(" · "))
}

fn footer(recorded: &Recorded) -> String {
    let header = &recorded.header;
    let mut notes = vec![format!(
        "Made from {} by shade-load {}, recorded from shade-load {}. Reads: {}.",
        escape(&recorded.path.display().to_string()),
        env!("CARGO_PKG_VERSION"),
        escape(&header.shade_load),
        escape(&header.engine)
    )];
    if recorded.under_way {
        notes.push("The training was under way when the recording began.".to_owned());
    }
    if recorded.lost > 0 {
        notes.push(format!("{} lines are missing, as the recorder was too slow.", recorded.lost));
    }
    format!("<footer><p>{}</p></footer>\n", notes.join(" "))
}
