//! Values of options that are names, which `--help` lists, and defaults.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_images::JpegDecoder;
use shade_job::Policy;
use shade_reads::{EngineChoice, IoMode};

/// Default of `--cache`.
pub(crate) const CACHE_DEFAULT: &str = "20%";

/// Default of `--socket`: what SHADE_SOCKET names. Empty is as if it were not set.
///
/// Not by clap, which would see it beside a dataset or `--all` as a second target.
#[must_use]
pub fn default_socket() -> Option<PathBuf> {
    std::env::var_os("SHADE_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Reads a policy's name.
pub(crate) fn policy() -> impl TypedValueParser<Value = Policy> {
    let names = Policy::ALL.iter().map(|policy| PossibleValue::new(policy.as_str()).help(policy.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Policy>())
}

/// Reads the name of a JPEG decoder.
pub(crate) fn jpeg() -> impl TypedValueParser<Value = JpegDecoder> {
    let names = JpegDecoder::ALL.map(|jpeg| PossibleValue::new(jpeg.as_str()).help(about_jpeg(jpeg)));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<JpegDecoder>())
}

/// Reads the name of a read engine.
pub(crate) fn engine() -> impl TypedValueParser<Value = EngineChoice> {
    let find = |name: String| EngineChoice::ALL.into_iter().find(|engine| engine.as_str() == name);
    PossibleValuesParser::new(EngineChoice::ALL.map(EngineChoice::as_str))
        .map(move |name| find(name).unwrap_or_default())
}

/// Reads the name of an I/O mode.
pub(crate) fn io() -> impl TypedValueParser<Value = IoMode> {
    let find = |name: String| IoMode::ALL.into_iter().find(|mode| mode.as_str() == name);
    PossibleValuesParser::new(IoMode::ALL.map(IoMode::as_str)).map(move |name| find(name).unwrap_or_default())
}

/// The help line of a JPEG decoder.
fn about_jpeg(jpeg: JpegDecoder) -> &'static str {
    match jpeg {
        JpegDecoder::Auto => "shade's own decoder for baseline JPEGs, libjpeg-turbo for all others",
        JpegDecoder::Turbo => "libjpeg-turbo for all",
    }
}
