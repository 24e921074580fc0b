//! The reference page of options, rendered from the table. The committed page must equal it:
//! `BLESS=1 cargo test --lib reference` writes it anew.

use std::{env, fs, path::Path};

use super::table::{OPTIONS, OptionSpec, Scope};

const PAGE: &str = "docs/reference/configuration.md";
const BEGIN: &str = "<!-- options: rendered from src/cli/config/table.rs -->\n";
const END: &str = "<!-- options end -->";

fn render() -> String {
    let sections = [
        ("The process", [Scope::Process].as_slice()),
        ("A provisioner", &[Scope::Single, Scope::Provisioner]),
        ("The backend", &[Scope::Backend]),
    ];
    sections.iter().map(|(title, scopes)| section(title, scopes)).collect()
}

fn section(title: &str, scopes: &[Scope]) -> String {
    let rows: String = OPTIONS.iter().filter(|spec| scopes.contains(&spec.scope)).map(row).collect();
    format!(
        "\n### {title}\n\n| flag | environment variable | key | default | allowed | meaning |\n|---|---|---|---|---|---|\n{rows}"
    )
}

fn row(spec: &OptionSpec) -> String {
    let key = if spec.key.is_empty() { "none".to_owned() } else { format!("`{}`", spec.key) };
    let default = spec.default.map_or_else(|| spec.absent.to_owned(), |text| format!("`{text}`"));
    format!(
        "| `{}` | `{}` | {key} | {default} | {} | {} |\n",
        spec.flag(),
        spec.environment(),
        spec.allowed,
        spec.meaning
    )
}

/// The page with the rendered tables in their place.
fn with_tables(page: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where the tables begin");
    let (_, after) = rest.split_once(END).expect("the page marks where the tables end");
    format!("{before}{BEGIN}{}\n{END}{after}", render())
}

#[test]
fn the_reference_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let expected = with_tables(&page);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "{PAGE} is out of date: BLESS=1 cargo test --lib reference writes it anew");
    }
}
