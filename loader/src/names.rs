//! Reads the values of options that are names, and of `--lookahead`; `--help` lists them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_formats::control::{Policy, Preset};
use shade_images::JpegDecoder;

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

/// Reads the name of a JPEG decoder.
pub(crate) fn jpeg() -> impl TypedValueParser<Value = JpegDecoder> {
    let names = JpegDecoder::ALL.map(|jpeg| PossibleValue::new(jpeg.as_str()).help(about_jpeg(jpeg)));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<JpegDecoder>())
}

/// What decodes JPEGs.
fn about_jpeg(jpeg: JpegDecoder) -> &'static str {
    match jpeg {
        JpegDecoder::Auto => "shade's own decoder for baseline JPEGs, libjpeg-turbo for all others",
        JpegDecoder::Turbo => "libjpeg-turbo for all",
    }
}

/// A number of epochs.
pub(crate) fn parse_lookahead(text: &str) -> Result<f64, String> {
    let epochs: Option<f64> = text.parse().ok();
    epochs.filter(|epochs| *epochs >= 0.0).ok_or_else(|| "write a number of epochs, 0 or more".to_owned())
}
