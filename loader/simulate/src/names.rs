//! Reads `--preset` and `--lookahead`, which `serve` has, too; `--help` lists their values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_job::Preset;

/// Reads a preset's name.
pub fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = Preset::ALL.iter().map(|preset| PossibleValue::new(preset.as_str()).help(preset.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Preset>())
}

/// Reads a number of epochs.
///
/// # Errors
/// What to write instead.
pub fn parse_lookahead(text: &str) -> Result<f64, String> {
    let epochs: Option<f64> = text.parse().ok();
    epochs.filter(|epochs| *epochs >= 0.0).ok_or_else(|| "write a number of epochs, 0 or more".to_owned())
}
