//! The picture of a run: a lane for each replica with its leaderships in the colours of their epochs, the calls of the
//! backend in the same colours, the faults, and what must not have been. Inline SVG; each mark has a title in words.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    Run,
    page::escape,
    style::EPOCHS,
    timeline::{CallBar, FaultBar, Span, Timeline},
};

const WIDTH: f64 = 1160.0;
/// Names of lanes stand left of this.
const LEFT: f64 = 186.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const LANE: f64 = 26.0;
const ROW: f64 = 16.0;
const THIN: f64 = 9.0;
/// Calls of one operation that run at once stand in so many rows.
const ROWS: usize = 4;
const GAP: f64 = 12.0;

/// Draws a run.
pub(super) fn of(run: &Run) -> String {
    let mut picture = Picture::new(&run.timeline);
    picture.lanes();
    picture.calls();
    picture.faults();
    picture.flaws(run);
    let label = format!(
        "{} with seed {}: leaderships, backend calls and faults over {} seconds",
        run.scenario,
        run.seed,
        run.timeline.length / 1_000
    );
    picture.finish(&label)
}

struct Picture<'a> {
    timeline: &'a Timeline,
    /// Which colour an epoch has.
    colours: BTreeMap<u64, usize>,
    marks: String,
    /// Where the next lane begins.
    y: f64,
}

impl<'a> Picture<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        let mut epochs: Vec<_> =
            timeline.lanes.iter().flat_map(|lane| &lane.leads).map(|it| (it.span.from, it.epoch)).collect();
        epochs.sort_unstable();
        let mut colours = BTreeMap::new();
        for (_, epoch) in epochs {
            let next = colours.len() % EPOCHS;
            colours.entry(epoch).or_insert(next);
        }
        Self { timeline, colours, marks: String::new(), y: TOP }
    }

    fn x(&self, millis: u64) -> f64 {
        let part = millis as f64 / self.timeline.length.max(1) as f64;
        LEFT + part.min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn width(&self, span: Span, least: f64) -> f64 {
        (self.x(span.to) - self.x(span.from)).max(least)
    }

    fn colour(&self, epoch: u64) -> usize {
        self.colours.get(&epoch).copied().unwrap_or_default()
    }

    fn add(&mut self, mark: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.marks.write_fmt(mark);
    }

    fn name(&mut self, name: &str, height: f64) {
        let (x, y) = (LEFT - 10.0, self.y + height / 2.0 + 4.0);
        self.add(format_args!("<text x='{x}' y='{y:.1}' text-anchor='end'>{}</text>", escape(name)));
    }

    fn bar(&mut self, class: &str, span: Span, y: f64, height: f64, title: &str) {
        let (x, width) = (self.x(span.from), self.width(span, 2.2));
        self.add(format_args!(
            "<rect class='{class}' x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height}' rx='2'>\
             <title>{}</title></rect>",
            escape(title)
        ));
    }

    fn lanes(&mut self) {
        for lane in &self.timeline.lanes {
            self.name(&lane.party, LANE);
            for life in &lane.lives {
                let title = format!("{} runs, {}", lane.party, words(*life));
                self.bar("life", *life, self.y + LANE / 2.0 - 1.5, 3.0, &title);
            }
            for lead in &lane.leads {
                let title = format!("{} leads in epoch {}, {}", lane.party, lead.epoch, words(lead.span));
                let class = format!("e{}", self.colour(lead.epoch));
                self.bar(&class, lead.span, self.y + 4.0, LANE - 8.0, &title);
                self.inscribe("on", &lead.epoch.to_string(), lead.span, LANE);
            }
            self.y += LANE;
        }
        self.y += GAP;
    }

    /// Writes on a bar, if it is long enough.
    fn inscribe(&mut self, class: &str, text: &str, span: Span, height: f64) {
        let (x, width) = (self.x(span.from), self.width(span, 0.0));
        if width > 7.0f64.mul_add(text.len() as f64, 8.0) {
            let (x, y) = (x + 6.0, self.y + height / 2.0 + 4.0);
            self.add(format_args!("<text class='{class}' x='{x:.1}' y='{y:.1}'>{}</text>", escape(text)));
        }
    }

    fn calls(&mut self) {
        for operation in ["provision", "delete", "keep"] {
            let calls: Vec<&CallBar> =
                self.timeline.calls.iter().filter(|call| call.operation == operation).collect();
            if calls.is_empty() {
                continue;
            }
            let rows = rows(calls.iter().map(|call| call.span), ROWS);
            let count = rows.iter().max().map_or(1, |last| last + 1);
            let height = THIN.mul_add(count as f64, 4.0).max(ROW);
            self.name(&format!("{operation} × {}", calls.len()), height);
            for (call, row) in calls.into_iter().zip(rows) {
                let failed = if call.done { "" } else { " failed" };
                let end = if call.done {
                    "done"
                } else if call.killed {
                    "killed"
                } else {
                    "failed"
                };
                let title = format!(
                    "{operation} {} in epoch {}, {}: {end}",
                    call.volume,
                    call.epoch,
                    words(call.span)
                );
                let y = THIN.mul_add(row as f64, self.y + 2.5);
                self.bar(&format!("e{}{failed}", self.colour(call.epoch)), call.span, y, THIN - 2.0, &title);
            }
            self.y += height + 2.0;
        }
        self.y += GAP;
    }

    fn faults(&mut self) {
        let mut kinds: BTreeMap<&str, Vec<&FaultBar>> = BTreeMap::new();
        for fault in &self.timeline.faults {
            kinds.entry(&fault.kind).or_default().push(fault);
        }
        for (kind, faults) in kinds {
            self.name(kind, ROW);
            for fault in faults {
                let title = format!("{kind} of {}, {}", fault.target, words(fault.span));
                if self.width(fault.span, 0.0) < 4.0 {
                    self.diamond(fault.span.from, &title);
                } else {
                    self.bar("fault", fault.span, self.y + 1.5, ROW - 3.0, &title);
                    self.inscribe("whom", &fault.target, fault.span, ROW - 1.0);
                }
            }
            self.y += ROW + 2.0;
        }
    }

    fn diamond(&mut self, at: u64, title: &str) {
        let (x, y) = (self.x(at), self.y + ROW / 2.0);
        self.add(format_args!(
            "<path class='mark' d='M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z'><title>{}</title></path>",
            y - 4.5,
            escape(title)
        ));
    }

    fn flaws(&mut self, run: &Run) {
        for violation in &run.verdict.violations {
            let x = self.x(violation.at.saturating_sub(self.timeline.start) / 1_000_000);
            let title = format!("{}: {}", violation.invariant.name(), violation.words);
            let bottom = self.y;
            self.add(format_args!(
                "<g><title>{}</title><path class='flaw' d='M{x:.1} {TOP}V{bottom:.1}'/>\
                 <path class='tip' d='M{x:.1} {TOP}l-5 -8h10z'/></g>",
                escape(&title)
            ));
        }
    }

    fn finish(self, label: &str) -> String {
        let height = self.y + 8.0;
        let label = escape(label);
        let mut svg = format!("<svg viewBox='0 0 {WIDTH} {height:.0}' role='img' aria-label='{label}'>");
        svg.push_str(&self.axis());
        svg.push_str(&self.marks);
        svg.push_str("</svg>");
        svg
    }

    fn axis(&self) -> String {
        let mut axis = String::new();
        let seconds = self.timeline.length / 1_000;
        let every =
            [1, 2, 5, 10, 20, 30, 60, 120, 300].into_iter().find(|it| seconds / it <= 14).unwrap_or(600);
        for second in (0..=seconds / every).map(|tick| tick * every) {
            let x = self.x(second * 1_000);
            let _ = write!(
                axis,
                "<path class='grid' d='M{x:.1} {TOP}V{:.1}'/>\
                 <text class='axis' x='{x:.1}' y='12' text-anchor='middle'>{second} s</text>",
                self.y
            );
        }
        let edges = [(self.timeline.healed, "healed"), (self.timeline.rest, "at rest")];
        let restored = self.timeline.restored.iter().map(|at| (Some(*at), "etcd put back"));
        for (at, words) in edges.into_iter().chain(restored) {
            let Some(at) = at else { continue };
            let x = self.x(at);
            let _ = write!(
                axis,
                "<path class='edge' d='M{x:.1} {TOP}V{:.1}'/>\
                 <text class='axis' x='{:.1}' y='23' text-anchor='end'>{words}</text>",
                self.y,
                x - 3.0
            );
        }
        axis
    }
}

/// The row of each span, so that none hides another one as long as there is room.
fn rows(spans: impl Iterator<Item = Span>, most: usize) -> Vec<usize> {
    let mut ends: Vec<u64> = Vec::new();
    spans
        .map(|span| {
            let free = ends.iter().position(|end| *end <= span.from);
            let earliest = || ends.iter().enumerate().min_by_key(|(_, end)| **end).map_or(0, |(row, _)| row);
            let row = free.unwrap_or_else(|| if ends.len() < most { ends.len() } else { earliest() });
            match ends.get_mut(row) {
                Some(end) => *end = span.to.max(*end),
                None => ends.push(span.to),
            }
            row
        })
        .collect()
}

fn words(span: Span) -> String {
    let seconds = |millis: u64| millis as f64 / 1e3;
    if span.to == span.from {
        return format!("at {:.2} s", seconds(span.from));
    }
    format!("{:.2} s to {:.2} s", seconds(span.from), seconds(span.to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{
        check::{Invariant, Violation},
        report::timeline::{Lane, Lead},
    };

    #[test]
    fn what_goes_on_at_once_stands_in_rows_of_its_own_and_rows_are_used_again() {
        let spans = [(0, 9), (1, 3), (2, 9), (4, 5), (6, 7)].map(|(from, to)| Span { from, to });
        assert_eq!(rows(spans.into_iter(), 4), [0, 1, 2, 1, 1]);
        assert_eq!(rows([Span { from: 0, to: 9 }, Span { from: 1, to: 3 }].into_iter(), 1), [0, 0]);
    }

    #[test]
    fn epochs_have_colours_of_their_own_and_every_mark_has_words() {
        let lead = |epoch, from, to| Lead { epoch, span: Span { from, to } };
        let lane = |party: &str, lead| Lane { party: party.to_owned(), leads: vec![lead], ..Lane::default() };
        let timeline = Timeline {
            length: 10_000,
            healed: Some(9_000),
            lanes: vec![lane("r0", lead(5, 0, 4_000)), lane("r1", lead(9, 4_000, 9_000))],
            calls: vec![CallBar { operation: "provision".to_owned(), epoch: 9, ..CallBar::default() }],
            faults: vec![FaultBar {
                kind: "kill".to_owned(),
                target: "r0".to_owned(),
                ..FaultBar::default()
            }],
            ..Timeline::default()
        };
        let mut run = Run { scenario: "api".to_owned(), timeline, ..Run::default() };
        let flaw = Violation { invariant: Invariant::OneLeader, at: 5_000_000_000, words: "two".to_owned() };
        run.verdict.violations.push(flaw);
        let svg = of(&run);
        for part in [
            "class='e0'",
            "class='e1'",
            "class='e1 failed'",
            "r0 leads in epoch 5, 0.00 s to 4.00 s",
            "kill of r0, at 0.00 s",
            "one leader: two",
            "healed",
            "role='img'",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
