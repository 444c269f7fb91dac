//! `shade-load report`: a recorded training as one page that needs nothing else.
//!
//! `recorded` reads the recording: `epochs` counts its accesses and losses, `series` its looks.
//! `charts` says what is drawn of them, `svg` draws a chart, `page` writes the page, `run` is the
//! command.

mod charts;
mod epochs;
mod page;
mod recorded;
mod run;
mod series;
mod svg;

pub use run::{Report, ReportError, report};
