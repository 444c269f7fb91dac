//! Looks again and again, and shows it.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, poll, read};
use ratatui::widgets::{Paragraph, Wrap};

use super::cli::{Top, TopError};
use super::screen::screen;
use crate::ask::{Answers, AskError};
use crate::control::CallError;
use crate::monitor::{Daemon, daemons, figures};

/// Shows what daemons do, until the user ends it.
///
/// # Errors
/// A daemon that was named does not answer; with `--once`, any. There is no terminal.
pub fn top(args: &Top, out: &mut impl Write) -> Result<(), TopError> {
    if args.once {
        return once(args, out);
    }
    if !std::io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    // The terminal is as it was when this ends, also by a panic.
    let watched = watch(args, &mut ratatui::try_init()?);
    ratatui::try_restore()?;
    watched
}

/// The daemons that answer, and why others do not.
fn look(args: &Top) -> Result<(Vec<Daemon>, Vec<CallError>), TopError> {
    let Answers { answers, errors } = Answers::of(args.socket.as_deref())?;
    Ok((daemons(&answers)?, errors))
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

/// More looks are no use, and cost the daemon time.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

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
fn is_ended(interval: Duration) -> std::io::Result<bool> {
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
