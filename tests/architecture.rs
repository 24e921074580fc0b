//! The arrows between modules go one way: a module uses only what the table allows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each module of `src/`, and the ones it may use. `docs/development/architecture.md` says why.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("clock", &[]),
    ("nearest", &[]),
    ("provisioner", &[]),
    ("quantity", &[]),
    ("lifecycle", &["clock", "nearest", "provisioner", "quantity"]),
    ("connection", &[]),
    // Not `lifecycle`: what is decided is decided in one way.
    ("known_bugs", &[]),
    ("lease", &["clock", "connection", "known_bugs"]),
    ("options", &["lease", "lifecycle"]),
    ("telemetry", &["clock", "provisioner"]),
    ("cluster", &["clock", "connection", "known_bugs", "lease", "lifecycle", "provisioner", "telemetry"]),
    ("backends", &["provisioner", "quantity"]),
    ("actors", &["clock", "cluster", "known_bugs", "lease", "lifecycle", "provisioner", "telemetry"]),
    (
        "controller",
        &[
            "actors",
            "clock",
            "cluster",
            "connection",
            "known_bugs",
            "lease",
            "lifecycle",
            "options",
            "provisioner",
            "telemetry",
        ],
    ),
    (
        "cli",
        &[
            "actors",
            "backends",
            "clock",
            "cluster",
            "controller",
            "known_bugs",
            "lease",
            "lifecycle",
            "nearest",
            "options",
            "provisioner",
            "telemetry",
        ],
    ),
];

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| sources(&path)).filter(|path| path.extension() == Some("rs".as_ref())).collect()
}

/// The modules that a source file uses by `crate::…`, also inside a nested `use crate::{…}`.
fn used(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => used.push(first_word(rest)),
            Some(group) => used.extend(top_level(group)),
        }
    }
    used
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first words of the items of a braced group, of which the opening brace was taken off.
fn top_level(group: &str) -> Vec<String> {
    let (mut depth, mut words, mut begins) = (1, Vec::new(), true);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            c if c.is_alphanumeric() && depth == 1 && begins => {
                words.push(first_word(&group[at..]));
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    words
}

#[test]
fn a_module_uses_only_what_stands_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let modules: Vec<&str> = ALLOWED.iter().map(|(module, _)| *module).collect();
    let mut arrows = 0;
    for (module, allowed) in ALLOWED {
        let folder = root.join(module);
        let path = if folder.is_dir() { folder } else { root.join(format!("{module}.rs")) };
        for source in sources(&path) {
            for target in used(&fs::read_to_string(&source).unwrap()) {
                if target != module && modules.contains(&&*target) {
                    assert!(allowed.contains(&&*target), "{} uses crate::{target}", source.display());
                    arrows += 1;
                }
            }
        }
    }
    assert!(arrows > 50, "only {arrows} arrows were found");
}

#[test]
fn every_module_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(root).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        let known =
            ALLOWED.iter().any(|(module, _)| *module == name) || ["bin", "lib", "main"].contains(&&*name);
        assert!(known, "src/{name} is missing from the table");
    }
}

#[test]
fn nested_uses_are_read_right() {
    assert_eq!(used("use crate::{\n a::{b, c},\n d,\n};\nuse crate::e::f;"), ["a", "d", "e"]);
}
