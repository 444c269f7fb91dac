//! `shade-load top`: why trainings wait, while they run.
//!
//! `monitor` reads what daemons tell and compares two looks. `screen` draws it: what waits most on
//! the first line, then daemons, jobs and ranks. `watch` looks again and again, and shows it until
//! it is ended.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::BinaryBytes;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, poll, read};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};
use shade_formats::printable::OneLine;
use shade_job::parse_time;

use crate::ask::{Answers, AskError};
use crate::control::CallError;
use crate::monitor::{
    DaemonFigures, JobFigures, RankFigures, Verdict, WAITS_MIN, WAITS_MUCH, figures, verdict,
};
use crate::status::DaemonStatus;

/// More looks are no use, and cost the daemon time.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Ranks beside each other.
const RANKS_IN_LINE: usize = 4;

/// Help below the options.
const HELP: &str = "\
The first line names the job that waits most, what it waits for, and what to do about it. Below it are
your daemons on this machine, their jobs, and each rank's ring: finished batches, and those being
filled. All rates are those between two looks. q ends it.

A trainer waits for
  storage  records that are read, or wait for their turn; in brackets what the store says, if
           it refuses requests
  workers  rows that are copied or decoded
  plan     the daemon's main thread, which draws an epoch or opens batches
  ranks    other ranks, which have not begun the epoch

\"ring full\" is the opposite: all batches are ready, and the trainer is what takes the time.

Exit codes: 0 ended by its user (also if no daemon runs), 1 a daemon does not answer, or there is no
terminal, 2 usage.";

/// `shade-load top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Top {
    /// Look twice, print the figures once, and end: for scripts, and where there is no terminal.
    #[arg(long)]
    pub once: bool,

    /// With --once: a JSON list with an object for each daemon; docs/why-it-waits.md describes it.
    #[arg(long, requires = "once")]
    pub json: bool,

    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub interval: Duration,

    /// Watch the daemon at this socket file, or at this abstract name (@shade-load/...), instead of
    /// all of yours. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Why daemons cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// A daemon does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Standard output is no terminal.
    #[error("standard output is no terminal: give --once, or --once --json")]
    NoTerminal,
    /// The terminal cannot be used, or the answer not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TopError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}

/// Shows what daemons do, until the user ends it.
///
/// # Errors
/// A daemon that was named does not answer; with `--once`, any. There is no terminal.
pub fn top(args: &Top, out: &mut impl Write) -> Result<(), TopError> {
    if args.once {
        return once(args, out);
    }
    if !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    // The terminal is as it was when this ends, also by a panic.
    let watched = watch(args, &mut ratatui::try_init()?);
    ratatui::try_restore()?;
    watched
}

/// The daemons that answer, and why others do not.
fn look(args: &Top) -> Result<(Vec<DaemonStatus>, Vec<CallError>), TopError> {
    let Answers { answers, errors } = Answers::of(args.socket.as_deref())?;
    Ok((DaemonStatus::all(&answers).map_err(AskError::Status)?, errors))
}

fn once(args: &Top, out: &mut impl Write) -> Result<(), TopError> {
    let (before, _) = look(args)?;
    std::thread::sleep(args.interval);
    let (now, errors) = look(args)?;
    errors.iter().for_each(|error| tracing::error!("{error}"));
    let failed = errors.len();
    let shown = figures(&before, &now);
    if args.json {
        // Numbers, strings and lists with string keys always have a JSON form.
        writeln!(out, "{}", serde_json::to_string(&shown).unwrap_or_default())?;
    } else {
        writeln!(out, "{}", screen(&shown, failed))?;
    }
    let all = now.len() + failed;
    if failed > 0 { Err(AskError::Some { failed, all }.into()) } else { Ok(()) }
}

fn watch(args: &Top, terminal: &mut DefaultTerminal) -> Result<(), TopError> {
    let (mut before, _) = look(args)?;
    let mut shown = (figures(&[], &before), 0);
    loop {
        terminal.draw(|frame| {
            let shown = Paragraph::new(screen(&shown.0, shown.1)).wrap(Wrap { trim: false });
            frame.render_widget(shown, frame.area());
        })?;
        if is_ended(args.interval.max(INTERVAL_MIN))? {
            return Ok(());
        }
        let (now, errors) = look(args)?;
        shown = (figures(&before, &now), errors.len());
        before = now;
    }
}

/// Waits, and tells whether a key ended it.
fn is_ended(interval: Duration) -> io::Result<bool> {
    let begun = Instant::now();
    while poll(interval.saturating_sub(begun.elapsed()))? {
        if let Event::Key(KeyEvent { code, modifiers, .. }) = read()? {
            let is_interrupt = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
            if is_interrupt || matches!(code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The picture. `unanswered`: number of daemons that do not answer.
fn screen(daemons: &[DaemonFigures], unanswered: usize) -> Text<'static> {
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
    lines.extend(job.advice.as_ref().map(|advice| Line::from(format!("    {advice}"))));
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

    /// Two looks at a daemon, a second apart, as its status says.
    const BEFORE: &str = include_str!("../tests/data/top-before.json");
    const NOW: &str = include_str!("../tests/data/top-now.json");
    const PICTURE: &str = include_str!("../tests/data/top.txt");

    fn look(json: &str) -> Vec<DaemonStatus> {
        DaemonStatus::all(&[json.to_owned()]).unwrap()
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
        let rate = |before: &[DaemonStatus]| figures(before, &look(NOW))[0].jobs[1].samples_per_s;
        let mut older = look(BEFORE);
        older[0].jobs[1].counts.counts.delivered = u64::MAX;
        assert!(rate(&older) > rate(&look(BEFORE)), "all of the job, in a second");
        older[0].uptime_ns = u64::MAX;
        assert!((rate(&older) - rate(&[])).abs() < 1e-9, "all of the daemon");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert_eq!(picture(screen(&[], 0)), "no training is attached to a daemon of yours here\n");
    }
}
