//! A YAML document as a tree in which each node knows its line.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

/// A node of the document.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: u64,
    /// Where its text stands in the document, in bytes; empty where that isn't known.
    written: Range<usize>,
    pub(super) content: Content,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Null,
    /// A text, number or truth value.
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The node as JSON, without its lines.
    pub(super) fn into_json(self) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Scalar(value) => value,
            Content::List(items) => items.into_iter().map(Self::into_json).collect(),
            Content::Map(entries) => entries.into_iter().map(|(key, node)| (key, node.into_json())).collect(),
        }
    }

    /// The text of a scalar in `document`. A number or truth value is text as it was written, so that
    /// `1.10` and `007` mean the same here as in a flag.
    pub(super) fn text(&self, document: &str) -> Option<String> {
        match &self.content {
            Content::Scalar(Value::String(text)) => Some(text.clone()),
            Content::Scalar(other) => {
                let written =
                    document.get(self.written.clone()).map(str::trim).filter(|text| !text.is_empty());
                Some(written.map_or_else(|| other.to_string(), str::to_owned))
            }
            Content::Null | Content::List(_) | Content::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), written: bytes(defined), content: value })
    }
}

fn bytes(location: Location) -> Range<usize> {
    let span = location.span();
    let known = span.byte_offset().zip(span.byte_len());
    let range = known.and_then(|(start, length)| {
        let start = usize::try_from(start).ok()?;
        Some(start..start.checked_add(usize::try_from(length).ok()?)?)
    });
    range.unwrap_or_default()
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, number, truth value, list or map")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Content::Map(map))
    }
}
