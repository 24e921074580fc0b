//! As much of JSON Schema (2020-12) as our own schemas use, for tests of more than one package (`#[path]`). A word
//! that it does not know is a flaw, so nothing of a schema goes unchecked.

use serde_json::Value;

/// Words that demand nothing of a value.
const SILENT: [&str; 5] = ["$schema", "$defs", "title", "description", "properties"];

/// What of `value` is not as `schema` demands, each with its place.
pub(crate) fn flaws(schema: &Value, value: &Value) -> Vec<String> {
    let mut flaws = Vec::new();
    check(&Place { root: schema, path: "$".to_owned() }, schema, value, &mut flaws);
    flaws
}

struct Place<'a> {
    root: &'a Value,
    path: String,
}

impl Place<'_> {
    fn below(&self, name: impl std::fmt::Display) -> Self {
        Self { root: self.root, path: format!("{}.{name}", self.path) }
    }
}

fn check(place: &Place<'_>, schema: &Value, value: &Value, flaws: &mut Vec<String>) {
    let Some(words) = schema.as_object() else {
        return flaws.push(format!("{}: the schema is no object", place.path));
    };
    for (word, demand) in words {
        if !holds(place, schema, word, demand, value, flaws) {
            flaws.push(format!("{}: {value} is not as {word} {demand} has it", place.path));
        }
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            check(&place.below(name), inner, value, flaws);
        }
    }
}

/// Whether `value` is as one word of the schema demands. Flaws of its parts are added where they are.
fn holds(
    place: &Place<'_>,
    schema: &Value,
    word: &str,
    demand: &Value,
    value: &Value,
    flaws: &mut Vec<String>,
) -> bool {
    match word {
        _ if SILENT.contains(&word) => true,
        "$ref" => refer(place, demand, value, flaws),
        "anyOf" => items(demand).any(|one| {
            let mut inner = Vec::new();
            check(place, one, value, &mut inner);
            inner.is_empty()
        }),
        "type" => demand.as_array().map_or(is_of(demand, value), |_| items(demand).any(|t| is_of(t, value))),
        "enum" => items(demand).any(|one| one == value),
        "const" => demand == value,
        "minimum" => value.as_f64().is_none_or(|number| Some(number) >= demand.as_f64()),
        "format" if demand == "date-time" => {
            value.as_str().is_none_or(|text| text.parse::<jiff::Timestamp>().is_ok())
        }
        "required" => items(demand).all(|name| name.as_str().is_some_and(|name| value.get(name).is_some())),
        "additionalProperties" if demand == false => {
            let known = |name: &String| schema["properties"].get(name).is_some();
            value.as_object().is_none_or(|fields| fields.keys().all(known))
        }
        "items" => {
            let parts = value.as_array().into_iter().flatten().enumerate();
            parts.for_each(|(number, part)| check(&place.below(number), demand, part, flaws));
            true
        }
        _ => false,
    }
}

fn refer(place: &Place<'_>, demand: &Value, value: &Value, flaws: &mut Vec<String>) -> bool {
    let pointer = demand.as_str().and_then(|text| text.strip_prefix('#'));
    let Some(schema) = pointer.and_then(|pointer| place.root.pointer(pointer)) else { return false };
    check(place, schema, value, flaws);
    true
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

#[test]
fn each_word_of_a_schema_finds_what_is_not_as_it_says() {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {
            "name": { "enum": ["a", "b"] },
            "at": { "anyOf": [{ "$ref": "#/$defs/time" }, { "type": "null" }] },
            "counts": { "type": "array", "items": { "type": "integer", "minimum": 0 } },
        },
        "$defs": { "time": { "type": "string", "format": "date-time" } },
    });
    let cases = [
        (serde_json::json!({ "name": "a", "at": "2026-01-02T03:04:05Z", "counts": [0, 7] }), ""),
        (serde_json::json!({ "name": "b", "at": null }), ""),
        (serde_json::json!([]), "$: [] is not as type"),
        (serde_json::json!({}), "$: {} is not as required"),
        (serde_json::json!({ "name": "c" }), "$.name"),
        (serde_json::json!({ "name": "a", "at": "yesterday" }), "$.at"),
        (serde_json::json!({ "name": "a", "counts": [1, -1] }), "$.counts.1: -1 is not as minimum"),
        (serde_json::json!({ "name": "a", "extra": 1 }), "is not as additionalProperties"),
    ];
    for (value, flaw) in cases {
        let found = flaws(&schema, &value).join("; ");
        assert_eq!(found.is_empty(), flaw.is_empty(), "{value}: {found}");
        assert!(found.contains(flaw), "{value}: {found:?} has no {flaw:?}");
    }
    assert!(!flaws(&serde_json::json!({ "maxLength": 1 }), &Value::Null).is_empty(), "an unknown word");
}
