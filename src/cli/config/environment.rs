//! The layer of environment variables.

use super::{
    ConfigError, Layer, Source, Sourced, Text,
    table::{ENVIRONMENT_PREFIX, OPTIONS, OptionSpec, Shape},
};
use crate::{known_bugs, nearest::nearest};

/// What service links of Kubernetes put into the names of the variables they make. A Service that is
/// called like the program makes such ones under our prefix.
const SERVICE_LINK: [&str; 2] = ["SERVICE_", "PORT"];

/// Reads the layer from these variables. An empty variable counts as absent.
///
/// # Errors
/// A variable under our prefix that no option has, or a list that is not valid JSON.
pub(super) fn layer(variables: impl IntoIterator<Item = (String, String)>) -> Result<Layer, ConfigError> {
    let ours = variables.into_iter().filter(|(name, value)| {
        let switch = known_bugs::BUILT_IN && name == known_bugs::VARIABLE;
        !switch
            && name.strip_prefix(ENVIRONMENT_PREFIX).is_some_and(|rest| !is_service_link(rest))
            && !value.is_empty()
    });
    ours.map(|(name, value)| read(name, value)).collect()
}

fn is_service_link(rest: &str) -> bool {
    SERVICE_LINK.iter().any(|part| rest.starts_with(part) || rest.contains(&format!("_{part}")))
}

fn read(name: String, value: String) -> Result<(&'static str, Sourced), ConfigError> {
    let Some(spec) = OPTIONS.iter().find(|spec| spec.environment() == name) else {
        let known: Vec<String> = OPTIONS.iter().map(OptionSpec::environment).collect();
        let meant = nearest(&name, known.iter().map(String::as_str));
        let meant = meant.map(|name| format!(", perhaps {name} was meant")).unwrap_or_default();
        let problem =
            format!("no option has this name{meant}; kube-provisioner run --help lists those there are");
        return Err(ConfigError::misplaced(&Source::Environment(name), problem));
    };
    let source = Source::Environment(name);
    let text = split(spec, &value).map_err(|error| {
        let given = Sourced { text: Text::One(value.clone()), source: source.clone() };
        ConfigError::value(spec, &given, format!("begins as a JSON list of texts but isn't one: {error}"))
    })?;
    Ok((spec.id, Sourced { text, source }))
}

fn split(spec: &OptionSpec, value: &str) -> Result<Text, serde_json::Error> {
    match spec.shape {
        Shape::One => Ok(Text::One(value.to_owned())),
        Shape::List | Shape::Map if value.starts_with('[') => serde_json::from_str(value).map(Text::Many),
        Shape::List | Shape::Map => {
            Ok(Text::Many(value.split(',').map(|item| item.trim().to_owned()).collect()))
        }
    }
}
