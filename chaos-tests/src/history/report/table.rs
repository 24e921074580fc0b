//! The tables of the page: faults by invariants, what each invariant promises, negative controls, runs.

use std::fmt::Write as _;

use super::{Cell, Control, Report, Run, page::escape};
use crate::history::check::{Invariant, Violation};

/// Faults by invariants.
pub(super) fn matrix(report: &Report) -> String {
    let mut table = String::from("<div class='wide'><table class='matrix'><thead><tr><th scope='col'>fault");
    table.push_str("<th scope='col'><span>times</span>");
    for invariant in Invariant::ALL {
        let (promise, name) = (escape(invariant.promise()), invariant.name());
        let _ = write!(table, "<th scope='col' title='{promise}'><span>{name}</span>");
    }
    table.push_str("<tbody>");
    for kind in report.kinds() {
        let times: usize = report.runs.iter().filter_map(|run| run.faults.get(kind)).sum();
        table.push_str(&row(report, Some(kind), &escape(kind), times));
    }
    let _ = write!(table, "<tfoot>{}</table></div>", row(report, None, "all runs", report.totals().faults));
    table
}

fn row(report: &Report, kind: Option<&str>, name: &str, times: usize) -> String {
    let cells = Invariant::ALL.map(|invariant| cell(report.cell(kind, invariant)));
    format!("<tr><th scope='row'>{name}<td class='number'>{times}{}", cells.concat())
}

fn cell(cell: Cell) -> String {
    match cell {
        Cell { violations: 0, runs: 0 } => "<td class='none' title='nothing to look at'>–".to_owned(),
        Cell { violations: 0, runs } => format!("<td title='held in {runs} runs'>{runs}"),
        Cell { violations, runs } => {
            format!("<td class='broken' title='{violations} violations in {runs} runs'>{violations} ✗")
        }
    }
}

/// What each invariant says, and how much was looked at.
pub(super) fn promises(report: &Report) -> String {
    let mut table = String::from(
        "<div class='wide'><table><thead><tr><th scope='col'>invariant<th scope='col'>promise\
         <th scope='col'>facts looked at<tbody>",
    );
    for invariant in Invariant::ALL {
        let facts: usize = report.runs.iter().map(|run| run.verdict.facts(invariant)).sum();
        let facts =
            if facts == 0 { "<em>none: nothing was proved</em>".to_owned() } else { facts.to_string() };
        let promise = escape(invariant.promise());
        let _ = write!(table, "<tr><th scope='row'>{}<td>{promise}<td>{facts}", invariant.name());
    }
    table.push_str("</table></div>");
    table
}

/// Programs with a known bug, and what caught them.
pub(super) fn controls(controls: &[Control]) -> String {
    let mut table = String::from(
        "<div class='wide'><table><thead><tr><th scope='col'>bug<th scope='col'>caught by\
         <th scope='col'>what gave it away<tbody>",
    );
    for Control { bug, caught_by, words } in controls {
        let names: Vec<_> =
            caught_by.iter().map(|it| format!("<span class='chip'>{}</span>", it.name())).collect();
        let by = if names.is_empty() { "<b class='bad'>✗ nobody</b>".to_owned() } else { names.concat() };
        let _ =
            write!(table, "<tr><th scope='row'>{}<td>{by}<td><small>{}</small>", escape(bug), escape(words));
    }
    table.push_str("</table></div>");
    table
}

/// Every run.
pub(super) fn runs(runs: &[Run]) -> String {
    let mut table = String::from(
        "<div class='wide'><table class='runs'><thead><tr><th scope='col'>scenario<th scope='col'>seed<th scope='col'>seconds\
         <th scope='col'>leaders<th scope='col'>entries<th scope='col'>faults<th scope='col'>verdict\
         <th scope='col'>run it again<tbody>",
    );
    for run in runs {
        let leaders: usize = run.timeline.lanes.iter().map(|lane| lane.leads.len()).sum();
        let verdict = match run.verdict.violations.len() {
            0 => "<span class='good'>✓ held</span>".to_owned(),
            flaws => format!("<b class='bad'>✗ {flaws}</b>"),
        };
        let skipped: String =
            run.skipped.iter().map(|it| format!("<br><small>not here: {}</small>", escape(it))).collect();
        let _ = write!(
            table,
            "<tr><th scope='row'>{}<td>{}<td>{:.0}<td>{leaders}<td>{}<td>{}{skipped}<td>{verdict}<td><code>{}</code>",
            escape(&run.scenario),
            run.seed,
            run.seconds,
            run.entries,
            chips(run),
            escape(&run.replay),
        );
        if !run.verdict.violations.is_empty() {
            let _ = write!(table, "<tr><td colspan='8'>{}", flaws(run));
        }
    }
    table.push_str("</table></div>");
    table
}

fn chips(run: &Run) -> String {
    let chip = |(kind, times): (&String, &usize)| match times {
        1 => format!("<span class='chip'>{}</span>", escape(kind)),
        times => format!("<span class='chip'>{} × {times}</span>", escape(kind)),
    };
    run.faults.iter().map(chip).collect()
}

/// What must not have been, in the order of time.
pub(super) fn flaws(run: &Run) -> String {
    let line = |Violation { invariant, at, words }: &Violation| {
        let seconds = at.saturating_sub(run.timeline.start) as f64 / 1e9;
        format!("<li>{seconds:.3} s <b>{}</b>: {}", invariant.name(), escape(words))
    };
    format!("<ul class='flaws'>{}</ul>", run.verdict.violations.iter().map(line).collect::<String>())
}
