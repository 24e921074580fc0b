//! Whether this replica is ready and whether it is alive: a board that the parts report to, and the
//! text that the probes answer. Serving it is `server`'s.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::{BootTime, Clock};

/// What a replica is for one provisioner name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads under this epoch.
    Leader {
        /// The epoch's number.
        epoch: u64,
    },
    /// Another replica leads, or none; this one could take over.
    Standby,
    /// It can't tell, and would not take over: the reason.
    Unknown(String),
}

/// The board. Clones are the same board; every part of the program may hold one.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    board: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    /// The watched kinds, and whether each was seen whole once.
    watches: BTreeMap<String, bool>,
    /// What this replica is, by provisioner name.
    roles: BTreeMap<String, Role>,
    /// When each loop last gave a sign of life, and how long it may be silent.
    beats: BTreeMap<String, (BootTime, Duration)>,
    /// What else keeps this replica from being ready.
    problems: BTreeMap<String, String>,
}

/// One line of a probe's answer: its name, and what is wrong.
type Check = (String, Result<(), String>);

/// A probe's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    probe: &'static str,
    checks: Vec<Check>,
}

impl Health {
    /// An empty board: alive, and not ready before anything is expected and fulfilled.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, board: Mutex::default() }))
    }

    /// This kind is watched: the replica is not ready before it was [`watch_synced`](Self::watch_synced).
    pub fn expect_watch(&self, kind: &str) {
        self.board().watches.entry(kind.to_owned()).or_insert(false);
    }

    /// Every object of this kind was seen once.
    pub fn watch_synced(&self, kind: &str) {
        self.board().watches.insert(kind.to_owned(), true);
    }

    /// What this replica is for a provisioner name. Begin with [`Role::Unknown`] for each name served.
    pub fn role(&self, provisioner: &str, role: Role) {
        self.board().roles.insert(provisioner.to_owned(), role);
    }

    /// From now on this loop must [`beat`](Self::beat) at least once in `deadline`.
    pub fn expect_beats(&self, name: &str, deadline: Duration) {
        let now = self.0.clock.now();
        self.board().beats.insert(name.to_owned(), (now, deadline));
    }

    /// This loop is alive. Nothing happens for a loop of which no beats are expected.
    pub fn beat(&self, name: &str) {
        let now = self.0.clock.now();
        if let Some((last, _)) = self.board().beats.get_mut(name) {
            *last = now;
        }
    }

    /// This loop ended as it should: no more beats are expected.
    pub fn no_more_beats(&self, name: &str) {
        self.board().beats.remove(name);
    }

    /// Something keeps this replica from being ready, until it is called again with `None`.
    pub fn problem(&self, key: &str, problem: Option<String>) {
        let mut board = self.board();
        match problem {
            Some(text) => board.problems.insert(key.to_owned(), text),
            None => board.problems.remove(key),
        };
    }

    /// Whether this replica does its part: it knows the cluster, and whether it leads.
    #[must_use]
    pub fn ready(&self) -> Report {
        let board = self.board();
        let mut checks = vec![started(&board)];
        checks.extend(board.watches.iter().map(|(kind, synced)| watch_check(kind, *synced)));
        checks.extend(board.roles.iter().map(|(name, role)| role_check(name, role)));
        checks.extend(board.problems.iter().map(|(key, text)| (key.clone(), Err(text.clone()))));
        Report { probe: "readyz", checks }
    }

    /// Whether every loop still turns. Only a restart cures a replica that is not alive.
    #[must_use]
    pub fn live(&self) -> Report {
        let now = self.0.clock.now();
        let mut checks = vec![("ping".to_owned(), Ok(()))];
        let board = self.board();
        checks.extend(board.beats.iter().map(|(name, (last, deadline))| {
            let silent = now.saturating_since(*last);
            (format!("loop/{name}"), beat_check(silent, *deadline))
        }));
        Report { probe: "livez", checks }
    }

    /// Held only for look-ups and insertions, so that a probe never waits for an actor.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn started(board: &Board) -> Check {
    let begun = !board.watches.is_empty() && !board.roles.is_empty();
    ("started".to_owned(), if begun { Ok(()) } else { Err("the controller has not begun".to_owned()) })
}

fn watch_check(kind: &str, synced: bool) -> Check {
    let result = if synced { Ok(()) } else { Err("not every object was seen yet".to_owned()) };
    (format!("watch/{kind}"), result)
}

fn role_check(name: &str, role: &Role) -> Check {
    let result = match role {
        Role::Leader { .. } | Role::Standby => Ok(()),
        Role::Unknown(reason) => Err(reason.clone()),
    };
    (format!("role/{name}"), result)
}

fn beat_check(silent: Duration, deadline: Duration) -> Result<(), String> {
    if silent <= deadline {
        return Ok(());
    }
    Err(format!("silent for {:.1} s, may be {:.1} s", silent.as_secs_f64(), deadline.as_secs_f64()))
}

impl Report {
    /// Whether every check passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|(_, result)| result.is_ok())
    }

    /// The answer's text: every check when one failed or all are asked for, else `ok`.
    #[must_use]
    pub fn text(&self, verbose: bool) -> String {
        if self.passed() && !verbose {
            return "ok".to_owned();
        }
        let mut text = String::new();
        for (name, result) in &self.checks {
            // Writing to a String cannot fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => writeln!(text, "[-]{name} failed: {why}"),
            };
        }
        let verdict = if self.passed() { "passed" } else { "failed" };
        let _ = writeln!(text, "{} check {verdict}", self.probe);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing::ManualClock;

    fn board() -> (Health, ManualClock) {
        let clock = ManualClock::default();
        (Health::new(clock.shared()), clock)
    }

    #[test]
    fn a_replica_that_has_not_begun_is_alive_and_not_ready() {
        let (health, _) = board();
        assert!(health.live().passed());
        assert_eq!(
            health.ready().text(false),
            "[-]started failed: the controller has not begun\nreadyz check failed\n"
        );
    }

    #[test]
    fn ready_means_every_kind_seen_and_every_role_known() {
        let (health, _) = board();
        health.expect_watch("claims");
        health.expect_watch("volumes");
        health.role("example.com/dir", Role::Unknown("the lease may not be read: forbidden".into()));
        health.watch_synced("claims");
        assert_eq!(
            health.ready().text(false),
            "[+]started ok\n[+]watch/claims ok\n[-]watch/volumes failed: not every object was seen yet\n\
             [-]role/example.com/dir failed: the lease may not be read: forbidden\nreadyz check failed\n"
        );
        health.watch_synced("volumes");
        health.role("example.com/dir", Role::Standby);
        assert_eq!(health.ready().text(false), "ok");
        health.role("example.com/dir", Role::Leader { epoch: 7 });
        assert_eq!(
            health.ready().text(true),
            "[+]started ok\n[+]watch/claims ok\n[+]watch/volumes ok\n[+]role/example.com/dir ok\n\
             readyz check passed\n"
        );
    }

    #[test]
    fn a_kind_expected_again_does_not_forget_that_it_was_seen() {
        let (health, _) = board();
        health.watch_synced("claims");
        health.expect_watch("claims");
        health.role("x", Role::Standby);
        assert!(health.ready().passed());
    }

    #[test]
    fn a_problem_makes_a_replica_unready_until_it_is_withdrawn() {
        let (health, _) = board();
        health.watch_synced("claims");
        health.role("x", Role::Standby);
        health.problem("watch/claims stalled", Some("nothing heard for 40 s".into()));
        assert!(
            health.ready().text(false).contains("[-]watch/claims stalled failed: nothing heard for 40 s")
        );
        assert!(health.live().passed(), "a problem is no reason to restart");
        health.problem("watch/claims stalled", None);
        assert!(health.ready().passed());
    }

    #[test]
    fn a_loop_that_falls_silent_is_dead_until_it_beats_again() {
        let (health, clock) = board();
        health.expect_beats("arbiter", Duration::from_secs(10));
        clock.advance(Duration::from_secs(10));
        assert!(health.live().passed());
        clock.advance(Duration::from_millis(500));
        assert_eq!(
            health.live().text(false),
            "[+]ping ok\n[-]loop/arbiter failed: silent for 10.5 s, may be 10.0 s\nlivez check failed\n"
        );
        health.beat("arbiter");
        assert_eq!(health.live().text(true), "[+]ping ok\n[+]loop/arbiter ok\nlivez check passed\n");
    }

    #[test]
    fn a_loop_that_ended_or_was_never_expected_is_not_missed() {
        let (health, clock) = board();
        health.beat("nobody");
        health.expect_beats("elector", Duration::from_secs(1));
        health.no_more_beats("elector");
        clock.advance(Duration::from_secs(60));
        assert!(health.live().passed());
    }
}
