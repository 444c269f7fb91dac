//! Reads options whose values `--help` lists, and the like.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_job::{DaemonSpec, Declared, Preset, SpecError};

/// Reads a preset's name.
pub fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = Preset::ALL.iter().map(|preset| PossibleValue::new(preset.as_str()).help(preset.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Preset>())
}

/// Reads a number of epochs, or says what to write instead.
pub(super) fn parse_lookahead(text: &str) -> Result<f64, String> {
    let epochs: Option<f64> = text.parse().ok();
    epochs.filter(|epochs| *epochs >= 0.0).ok_or_else(|| "write a number of epochs, 0 or more".to_owned())
}

/// Bytes that a miss brings along; `None` for the policy's own.
pub(super) type PackageBytes = Option<u32>;

/// Reads the size of a package as a daemon does.
pub(super) fn parse_package_bytes(text: &str) -> Result<PackageBytes, SpecError> {
    let mut spec = DaemonSpec::default();
    spec.set("package_bytes", text)?;
    Ok(spec.package_bytes)
}
