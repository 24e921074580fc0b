//! The page: headline, tables, pictures. It needs no script, no other file, and no network.

use std::{cmp::Reverse, collections::BTreeSet, fmt::Write as _};

use super::{Report, Run, Totals, picture, style, table};

/// At most so many runs are drawn: those with violations, and the liveliest of each scenario.
const PICTURES: usize = 24;

/// The whole page.
pub(super) fn of(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width,initial-scale=1'>\
         <title>Nothing leaks, nothing is lost</title><style>{}</style><main>",
        style::SHEET
    );
    page.push_str(&head(report));
    section(
        &mut page,
        "Faults and invariants",
        "In how many runs a fault happened while an invariant was judged. A dash: no run with this fault had \
         anything to judge the invariant by.",
        &table::matrix(report),
    );
    section(&mut page, "What was promised", "", &table::promises(report));
    if !report.controls.is_empty() {
        section(
            &mut page,
            "Negative controls",
            "Programs into which a known bug was put back. The checker has to catch each.",
            &table::controls(&report.controls),
        );
    }
    section(
        &mut page,
        "Runs",
        "A run is made from its scenario and its seed: the command repeats its plan.",
        &table::runs(&report.runs),
    );
    let pictures: String = telling(&report.runs).into_iter().map(figure).collect();
    section(
        &mut page,
        "Timelines",
        "Who believed to lead, what the backend was asked, and what broke. A mark tells more when pointed at.",
        &format!("{}{pictures}", key()),
    );
    page.push_str("</main></html>\n");
    page
}

fn section(page: &mut String, title: &str, words: &str, content: &str) {
    // Writing to a string cannot fail.
    let _ = write!(page, "<section><h2>{title}</h2><p class='soft'>{words}</p>{content}</section>");
}

fn head(report: &Report) -> String {
    let Totals { runs, faults, facts, violations, controls, caught } = report.totals();
    let sentence = if runs == 0 {
        "<p class='bad'><b>Nothing was run.</b>"
    } else if violations > 0 {
        "<p class='bad'><b>✗ Something was otherwise than it must be.</b> It is listed with its run, below."
    } else if caught < controls {
        "<p class='bad'><b>✗ A known bug was not noticed.</b> The verdict on the other runs is worth less for it."
    } else {
        "<p class='good'><b>✓ Everything held.</b>"
    };
    let mark = |wrong: bool| if wrong { "bad" } else { "good" };
    let mut tiles = format!(
        "<li><b>{}</b><span>runs</span><li><b>{}</b><span>faults</span><li><b>{}</b><span>facts looked at</span>\
         <li><b class='{}'>{}</b><span>violations</span>",
        grouped(runs),
        grouped(faults),
        grouped(facts),
        mark(violations > 0),
        grouped(violations)
    );
    if controls > 0 {
        let _ = write!(
            tiles,
            "<li><b class='{}'>{caught} of {controls}</b><span>known bugs caught</span>",
            mark(caught < controls)
        );
    }
    let about: String = report
        .about
        .iter()
        .map(|(name, value)| format!("<dt>{}<dd>{}", escape(name), escape(value)))
        .collect();
    format!(
        "<header><h1>Nothing leaks, nothing is lost</h1>{sentence}<ul class='tiles'>{tiles}</ul><dl>{about}</dl>\
         </header>"
    )
}

/// The runs that are drawn, in their order.
fn telling(runs: &[Run]) -> Vec<&Run> {
    let lively = |run: &Run| run.timeline.lanes.iter().map(|lane| lane.leads.len()).sum::<usize>();
    let mut order: Vec<(usize, &Run)> = runs.iter().enumerate().collect();
    order.sort_by_key(|(_, run)| (run.verdict.violations.is_empty(), Reverse(lively(run))));
    let mut scenarios = BTreeSet::new();
    let first = |run: &Run, scenarios: &mut BTreeSet<String>| scenarios.insert(run.scenario.clone());
    order.retain(|(_, run)| first(run, &mut scenarios) || !run.verdict.violations.is_empty());
    order.truncate(PICTURES);
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, run)| run).collect()
}

fn figure(run: &Run) -> String {
    let flaws = if run.verdict.violations.is_empty() { String::new() } else { table::flaws(run) };
    format!(
        "<figure><figcaption><h3>{}</h3><small>seed {}</small><code>{}</code></figcaption><div>{}</div>{flaws}\
         </figure>",
        escape(&run.scenario),
        run.seed,
        escape(&run.replay),
        picture::of(run)
    )
}

fn key() -> String {
    let item = |mark: &str, words: &str| {
        format!("<li><svg viewBox='0 0 22 11' aria-hidden='true'>{mark}</svg>{words}")
    };
    let items = [
        item("<rect class='e0' y='1' width='22' height='9' rx='2'/>", "a leadership, by its epoch"),
        item("<rect class='life' y='4' width='22' height='3'/>", "the process runs"),
        item(
            "<rect class='e0' y='3' width='22' height='5' rx='2'/>",
            "a backend call, in its leader's colour",
        ),
        item(
            "<rect class='e0 failed' x='1' y='3' width='20' height='5' rx='2'/>",
            "one that failed or was killed",
        ),
        item("<rect class='fault' x='1' y='1.5' width='20' height='8' rx='2'/>", "a fault"),
        item("<path class='mark' d='M11 1l4.5 4.5l-4.5 4.5l-4.5 -4.5z'/>", "a fault of a moment"),
        item("<path class='tip' d='M11 10l-5 -8h10z'/>", "a violation"),
    ];
    format!("<ul class='key'>{}</ul>", items.concat())
}

/// A number with its thousands apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// For text and for attributes in either kind of quotes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::{super::tests::report, *};
    use crate::history::check::Invariant;

    #[test]
    fn the_page_has_headline_table_controls_runs_and_pictures() {
        let page = report().html();
        for part in [
            "<b>2</b><span>runs",
            "<b>6</b><span>faults",
            "<b class='bad'>1</b><span>violations",
            "<b class='bad'>1 of 2</b><span>known bugs caught",
            "✗ Something was otherwise",
            "<th scope='row'>pause<td class='number'>1<td class='broken'",
            "kube-provisioner &quot;0.1&quot;",
            "✗ nobody",
            "--seed 7</code>",
            "nothing was proved",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
        assert!(Invariant::ALL.iter().all(|invariant| page.contains(invariant.name())));
    }

    #[test]
    fn what_others_wrote_is_escaped_and_nothing_is_fetched() {
        let page = report().html();
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
        assert!(page.contains("r0 &amp; r1 both believed &lt;b&gt;"));
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("url("));
        assert_eq!(escape("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
    }

    #[test]
    fn a_report_in_which_all_held_says_so_and_one_without_runs_does_not() {
        let mut good = report();
        good.runs.remove(0);
        good.controls.pop();
        assert!(good.html().contains("✓ Everything held"));
        good.runs.clear();
        assert!(good.html().contains("Nothing was run"));
    }

    #[test]
    fn violations_are_drawn_and_of_each_scenario_the_liveliest_run() {
        let bad = report().runs.remove(0);
        let run = |seed| Run { scenario: "api".to_owned(), seed, ..Run::default() };
        let mut lively = run(2);
        lively.timeline.lanes =
            vec![super::super::Lane { leads: vec![Default::default()], ..Default::default() }];
        let runs = [run(1), lively, bad.clone(), run(3), bad];
        let seeds: Vec<u64> = telling(&runs).iter().map(|run| run.seed).collect();
        assert_eq!(seeds, [2, 7, 7]);
    }

    #[test]
    fn long_numbers_are_readable() {
        assert_eq!(
            [7, 999, 1000, 1234567].map(grouped),
            ["7", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }
}
