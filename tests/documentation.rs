//! The pages under `docs/` and beside it: links lead somewhere, nothing is left out of the book, and each
//! dependency has its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All pages of the book.
fn pages() -> Vec<PathBuf> {
    let (mut folders, mut pages) = (vec![root().join("docs")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    pages
}

/// The targets of a page's links that lie in this repository.
fn local_links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split_once('#').map_or(target, |(file, _)| file))
}

#[test]
fn every_link_between_pages_leads_to_a_file() {
    let beside = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    let mut checked = 0;
    for page in pages().into_iter().chain(beside) {
        for link in local_links(&read(&page)) {
            let target = page.parent().unwrap().join(link);
            assert!(target.exists(), "{} links to {link}, which is not there", page.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} links were found");
}

#[test]
fn every_page_is_in_the_book() {
    let docs = root().join("docs");
    let summary = read(docs.join("SUMMARY.md"));
    let listed: BTreeSet<_> = local_links(&summary).map(|link| docs.join(link)).collect();
    let written: BTreeSet<_> = pages().into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, written);
}

#[test]
fn every_direct_dependency_has_its_reason_and_every_reason_its_dependency() {
    let manifests = ["Cargo.toml", "chaos-tests/Cargo.toml"].map(|name| read(root().join(name)));
    let used: BTreeSet<_> = manifests.iter().flat_map(|manifest| dependencies(manifest)).collect();
    let page = read(root().join("docs/development/dependencies.md"));
    let cells =
        page.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split(" |").next());
    let given: BTreeSet<_> =
        cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    assert_eq!(used, given);
}

/// The names under `[dependencies]` and `[dev-dependencies]`, but for members of the workspace.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = matches!(line, "[dependencies]" | "[dev-dependencies]");
        }
        let (name, rest) = line.split_once('=').filter(|_| inside && !line.starts_with(['[', '#']))?;
        (!rest.contains("path =")).then(|| name.trim().trim_end_matches(".workspace"))
    })
}
