//! `--sampler`, `--rep` and so on: an option for each parameter of a plan, made from
//! [`PlanSpec::PARAMETERS`].

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use shade_job::{Parameter, PlanSpec, Preset};

/// The parameters of a plan, some of them given on the command line.
#[derive(Clone, Debug, Default)]
pub struct PlanArgs {
    plan: PlanSpec,
    given: Vec<&'static str>,
}

impl PlanArgs {
    /// The plan of `preset`, with the parameters that were given.
    pub(super) fn of(&self, preset: Preset) -> PlanSpec {
        let sampler = if self.has("sampler") { self.plan.sampler } else { preset.sampler() };
        let order = if self.has("order") { self.plan.order } else { preset.order() };
        PlanSpec { sampler, order, ..self.plan }
    }

    /// Whether the parameter of this name was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains(&name)
    }
}

impl Args for PlanArgs {
    fn augment_args(command: Command) -> Command {
        parameters().fold(command, |command, parameter| command.arg(option(parameter)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PlanArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for &Parameter { name, .. } in parameters() {
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            // A flag's text is "true".
            for text in matches.get_raw(name).into_iter().flatten() {
                let set = self.plan.set(name, &text.to_string_lossy());
                set.map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            }
            self.given.push(name);
        }
        Ok(())
    }
}

/// The parameters that a command line has.
fn parameters() -> impl Iterator<Item = &'static Parameter> {
    PlanSpec::PARAMETERS.iter().filter(|parameter| !parameter.usage.is_empty())
}

/// One parameter's option. A trace has none of its group.
fn option(parameter: &'static Parameter) -> Arg {
    let &Parameter { name, usage, default, help } = parameter;
    let help = help.trim().trim_end_matches('.');
    let (long, value) = usage.split_once(' ').unwrap_or((usage, ""));
    let option = Arg::new(name).long(long).help(help).group("training");
    if value.is_empty() {
        return option.action(ArgAction::SetTrue);
    }
    let option = option
        .value_name(value)
        .value_parser(move |text: &str| PlanSpec::default().set(name, text).map(|()| text.to_owned()));
    // Sampler and order are the preset's by default.
    let is_value = default.parse::<f64>().is_ok() || default.parse::<bool>().is_ok();
    if is_value { option.default_value(default) } else { option }
}

#[cfg(test)]
mod tests {
    use shade_job::{Order, Sampler};

    use super::*;
    use crate::Simulate;

    fn parsed(words: &str) -> Result<PlanArgs, clap::Error> {
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
