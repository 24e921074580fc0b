//! The merged configuration as a file: valid YAML that says beside each value where it comes from. Only the
//! environment of a program is not shown.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    Sourced, Text,
    file::entry_key,
    merged::{Merged, MergedProvisioner, Values},
    table::{OPTIONS, OptionSpec, Shape},
};

impl Merged {
    /// Renders the configuration. Read as a configuration file, it means the same.
    pub(in crate::cli) fn to_yaml(&self) -> String {
        let mut lines = render(&self.process, "", |spec| spec.key);
        lines.push_str("provisioners:\n");
        self.provisioners.iter().for_each(|provisioner| lines.push_str(&entry(provisioner)));
        lines
    }
}

fn entry(provisioner: &MergedProvisioner) -> String {
    let options = render(&provisioner.values, "    ", entry_key);
    let backend = &provisioner.backend;
    format!("  -\n{options}    backend: {} # {}\n", backend.shown(), backend.source)
}

fn render(values: &Values, indent: &str, key: fn(&'static OptionSpec) -> &'static str) -> String {
    let known = OPTIONS.iter().filter_map(|spec| Some((spec, values.values.get(spec.id)?)));
    known.filter(|(spec, _)| !spec.key.is_empty()).fold(String::new(), |mut lines, (spec, value)| {
        // Writing to a String can't fail.
        let _ = writeln!(lines, "{indent}{}: {} # {}", key(spec), json(spec, value), value.source);
        lines
    })
}

/// The value as JSON, which is YAML too, whatever is in it.
fn json(spec: &OptionSpec, value: &Sourced) -> Value {
    match (&value.text, spec.shape) {
        (Text::One(text), _) => Value::from(text.clone()),
        (Text::Many(texts), Shape::Map) => texts
            .iter()
            .map(|text| text.split_once('=').unwrap_or((text, "")))
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .collect(),
        (Text::Many(texts), _) => Value::from(texts.clone()),
    }
}
