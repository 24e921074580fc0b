//! The layer of flags: clap arguments made from the table of options.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::{
    Layer, Source, Sourced, Text,
    table::{OPTIONS, OptionSpec, Scope, Shape},
};

/// The values that were given as flags.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Flags(pub(super) Layer);

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(OPTIONS.iter().filter_map(|spec| Some((spec.id, given(spec, matches)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(spec: &'static OptionSpec) -> Arg {
    let action = if spec.shape == Shape::One { ArgAction::Set } else { ArgAction::Append };
    Arg::new(spec.id)
        .long(spec.id.replace('_', "-"))
        .value_name(if spec.shape == Shape::Map { "KEY=VALUE" } else { "VALUE" })
        .action(action)
        .allow_negative_numbers(true)
        // The arguments of a program may well begin with a dash.
        .allow_hyphen_values(spec.id == "exec_command")
        .help_heading(heading(spec.scope))
        .next_line_help(true)
        .help(format!(
            "{}\n[allowed: {}] [default: {}] [env: {}]",
            spec.meaning,
            spec.allowed,
            spec.default_text(),
            spec.environment()
        ))
}

const fn heading(scope: Scope) -> &'static str {
    match scope {
        Scope::Process => "The process",
        Scope::Provisioner | Scope::Single => "The provisioner",
        Scope::Backend => "The backend",
    }
}

fn given(spec: &OptionSpec, matches: &ArgMatches) -> Option<Sourced> {
    let mut texts: Vec<String> = matches.get_many(spec.id)?.cloned().collect();
    let text = match spec.shape {
        Shape::One => Text::One(texts.pop()?),
        Shape::List | Shape::Map => Text::Many(texts),
    };
    Some(Sourced { text, source: Source::Flag(spec.flag()) })
}
