//! Draws traces as Jaeger's query API tells them: our own rendering, as Jaeger's Go module has no web pages. A page
//! of HTML, and of that a picture by a headless Chromium.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

/// Colours of the replicas.
const COLOURS: [&str; 4] = ["#3465a4", "#c17d11", "#75507b", "#4e9a06"];
/// Of all that belongs to no replica's attempt.
const GREY: &str = "#9a9a9a";
const WIDTH: usize = 1280;
const ROW: usize = 26;
const HEAD: usize = 72;

/// Draw traces that were saved from Jaeger's `/api/traces/ID`, one below the other.
#[derive(Clone, Debug, Args)]
pub struct Picture {
    /// Files with Jaeger's answers, each a JSON document
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// The picture; the page is written beside it
    #[arg(long)]
    out: PathBuf,
}

/// Draws.
///
/// # Errors
/// If a file holds no trace, or there is no Chromium.
pub fn run(options: &Picture) -> Result<()> {
    let mut page = String::from(STYLE);
    let mut height = 24;
    for path in &options.traces {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let answer: Value = serde_json::from_slice(&text)?;
        let trace = Trace::read(&answer).with_context(|| format!("{} holds no trace", path.display()))?;
        height += HEAD + ROW * trace.spans.len();
        page.push_str(&trace.draw());
    }
    let html = options.out.with_extension("html");
    fs::write(&html, page).with_context(|| format!("cannot write {}", html.display()))?;
    photograph(&html, &options.out, height)
}

fn photograph(page: &Path, picture: &Path, height: usize) -> Result<()> {
    let page = fs::canonicalize(page)?;
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--window-size={WIDTH},{height}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = chromium.status().context("cannot run chromium (Debian: apt-get install chromium)")?;
    ensure!(status.success() && picture.exists(), "chromium made no picture ({status})");
    Ok(())
}

struct Span {
    id: String,
    parent: Option<String>,
    name: String,
    /// Microseconds since 1970.
    start: u64,
    /// Microseconds.
    lasted: u64,
    tags: BTreeMap<String, String>,
    links: Vec<String>,
    process: String,
}

struct Trace {
    id: String,
    spans: Vec<(usize, Span)>,
    /// The identity of each exporting process.
    replicas: BTreeMap<String, String>,
}

impl Trace {
    fn read(answer: &Value) -> Option<Self> {
        let data = answer.pointer("/data/0")?;
        let spans: Vec<Span> = data.get("spans")?.as_array()?.iter().filter_map(Span::read).collect();
        let processes = data.get("processes")?.as_object()?.iter();
        let replicas = processes.map(|(key, process)| {
            let instance = tags(process).remove("service.instance.id").unwrap_or_default();
            (key.clone(), instance.split('_').next().unwrap_or_default().to_owned())
        });
        let id = data.get("traceID")?.as_str()?.to_owned();
        Some(Self { id, replicas: replicas.collect(), spans: ordered(spans) })
    }

    fn draw(&self) -> String {
        let (from, to) = self.spans.iter().fold((u64::MAX, 0), |(from, to), (_, span)| {
            (from.min(span.start), to.max(span.start + span.lasted))
        });
        let mut html = String::new();
        let links: Vec<&str> = self
            .spans
            .first()
            .map(|(_, root)| root.links.iter())
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let linked =
            if links.is_empty() { String::new() } else { format!(" &rarr; links to {}", links.join(", ")) };
        // Writing to a string cannot fail.
        let _ = write!(html, "<h2>trace {}<small>{linked}</small></h2><p>{}</p>", self.id, self.legend());
        for (depth, span) in &self.spans {
            html.push_str(&self.row(*depth, span, from, (to - from).max(1)));
        }
        html
    }

    fn legend(&self) -> String {
        let key = |name: &String| format!("<b style='background:{}'></b>{name}", colour_of(name));
        let replicas: Vec<String> = self.replicas.values().map(key).collect();
        format!(
            "{} <b class='failed'></b>ended with an error <b style='background:{GREY}'></b>waiting, or the whole",
            replicas.join(" ")
        )
    }

    fn row(&self, depth: usize, span: &Span, from: u64, whole: u64) -> String {
        let percent = |micros: u64| micros as f64 * 100.0 / whole as f64;
        let (left, width) = (percent(span.start - from), percent(span.lasted).max(0.15));
        let failed = if span.tags.contains_key("error") { " failed" } else { "" };
        // Beside the bar where there is room, else on it.
        let side = match (left, left + width) {
            (_, right) if right < 75.0 => format!("left:{right}%"),
            (left, _) if left > 25.0 => format!("right:{}%", 100.0 - left),
            _ => format!("left:{left}%;color:#fff"),
        };
        format!(
            "<div class='row'><div class='name' style='padding-left:{}px'>{}</div><div class='time'>\
             <i class='bar{failed}' style='left:{left}%;width:{width}%;background:{}'></i>\
             <span style='{side}'>{} {}</span></div></div>",
            8 + depth * 18,
            escape(&span.title()),
            self.colour(span),
            duration(span.lasted),
            escape(&span.note()),
        )
    }

    fn colour(&self, span: &Span) -> &'static str {
        if span.name == "waiting" || span.parent.is_none() {
            return GREY;
        }
        self.replicas.get(&span.process).map_or(GREY, |name| colour_of(name))
    }
}

/// The same in every trace: replicas are numbered.
fn colour_of(replica: &str) -> &'static str {
    let number = replica.bytes().last().map_or(0, usize::from);
    COLOURS.get(number % COLOURS.len()).copied().unwrap_or(GREY)
}

impl Span {
    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let references = value.get("references").and_then(Value::as_array).into_iter().flatten();
        let (mut parent, mut links) = (None, Vec::new());
        for reference in references {
            let of = |key: &str| Some(reference.get(key)?.as_str()?.to_owned());
            match reference.get("refType").and_then(Value::as_str) {
                Some("CHILD_OF") => parent = of("spanID"),
                _ => links.extend(of("traceID")),
            }
        }
        Some(Self {
            id: text("spanID")?,
            parent,
            name: text("operationName")?,
            start: value.get("startTime")?.as_u64()?,
            lasted: value.get("duration")?.as_u64()?,
            tags: tags(value),
            links,
            process: text("processID")?,
        })
    }

    fn title(&self) -> String {
        let reason = self.tags.get("kube_provisioner.reason");
        reason.map_or_else(|| self.name.clone(), |reason| format!("{} · {reason}", self.name))
    }

    /// What is said beside the bar.
    fn note(&self) -> String {
        let tag = |key: &str| self.tags.get(key).cloned();
        let attempt = tag("kube_provisioner.identity").map(|identity| {
            let replica = identity.split('_').next().unwrap_or_default().to_owned();
            format!(
                "{replica}, attempt {}, epoch {}",
                tag("attempt").unwrap_or_default(),
                tag("epoch").unwrap_or_default()
            )
        });
        let parts = [attempt, tag("otel.status_description")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

fn tags(value: &Value) -> BTreeMap<String, String> {
    let tags = value.get("tags").and_then(Value::as_array).into_iter().flatten();
    tags.filter_map(|tag| {
        let value = tag.get("value")?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((tag.get("key")?.as_str()?.to_owned(), text))
    })
    .collect()
}

/// Each span below its parent, brothers by their start.
fn ordered(mut spans: Vec<Span>) -> Vec<(usize, Span)> {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.lasted)));
    let mut ordered: Vec<(usize, Span)> = Vec::new();
    for span in spans {
        let parent = ordered.iter().position(|(_, other)| Some(&other.id) == span.parent.as_ref());
        let depth = parent.and_then(|place| ordered.get(place)).map_or(0, |(depth, _)| depth + 1);
        // Behind all that is below the parent already.
        let place = parent.map_or(ordered.len(), |place| {
            let below = ordered.iter().skip(place + 1).take_while(|(other, _)| *other >= depth);
            place + 1 + below.count()
        });
        ordered.insert(place, (depth, span));
    }
    ordered
}

fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const STYLE: &str = "<!doctype html><meta charset='utf-8'><style>\
body{font:13px 'DejaVu Sans',sans-serif;margin:12px;background:#fff;color:#222}\
h2{font-size:15px;margin:14px 0 4px}small{color:#666;font-weight:normal}p{margin:2px 0 8px;color:#555}\
p b{display:inline-block;width:11px;height:11px;margin:0 5px 0 14px;vertical-align:-1px}\
.row{display:flex;height:25px;border-top:1px solid #eee;line-height:25px}\
.name{width:270px;white-space:nowrap;overflow:hidden}.time{flex:1;position:relative}\
.bar{position:absolute;top:6px;height:13px;border-radius:2px}\
.failed{box-shadow:0 0 0 2px #cc0000}\
.time span{position:absolute;padding:0 7px;white-space:nowrap;color:#444}</style>";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn span(id: &str, parent: Option<&str>, start: u64) -> Value {
        let references: Vec<_> = parent
            .map(|parent| json!({ "refType": "CHILD_OF", "spanID": parent, "traceID": "t" }))
            .into_iter()
            .collect();
        json!({
            "spanID": id, "operationName": format!("work <{id}>"), "startTime": start, "duration": 1500,
            "references": references, "tags": [], "processID": "p1",
        })
    }

    #[test]
    fn spans_stand_below_their_parents_in_the_order_of_time() {
        let spans = [
            span("b", Some("r"), 30),
            span("r", None, 10),
            span("a1", Some("a"), 25),
            span("a", Some("r"), 20),
        ];
        let answer =
            json!({ "data": [{ "traceID": "t", "spans": spans, "processes": { "p1": { "tags": [] } } }] });
        let trace = Trace::read(&answer).unwrap();
        let order: Vec<_> = trace.spans.iter().map(|(depth, span)| (*depth, &*span.id)).collect();
        assert_eq!(order, [(0, "r"), (1, "a"), (2, "a1"), (1, "b")]);
        let html = trace.draw();
        assert!(html.contains("work &lt;a1>") && html.contains("1.5 ms"), "{html}");
    }

    #[test]
    fn what_holds_no_trace_is_an_error() {
        assert!(Trace::read(&json!({ "errors": [{ "code": 404 }] })).is_none());
    }
}
