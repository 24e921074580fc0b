//! The page of rules and cases: every test that it names exists, and no case is missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The reported faults that must be held by a test.
const CASES: [u32; 43] = [
    1, 2, 4, 5, 6, 7, 8, 10, 11, 13, 14, 16, 18, 20, 21, 23, 25, 26, 29, 30, 31, 32, 36, 37, 39, 40, 41, 42,
    44, 45, 47, 49, 53, 54, 59, 61, 62, 63, 65, 67, 76, 80, 83,
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/development/cases.md")).unwrap()
}

/// The rows of the page's tables, without their heads, as cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("|---"));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    cells.filter(|row: &Vec<&str>| row.last().is_some_and(|tests| tests.starts_with('`'))).collect()
}

/// The names in a cell.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension() == Some("rs".as_ref())).collect()
}

/// The names of all functions that stand behind a test's attribute or in a `proptest!`.
fn tests() -> BTreeSet<String> {
    let folders = ["src", "tests", "chaos-tests/src", "chaos-tests/tests"];
    let texts = folders.iter().flat_map(|folder| sources(&root().join(folder))).map(fs::read_to_string);
    let mut found = BTreeSet::new();
    for text in texts {
        let text = text.unwrap();
        for (at, _) in text.match_indices("test]") {
            let name = text.split_at(at).1.split_once("fn ").map(|(_, rest)| rest);
            found.extend(name.and_then(|name| name.split_once('(')).map(|(name, _)| name.to_owned()));
        }
    }
    found
}

#[test]
fn every_test_that_the_page_names_exists() {
    let (page, tests) = (page(), tests());
    let rows = rows(&page);
    assert!(rows.len() > 100, "only {} rows were found", rows.len());
    for row in rows {
        for name in names(row.last().unwrap()).filter(|name| !name.starts_with("cargo chaos run ")) {
            assert!(tests.contains(name), "there is no test {name}");
        }
    }
}

#[test]
fn every_case_is_on_the_page_once() {
    let page = page();
    let mut numbers: Vec<u32> = rows(&page).iter().filter_map(|row| row.first()?.parse().ok()).collect();
    numbers.retain(|number| CASES.contains(number));
    assert_eq!(numbers, CASES);
}
