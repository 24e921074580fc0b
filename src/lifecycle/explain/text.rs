//! An explanation for people.

use std::fmt;

use super::{Explanation, facts::Moment};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.object.namespace {
            Some(namespace) => format!("{namespace}/{}", self.object.name),
            None => self.object.name.clone(),
        };
        writeln!(f, "{} {path}: {:?}", self.object.kind, self.state)?;
        writeln!(f, "  {}", self.summary)?;
        writeln!(f)?;
        self.rows(f)?;
        listed(f, "What to do:", &self.advice)?;
        let missing: Vec<String> =
            self.not_read.iter().map(|part| format!("{}: {}", part.what, part.why)).collect();
        listed(f, "What could not be read, so that it is left out above:", &missing)
    }
}

impl Explanation {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "waiting for", self.waiting_for.as_deref().unwrap_or("nothing"))?;
        if let Some(since) = self.since {
            row(f, "since", &self.with_age(since))?;
        }
        row(f, "last attempt", &self.attempt_text())?;
        if let Some(next) = &self.next_try {
            let overdue =
                if next.overdue { "; that has passed, so it is running or waits for its turn" } else { "" };
            row(f, "next try", &format!("about {} (an estimate by the default waits{overdue})", next.at))?;
        }
        row(f, "provisioner", self.provisioner.as_deref().unwrap_or("not known"))?;
        row(f, "leader", &self.leader.describe())
    }

    fn attempt_text(&self) -> String {
        let Some(attempt) = &self.last_attempt else { return "none that an event tells of".into() };
        let count = match attempt.count {
            0 | 1 => String::new(),
            count => format!(", {count} times since {}", attempt.first_at),
        };
        format!("{}, {}{count}: {}", self.with_age(attempt.at), attempt.reason, attempt.message)
    }

    fn with_age(&self, moment: Moment) -> String {
        format!("{moment} ({} ago)", age(self.explained_at.seconds_since(moment)))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "  {name:<13} {value}")
}

fn listed(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    lines.iter().try_for_each(|line| writeln!(f, "  - {line}"))
}

/// A time span in its largest whole unit, or two of them.
fn age(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn an_age_is_told_in_at_most_two_units() {
        let told: Vec<String> = [0, 59, 61, 3_661, 90_061].map(age).into();
        assert_eq!(told, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
