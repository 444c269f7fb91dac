//! Reads the values of options that are names; `--help` lists them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_formats::control::Policy;
use shade_images::JpegDecoder;

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

/// What decodes JPEGs.
fn about_jpeg(jpeg: JpegDecoder) -> &'static str {
    match jpeg {
        JpegDecoder::Auto => "shade's own decoder for baseline JPEGs, libjpeg-turbo for all others",
        JpegDecoder::Turbo => "libjpeg-turbo for all",
    }
}
