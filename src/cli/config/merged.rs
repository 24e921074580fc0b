//! The merged layer: for each option the strongest value there is, with its source.
//!
//! Flag before environment variable before file before default. An entry of `provisioners` is about one
//! provisioner and wins over all of these, which then are the defaults of every entry.

use std::{collections::BTreeMap, fs, sync::Arc};

use super::{
    ConfigError, Flags, Layer, Source, Sourced, Text,
    backend::{self, Section},
    environment,
    file::{self, Entry, FileLayer},
    table::{OPTIONS, OptionSpec, Scope},
    values::Parsed,
};

/// All values of the process and of each provisioner.
#[derive(Debug)]
pub(in crate::cli) struct Merged {
    pub(super) process: Values,
    pub(super) provisioners: Vec<MergedProvisioner>,
}

/// All values of one provisioner.
#[derive(Debug)]
pub(super) struct MergedProvisioner {
    pub(super) values: Values,
    pub(super) backend: Section,
}

/// The values of one place, by option.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) values: BTreeMap<&'static str, Sourced>,
    /// Where something missing should have been.
    place: String,
}

impl Merged {
    /// Merges these flags with the environment and the file that they name.
    ///
    /// # Errors
    /// A layer that can't be read, a key that has no place where it stands, or a provisioner without a
    /// backend.
    pub(in crate::cli) fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let read = |path: &str| fs::read_to_string(path);
        Self::from_layers(&flags.0, environment::layer(unicode_variables())?, read)
    }

    /// [`load`](Self::load) with its surroundings given.
    pub(super) fn from_layers(
        flags: &Layer,
        environment: Layer,
        read: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> Result<Self, ConfigError> {
        let config = flags.get("config").or_else(|| environment.get("config"));
        let file = config.map(|config| read_file(config, read)).transpose()?.unwrap_or_default();
        Layers { flags, environment: &environment, file: &file }.merge()
    }
}

/// Variables that aren't Unicode can't be ours.
fn unicode_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn read_file(
    config: &Sourced,
    read: impl FnOnce(&str) -> std::io::Result<String>,
) -> Result<FileLayer, ConfigError> {
    let path: Arc<str> = match &config.text {
        Text::One(path) => path.as_str().into(),
        Text::Many(_) => return Err(ConfigError::misplaced(&config.source, "config must be one path")),
    };
    let text = read(&path).map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
    file::layer(&path, &text)
}

struct Layers<'a> {
    flags: &'a Layer,
    environment: &'a Layer,
    file: &'a FileLayer,
}

impl Layers<'_> {
    fn merge(&self) -> Result<Merged, ConfigError> {
        let process = self.values(|scope| scope == Scope::Process, None, "the configuration".into());
        let provisioners = match &self.file.provisioners {
            None => vec![self.provisioner(None)?],
            Some(entries) => {
                self.refuse_single_options()?;
                entries.iter().map(|entry| self.provisioner(Some(entry))).collect::<Result<_, _>>()?
            }
        };
        Ok(Merged { process, provisioners })
    }

    fn provisioner(&self, entry: Option<&Entry>) -> Result<MergedProvisioner, ConfigError> {
        let place = entry
            .and_then(|entry| entry.place.as_ref())
            .map_or("the configuration".into(), Source::to_string);
        let section = entry.map_or(self.file.top.backend.as_ref(), |entry| entry.backend.as_ref());
        let backend = backend::overlay(section, |id| self.flag_or_variable(id), &place)?;
        let own = |scope| matches!(scope, Scope::Provisioner | Scope::Single);
        Ok(MergedProvisioner { values: self.values(own, entry, place), backend })
    }

    fn values(&self, scope: impl Fn(Scope) -> bool, entry: Option<&Entry>, place: String) -> Values {
        let specs = OPTIONS.iter().filter(|spec| scope(spec.scope));
        let values = specs.filter_map(|spec| Some((spec.id, self.strongest(spec, entry)?))).collect();
        Values { values, place }
    }

    fn strongest(&self, spec: &OptionSpec, entry: Option<&Entry>) -> Option<Sourced> {
        let default =
            spec.default.map(|text| Sourced { text: Text::One(text.into()), source: Source::Default });
        entry
            .and_then(|entry| entry.options.get(spec.id))
            .or_else(|| self.flag_or_variable(spec.id))
            .or_else(|| self.file.top.options.get(spec.id))
            .cloned()
            .or(default)
    }

    fn flag_or_variable(&self, id: &str) -> Option<&Sourced> {
        self.flags.get(id).or_else(|| self.environment.get(id))
    }

    /// With a list of provisioners, what is about one of them can only stand in its entry.
    fn refuse_single_options(&self) -> Result<(), ConfigError> {
        let problem =
            |key: &str| format!("{key} is about one provisioner: put it into its entry of provisioners");
        let single = OPTIONS.iter().filter(|spec| matches!(spec.scope, Scope::Single | Scope::Backend));
        for spec in single {
            let given = self.flag_or_variable(spec.id).or_else(|| self.file.top.options.get(spec.id));
            if let Some(given) = given {
                return Err(ConfigError::misplaced(&given.source, problem(spec.key)));
            }
        }
        match &self.file.top.backend {
            Some(section) => Err(ConfigError::misplaced(&section.source, problem("backend"))),
            None => Ok(()),
        }
    }
}

impl Values {
    /// The value of an option that always has one.
    pub(super) fn required<T>(&self, id: &str, parse: fn(&str) -> Parsed<T>) -> Result<T, ConfigError> {
        let spec = option(id)?;
        self.optional(id, parse)?.ok_or_else(|| ConfigError::missing(&self.place, spec))
    }

    /// The value of an option that may be absent.
    pub(super) fn optional<T>(
        &self,
        id: &str,
        parse: fn(&str) -> Parsed<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.values.get(id) else { return Ok(None) };
        let refuse =
            |rule| option(id).map(|spec| ConfigError::value(spec, value, rule)).unwrap_or_else(|error| error);
        match &value.text {
            Text::One(text) => parse(text).map(Some).map_err(refuse),
            Text::Many(_) => Err(refuse("must be one value".into())),
        }
    }

    /// The value of an option that is a list; empty where there is none.
    pub(super) fn list<T: Default>(
        &self,
        id: &str,
        parse: fn(&[String]) -> Parsed<T>,
    ) -> Result<T, ConfigError> {
        let Some(value) = self.values.get(id) else { return Ok(T::default()) };
        let texts = match &value.text {
            Text::Many(texts) => texts.as_slice(),
            Text::One(text) => std::slice::from_ref(text),
        };
        parse(texts).map_err(|rule| match option(id) {
            Ok(spec) => ConfigError::value(spec, value, rule),
            Err(error) => error,
        })
    }

    /// The error for an option whose value breaks a rule that was found later.
    pub(super) fn refuse(&self, id: &str, rule: String) -> ConfigError {
        match (option(id), self.values.get(id)) {
            (Ok(spec), Some(value)) => ConfigError::value(spec, value, rule),
            (Ok(spec), None) => {
                let absent = Sourced { text: Text::One(spec.default_text().into()), source: Source::Default };
                ConfigError::value(spec, &absent, rule)
            }
            (Err(error), _) => error,
        }
    }
}

fn option(id: &str) -> Result<&'static OptionSpec, ConfigError> {
    super::table::by_id(id)
        .ok_or_else(|| ConfigError::misplaced(&Source::Default, format!("no option is called {id}")))
}
