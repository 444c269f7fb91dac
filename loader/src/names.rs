//! Policies and presets on the command line: their names, what `--help` says of each, and how far `lookahead` sees.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shade_formats::control::{Policy, Preset};

/// Reads a policy's name.
pub(crate) fn policy() -> impl TypedValueParser<Value = Policy> {
    let names =
        Policy::ALL.iter().map(|&policy| PossibleValue::new(policy.as_str()).help(about_policy(policy)));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Policy>())
}

/// Reads a preset's name.
pub(crate) fn preset() -> impl TypedValueParser<Value = Preset> {
    let names =
        Preset::ALL.iter().map(|&preset| PossibleValue::new(preset.as_str()).help(about_preset(preset)));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Preset>())
}

/// What a policy keeps.
pub(crate) fn about_policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Lookahead => {
            "What the epoch's plan uses soonest, and behind that the samples of highest importance"
        }
        Policy::App => "The samples of highest importance; of equals those that were used most (SHADE)",
        Policy::TopC => "The samples of highest importance, however often they were used",
        Policy::Lfu => {
            "The most used since they came in; the least used leaves, of equals the one unused for longest"
        }
        Policy::Lru => "The latest used: what a page cache does. Over permutations it hits nearly never",
        Policy::Fifo => "The latest read: a use changes nothing",
        Policy::Arc => {
            "The latest used and those used again, in a balance that follows what was missed soon after it left (ARC)"
        }
        Policy::Static => {
            "What came first, for good (CoorDL's MinIO): hits as often as its share of the dataset"
        }
        Policy::Icache => {
            "Nine tenths for samples of high importance; the others stand in for one another (iCACHE's two regions)"
        }
        Policy::Quiver => {
            "What the epoch has not used yet; batches take what is cached of the next ten batches (Quiver)"
        }
    }
}

/// Sampler, policy and order of a preset, and what of the published system is left out on purpose.
fn about_preset(preset: Preset) -> &'static str {
    match preset {
        Preset::Clairvoyant => {
            "pads + lookahead: draws by importance, and a cache that knows the plan (the default)"
        }
        Preset::Shade => {
            "pads + app: SHADE as its paper means it. Not its code's losses credited to other samples, hits first and \
             epochs without a miss"
        }
        Preset::Icache => {
            "iis + icache: iCACHE as its paper means it. Not its code's random tags, never-selected hardest samples and \
             substitutes counted as hits"
        }
        Preset::Coordl => "uniform + static: CoorDL. Not its second read in the first epoch",
        Preset::Quiver => {
            "uniform + quiver: Quiver. Not the samples that lose their turn in its re-implementations"
        }
        Preset::Deepio => {
            "uniform + quiver, in opportunistic order: DeepIO; every sample still comes once an epoch"
        }
        Preset::Default => "uniform + lru: what the papers call Default",
        Preset::Base => {
            "cis + lru: what the papers call Base; unimportant samples are delivered with weight 0"
        }
        Preset::Ilfu => "iis + lfu: what the iCACHE paper calls iLFU",
    }
}

/// A number of epochs.
pub(crate) fn parse_lookahead(text: &str) -> Result<f64, String> {
    let epochs: Option<f64> = text.parse().ok();
    epochs.filter(|epochs| *epochs >= 0.0).ok_or_else(|| "write a number of epochs, 0 or more".to_owned())
}
