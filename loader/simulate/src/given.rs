//! Options of a command line made from declarations: `--sampler`, `--rep` and so on from those of a
//! plan, `--cache`, `--depth` and so on from those of a daemon.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;
use shade_job::{DaemonSpec, Declared, Parameter, PlanSpec, Preset, SpecError};

/// What a preset decides where it is not given.
const OF_THE_PRESET: [&str; 4] = ["sampler", "order", "policy", "cache"];

/// The parameters of a document, some of them given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Given<D> {
    spec: D,
    given: Vec<&'static str>,
}

impl Given<PlanSpec> {
    /// The plan of `preset`, with the parameters that were given.
    pub(super) fn of(&self, preset: Preset) -> PlanSpec {
        let sampler = if self.has("sampler") { self.spec.sampler } else { preset.sampler() };
        let order = if self.has("order") { self.spec.order } else { preset.order() };
        PlanSpec { sampler, order, ..self.spec }
    }
}

impl Given<DaemonSpec> {
    /// The settings of a daemon for `preset`, with the parameters that were given.
    #[must_use]
    pub fn of(self, preset: Preset) -> DaemonSpec {
        let policy = if self.has("policy") { self.spec.policy } else { preset.policy() };
        let cache = if self.has("cache") { self.spec.cache } else { preset.cache() };
        DaemonSpec { policy, cache, ..self.spec }
    }
}

impl<D: Declared> Given<D> {
    /// Sets a parameter that was not given.
    ///
    /// # Errors
    /// It cannot have this value.
    pub fn set_if_missing(&mut self, name: &'static str, text: &str) -> Result<(), SpecError> {
        if !self.has(name) {
            self.spec.set(name, text)?;
            self.given.push(name);
        }
        Ok(())
    }
}

impl<D> Given<D> {
    /// Whether the parameter of this name was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains(&name)
    }
}

impl<D: Declared> Args for Given<D> {
    fn augment_args(command: Command) -> Command {
        parameters::<D>().fold(command, |command, parameter| command.arg(option::<D>(parameter)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<D: Declared> FromArgMatches for Given<D> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self { spec: D::default(), given: Vec::new() };
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for &Parameter { name, .. } in parameters::<D>() {
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            // A flag's text is "true".
            for text in matches.get_raw(name).into_iter().flatten() {
                let set = self.spec.set(name, &text.to_string_lossy());
                set.map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            }
            self.given.push(name);
        }
        Ok(())
    }
}

/// The parameters that a command line has.
fn parameters<D: Declared>() -> impl Iterator<Item = &'static Parameter> {
    D::PARAMETERS.iter().filter(|parameter| !parameter.usage.is_empty())
}

/// One parameter's option. A trace has none of its group.
fn option<D: Declared>(parameter: &'static Parameter) -> Arg {
    let &Parameter { name, help, choices, .. } = parameter;
    let help = help.trim().trim_end_matches('.');
    let option = Arg::new(name).long(parameter.option()).help(help).group(D::WHAT);
    if parameter.value_name().is_empty() {
        return option.action(ArgAction::SetTrue);
    }
    let option = option.value_name(parameter.value_name());
    let option = if choices.is_empty() {
        option.value_parser(move |text: &str| D::default().set(name, text).map(|()| text.to_owned()))
    } else {
        let names = choices.iter().map(|&(name, about)| PossibleValue::new(name).help(about));
        option.value_parser(PossibleValuesParser::new(names).map(|name| name))
    };
    match default::<D>(name) {
        Some(default) if !OF_THE_PRESET.contains(&name) => option.default_value(default),
        _ => option,
    }
}

/// The default of a parameter as a command line has it; `None` for nothing at all.
fn default<D: Declared>(name: &str) -> Option<String> {
    let document = serde_json::to_value(D::default()).unwrap_or_default();
    match document.get(name)? {
        Value::String(text) if text == "none" => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if name == "linger" => Some(format!("{}s", number.as_f64()?)),
        Value::Number(number) if number.is_f64() => Some(number.as_f64()?.to_string()),
        value => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use shade_job::{Order, Sampler};

    use super::*;
    use crate::Simulate;

    fn parsed(words: &str) -> Result<Given<PlanSpec>, clap::Error> {
        let command = Simulate::augment_args(Command::new("simulate").no_binary_name(true));
        let matches = command.try_get_matches_from(words.split_whitespace())?;
        Ok(Simulate::from_arg_matches(&matches)?.training.plan)
    }

    #[test]
    fn what_is_given_replaces_what_a_preset_has() {
        let none = parsed("--samples 9").unwrap();
        assert_eq!(none.of(Preset::Deepio), PlanSpec { order: Order::Opportunistic, ..PlanSpec::default() });
        let some = parsed("--samples 9 --sampler pads --hit-cap 1 --draw-ahead --seed 7").unwrap();
        let (sampler, order) = (Sampler::Pads, Order::Opportunistic);
        let expected =
            PlanSpec { sampler, order, hit_cap: 1.0, draw_ahead: true, seed: 7, ..PlanSpec::default() };
        assert_eq!(some.of(Preset::Deepio), expected);
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_its_option() {
        for bad in ["--hit-cap 2", "--cover 1.5", "--sampler random", "--rep nan"] {
            let text = parsed(&format!("--samples 9 {bad}")).unwrap_err().to_string();
            assert!(text.contains(bad.split(' ').next().unwrap()), "{bad}: {text}");
        }
        assert!(parsed("--samples 9 --pace=1").is_err(), "a flag has no value");
        assert!(parsed("--trace file --hit-cap 1").is_err(), "a trace has its own plans");
    }
}
