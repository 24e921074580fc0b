//! The layer of the YAML file: which key may stand where, and what it may hold.

use std::sync::Arc;

use super::{
    ConfigError, Layer, Source, Sourced, Text,
    backend::Section,
    node::{Content, Node},
    table::{OPTIONS, OptionSpec, Scope, Shape},
};
use crate::nearest::nearest;

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct FileLayer {
    /// Options of the process, and those of its single provisioner or of all of them.
    pub(super) top: Entry,
    /// The list of provisioners, where there is one.
    pub(super) provisioners: Option<Vec<Entry>>,
}

/// The options in one place of the file.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) options: Layer,
    pub(super) backend: Option<Section>,
    /// Where it begins, for what is missing in it.
    pub(super) place: Option<Source>,
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// No valid YAML, an unknown key, or a key whose content has the wrong shape.
pub(super) fn layer(path: &Arc<str>, text: &str) -> Result<FileLayer, ConfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let root: Node = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        ConfigError::Syntax { path: path.clone(), line, problem: error.to_string() }
    })?;
    Reader { path, text }.document(root)
}

struct Reader<'a> {
    path: &'a Arc<str>,
    text: &'a str,
}

impl Reader<'_> {
    fn document(&self, root: Node) -> Result<FileLayer, ConfigError> {
        let mut layer = FileLayer::default();
        for (key, node) in self.map(root, "the configuration file")? {
            match key.as_str() {
                "provisioners" => layer.provisioners = Some(self.provisioners(node)?),
                _ => self.put(&mut layer.top, &key, node, top_level)?,
            }
        }
        Ok(layer)
    }

    fn provisioners(&self, node: Node) -> Result<Vec<Entry>, ConfigError> {
        let source = self.source(&node);
        let Content::List(items) = node.content else {
            return Err(ConfigError::misplaced(&source, "provisioners must be a list"));
        };
        if items.is_empty() {
            return Err(ConfigError::misplaced(&source, "provisioners must have at least one entry"));
        }
        items.into_iter().map(|item| self.entry(item)).collect()
    }

    fn entry(&self, node: Node) -> Result<Entry, ConfigError> {
        let mut entry = Entry { place: Some(self.source(&node)), ..Entry::default() };
        for (key, node) in self.map(node, "an entry of provisioners")? {
            self.put(&mut entry, &key, node, in_entry)?;
        }
        Ok(entry)
    }

    fn put(
        &self,
        entry: &mut Entry,
        key: &str,
        node: Node,
        find: fn(&str) -> Option<&'static OptionSpec>,
    ) -> Result<(), ConfigError> {
        let source = self.source(&node);
        if matches!(node.content, Content::Null) {
            return self.known(key, &source, find).map(drop);
        }
        if key == "backend" {
            entry.backend = Some(Section { value: node.into_json(), source });
            return Ok(());
        }
        let spec = self.known(key, &source, find)?;
        let text =
            text_of(spec, &node, self.text).map_err(|problem| ConfigError::misplaced(&source, problem))?;
        entry.options.insert(spec.id, Sourced { text, source });
        Ok(())
    }

    fn known(
        &self,
        key: &str,
        source: &Source,
        find: fn(&str) -> Option<&'static OptionSpec>,
    ) -> Result<&'static OptionSpec, ConfigError> {
        find(key).ok_or_else(|| {
            let known = allowed(find);
            let meant = nearest(key, known.iter().copied());
            let meant = meant.map(|name| format!(", perhaps {name:?} was meant")).unwrap_or_default();
            let problem = format!("unknown key {key:?}{meant}; allowed here: {}", known.join(", "));
            ConfigError::misplaced(source, problem)
        })
    }

    fn map(&self, node: Node, what: &str) -> Result<Vec<(String, Node)>, ConfigError> {
        let source = self.source(&node);
        match node.content {
            Content::Map(entries) => Ok(entries),
            Content::Null => Ok(Vec::new()),
            Content::Scalar(_) | Content::List(_) => {
                Err(ConfigError::misplaced(&source, format!("{what} must be a map of keys and values")))
            }
        }
    }

    fn source(&self, node: &Node) -> Source {
        Source::File { path: self.path.clone(), line: node.line }
    }
}

/// What an option of `provisioners` is called there, where that differs.
const SHORT_KEYS: [(&str, &str); 2] =
    [("name", "provisioner_name"), ("additionalNames", "additional_provisioner_names")];

/// The key of `spec` in an entry of `provisioners`.
pub(super) fn entry_key(spec: &OptionSpec) -> &'static str {
    SHORT_KEYS.iter().find(|(_, id)| *id == spec.id).map_or(spec.key, |(short, _)| short)
}

fn top_level(key: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.key == key && is_plain(key))
}

fn in_entry(key: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.scope != Scope::Process && entry_key(spec) == key && is_plain(key))
}

/// Whether a key stands by itself: what lies inside `backend` is the backend's.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && !key.contains('.')
}

fn allowed(find: fn(&str) -> Option<&'static OptionSpec>) -> Vec<&'static str> {
    let keys = OPTIONS.iter().flat_map(|spec| [spec.key, entry_key(spec)]);
    let mut keys: Vec<_> = keys.filter(|key| find(key).is_some()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn text_of(spec: &OptionSpec, node: &Node, document: &str) -> Result<Text, String> {
    let problem = |shape: &str| format!("{} must be {shape}: {}", spec.key, spec.allowed);
    match (spec.shape, &node.content) {
        (Shape::One, _) => node.text(document).map(Text::One).ok_or_else(|| problem("one value")),
        (Shape::List, Content::List(items)) => {
            let texts: Option<_> = items.iter().map(|item| item.text(document)).collect();
            texts.map(Text::Many).ok_or_else(|| problem("a list of texts"))
        }
        (Shape::Map, Content::Map(entries)) => {
            let pair = |(key, node): &(String, Node)| Some(format!("{key}={}", node.text(document)?));
            let pairs: Option<_> = entries.iter().map(pair).collect();
            pairs.map(Text::Many).ok_or_else(|| problem("a map of texts"))
        }
        (Shape::List, _) => Err(problem("a list")),
        (Shape::Map, _) => Err(problem("a map")),
    }
}
