//! The picture: what waits most on the first line, then daemons, jobs and ranks. Pure.

use indicatif::BinaryBytes;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use shade_formats::printable::OneLine;

use crate::monitor::{DaemonFigures, JobFigures, RankFigures, Verdict, WAITS_MIN, WAITS_MUCH, verdict};

/// Ranks beside each other.
const RANKS_IN_LINE: usize = 4;

/// All of it. `unanswered`: number of daemons that do not answer.
pub(super) fn screen(daemons: &[DaemonFigures], unanswered: usize) -> Text<'static> {
    let mut lines = vec![first_line(daemons)];
    if unanswered > 0 {
        lines.push(Line::from(format!("daemons that do not answer: {unanswered}")).fg(Color::Red));
    }
    for daemon in daemons {
        lines.push(Line::default());
        lines.extend(of_daemon(daemon));
        for job in &daemon.jobs {
            lines.extend(of_job(job));
        }
    }
    Text::from(lines)
}

/// The job that waits most, why, and what to do.
fn first_line(daemons: &[DaemonFigures]) -> Line<'static> {
    let Some(Verdict { waited, said, remedy }) = verdict(daemons) else {
        return Line::from("no training is attached to a daemon of yours here");
    };
    Line::from(vec![Span::styled(said, heat(waited).bold()), Span::raw(format!(": {remedy}"))])
}

fn of_daemon(daemon: &DaemonFigures) -> [Line<'static>; 2] {
    let DaemonFigures { pid, dataset, reads_submitted, reads_late, depth, workers, .. } = daemon;
    let latency = match (daemon.p50_ms, daemon.p99_ms) {
        (Some(p50), Some(p99)) => format!(", p50 {p50:.1} ms, p99 {p99:.1} ms"),
        _ => String::new(),
    };
    let late = if *reads_late > 0 { format!(", {reads_late} late") } else { String::new() };
    // Any bytes may be in a path, and this goes to a terminal.
    let dataset = OneLine(dataset);
    let (used, all) = (BinaryBytes(daemon.cache_used_bytes), BinaryBytes(daemon.cache_bytes));
    [
        Line::from(format!("{dataset}   process {pid}, up {}", clock(daemon.uptime_s))).bold(),
        Line::from(format!(
            "  cache {used} of {all}   reads {reads_submitted}, depth {depth}{latency}{late}   \
             workers busy {} of {workers}",
            percent(daemon.workers_busy)
        )),
    ]
}

fn of_job(job: &JobFigures) -> Vec<Line<'static>> {
    let epoch = job.epoch.map_or_else(
        || "no epoch yet".to_owned(),
        |epoch| format!("epoch {epoch}, {} opened", percent(job.opened_share)),
    );
    let hits = job.hit_ratio.map_or_else(|| "-".to_owned(), percent);
    let causes = job.waits.named().into_iter().filter(|(_, share)| *share >= 0.0005);
    let causes: Vec<_> = causes.map(|(cause, share)| format!("{cause} {}", percent(share))).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let waits = job.waits.all();
    let mut lines = vec![
        Line::from(format!(
            "  {}   {epoch}   {:.0} samples/s   read {:.1} MB/s   hits {hits}",
            name(job),
            job.samples_per_s,
            job.read_mb_per_s
        )),
        Line::from(vec![
            Span::styled(format!("    waits {}{causes}", percent(waits)), heat(waits)),
            Span::raw(format!("   ring full {}", percent(job.ring_full))),
        ]),
    ];
    lines.extend(job.by_rank.chunks(RANKS_IN_LINE).map(of_ranks));
    lines
}

fn of_ranks(ranks: &[RankFigures]) -> Line<'static> {
    let of_rank = |rank: &RankFigures| {
        let blocks = |count: u32, of: &str| of.repeat(count.min(16) as usize);
        let ring = blocks(rank.in_ring, "▇") + &blocks(rank.open, "▁");
        let text = format!("    rank {} {ring:<10} waits {}", rank.rank, percent(rank.waited));
        Span::styled(text, heat(rank.waited))
    };
    Line::from(ranks.iter().map(of_rank).collect::<Vec<_>>())
}

/// A job's name may be any text.
fn name(job: &JobFigures) -> String {
    OneLine(&job.name).to_string()
}

fn heat(waits: f64) -> Style {
    Style::new().fg(match waits {
        waits if waits >= WAITS_MUCH => Color::Red,
        waits if waits >= WAITS_MIN => Color::Yellow,
        _ => Color::Green,
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// 07:41:09.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::monitor::{Daemon, daemons, figures};

    /// Two looks at a daemon, a second apart, as its status told them.
    const BEFORE: &str = include_str!("../../tests/data/top-before.json");
    const NOW: &str = include_str!("../../tests/data/top-now.json");
    const PICTURE: &str = include_str!("../../tests/data/top.txt");

    fn look(json: &str) -> Vec<Daemon> {
        daemons(&[json.to_owned()]).unwrap()
    }

    /// What a terminal shows, without spaces at the ends of lines.
    fn picture(text: Text<'static>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(150, 14)).unwrap();
        terminal.draw(|frame| frame.render_widget(text, frame.area())).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(buffer.area.width));
        let line = |cells: &[ratatui::buffer::Cell]| {
            cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        let lines: Vec<_> = rows.map(|cells| line(cells).trim_end().to_owned()).collect();
        format!("{}\n", lines.join("\n").trim_end())
    }

    #[test]
    fn two_recorded_looks_make_this_picture() {
        let shown = picture(screen(&figures(&look(BEFORE), &look(NOW)), 1));
        assert_eq!(shown, PICTURE, "\n{shown}");
    }

    #[test]
    fn a_look_alone_shows_the_time_since_the_daemon_began() {
        let alone = figures(&[], &look(NOW));
        let again = figures(&look(NOW), &look(NOW));
        assert!(alone[0].jobs[1].samples_per_s > 0.0 && alone[0].jobs[1].hit_ratio.is_some());
        assert!(again[0].jobs[1].samples_per_s.abs() < 1e-12 && again[0].jobs[1].hit_ratio.is_none());
    }

    #[test]
    fn a_job_or_daemon_that_began_anew_is_not_compared_with_the_one_before() {
        let rate = |before: &[Daemon]| figures(before, &look(NOW))[0].jobs[1].samples_per_s;
        let mut older = look(BEFORE);
        older[0].jobs[1].delivered = u64::MAX;
        assert!(rate(&older) > rate(&look(BEFORE)), "all of the job, in a second");
        older[0].uptime_ns = u64::MAX;
        assert!((rate(&older) - rate(&[])).abs() < 1e-9, "all of the daemon");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert_eq!(picture(screen(&[], 0)), "no training is attached to a daemon of yours here\n");
    }
}
