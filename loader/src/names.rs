//! Reads the names of policies and presets on the command line; `--help` lists them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_formats::control::{Policy, Preset};

/// Reads a policy's name.
pub(crate) fn policy() -> impl TypedValueParser<Value = Policy> {
    let names = Policy::ALL.iter().map(|policy| PossibleValue::new(policy.as_str()).help(policy.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Policy>())
}

/// Reads a preset's name.
pub(crate) fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = Preset::ALL.iter().map(|preset| PossibleValue::new(preset.as_str()).help(preset.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Preset>())
}
