//! The section of the backend: from the file as it is, with flags and environment laid over it.
//!
//! What the section may hold is the backend's business (`backends`); here are only its outer shape and the
//! few options that have flags.

use std::fmt;

use serde_json::{Map, Value};

use super::{
    ConfigError, Source, Sourced, Text,
    table::{self, OPTIONS, OptionSpec, Scope, Shape},
    values,
};

/// A backend section as it was written, and where.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) value: Value,
    pub(super) source: Source,
}

impl Section {
    /// The section with every value of a program's environment hidden: those may be secrets.
    pub(super) fn shown(&self) -> Value {
        let mut shown = self.value.clone();
        let environment = shown.pointer_mut("/exec/env").and_then(Value::as_object_mut);
        for value in environment.into_iter().flat_map(Map::values_mut) {
            *value = Value::from(HIDDEN);
        }
        shown
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shown(), self.source)
    }
}

/// What stands in place of what is not shown.
const HIDDEN: &str = "(hidden)";

/// Lays the backend options that `given` finds in flags and environment over the file's section.
///
/// # Errors
/// No backend at all, more than one, or an option of another backend than the chosen one.
pub(super) fn overlay<'a>(
    file: Option<&Section>,
    given: impl Fn(&'static str) -> Option<&'a Sourced>,
    place: &str,
) -> Result<Section, ConfigError> {
    let (kind, mut fields, mut source) = start(file, given("backend"), place)?;
    for (spec, name) in backend_options() {
        let Some(value) = given(spec.id) else { continue };
        let (owner, field) = name;
        if owner != kind {
            return Err(ConfigError::value(spec, value, format!("has no meaning for the backend {kind}")));
        }
        fields.insert(field.to_owned(), json(spec, value)?);
        source = value.source.clone();
    }
    Ok(Section { value: Value::Object(Map::from_iter([(kind, Value::Object(fields))])), source })
}

/// The options of backends, each with the backend and the field that it fills.
fn backend_options() -> impl Iterator<Item = (&'static OptionSpec, (&'static str, &'static str))> {
    OPTIONS
        .iter()
        .filter(|spec| spec.scope == Scope::Backend)
        .filter_map(|spec| Some((spec, spec.key.strip_prefix("backend.")?.split_once('.')?)))
}

type Start = (String, Map<String, Value>, Source);

fn start(file: Option<&Section>, chosen: Option<&Sourced>, place: &str) -> Result<Start, ConfigError> {
    let from_file = file.map(sole_entry).transpose()?;
    match (chosen, from_file) {
        (Some(chosen), from_file) => {
            let kind = known_kind(chosen)?;
            let same = from_file.filter(|(name, ..)| *name == kind);
            Ok((kind, same.map(|(_, fields, _)| fields).unwrap_or_default(), chosen.source.clone()))
        }
        (None, Some(entry)) => Ok(entry),
        (None, None) => {
            let spec = table::by_id("backend");
            Err(spec.map_or_else(
                || ConfigError::misplaced(&Source::Default, "no option backend"),
                |spec| ConfigError::missing(place, spec),
            ))
        }
    }
}

fn sole_entry(section: &Section) -> Result<Start, ConfigError> {
    let shape = "backend must be a map with one key, the kind of backend, and a map of its options under it";
    let refuse = || ConfigError::misplaced(&section.source, shape);
    let entries = section.value.as_object().filter(|map| map.len() == 1).ok_or_else(refuse)?;
    let (kind, fields) = entries.iter().next().ok_or_else(refuse)?;
    let fields = match fields {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        _ => return Err(refuse()),
    };
    Ok((kind.clone(), fields, section.source.clone()))
}

fn known_kind(chosen: &Sourced) -> Result<String, ConfigError> {
    let Text::One(kind) = &chosen.text else {
        return Err(ConfigError::misplaced(&chosen.source, "backend must be one value"));
    };
    let known = backend_options().any(|(_, (owner, _))| owner == kind);
    match table::by_id("backend") {
        Some(spec) if !known => Err(ConfigError::value(spec, chosen, format!("must be {}", spec.allowed))),
        _ => Ok(kind.clone()),
    }
}

fn json(spec: &OptionSpec, value: &Sourced) -> Result<Value, ConfigError> {
    match (&value.text, spec.shape) {
        (Text::One(text), _) if is_number(spec) => text
            .parse::<u32>()
            .map(Value::from)
            .map_err(|_| ConfigError::value(spec, value, format!("must be {}", spec.allowed))),
        (Text::One(text), _) => Ok(Value::from(text.clone())),
        (Text::Many(pairs), Shape::Map) => {
            let pairs = values::pairs(pairs).map_err(|rule| {
                let hidden = Sourced { text: Text::One(HIDDEN.into()), source: value.source.clone() };
                ConfigError::value(spec, &hidden, rule)
            })?;
            Ok(pairs.into_iter().map(|(name, text)| (name, Value::from(text))).collect())
        }
        (Text::Many(texts), _) => Ok(Value::from(texts.clone())),
    }
}

fn is_number(spec: &OptionSpec) -> bool {
    matches!(spec.id, "directory_uid" | "directory_gid")
}
