//! Rules: which requests they are about, and what happens to them. Chance comes from a seed: the same requests in the
//! same order meet the same fate.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::sync::watch;

use super::Request;
use crate::nemesis::chance;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Action {
    /// It passes.
    Pass,
    /// The connection is cut and the server never sees the request.
    CutBefore,
    /// The server does what was asked, and the answer is lost with the connection.
    CutAfter,
    /// It passes after this time.
    Delay(Duration),
    /// The server never sees it; the answer has this status.
    Answer(u16),
    /// It waits for the test, then passes or is cut, before the server sees it.
    HaltBefore(Meeting),
    /// As before, once the server has answered.
    HaltAfter(Meeting),
}

/// Which requests, and what happens to them.
#[derive(Clone, Debug)]
pub struct Rule {
    verb: Option<String>,
    resource: String,
    name: Name,
    from: usize,
    to: usize,
    chance: Option<(u16, u64)>,
    action: Action,
}

#[derive(Clone, Debug)]
enum Name {
    Any,
    Exactly(String),
    Prefix(String),
}

impl Rule {
    /// A rule for all requests about a resource.
    #[must_use]
    pub fn about(resource: &str) -> Self {
        Self {
            verb: None,
            resource: resource.to_owned(),
            name: Name::Any,
            from: 1,
            to: usize::MAX,
            chance: None,
            action: Action::Pass,
        }
    }

    /// A rule for requests of this verb about a resource.
    #[must_use]
    pub fn on(verb: &str, resource: &str) -> Self {
        Self { verb: Some(verb.to_owned()), ..Self::about(resource) }
    }

    /// Only for the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Name::Exactly(name.to_owned());
        self
    }

    /// Only for objects whose names begin so.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.name = Name::Prefix(prefix.to_owned());
        self
    }

    /// Only for the `n`-th of the requests that fit otherwise, counted from 1.
    #[must_use]
    pub const fn nth(mut self, n: usize) -> Self {
        (self.from, self.to) = (n, n);
        self
    }

    /// Only for the first `n` of the requests that fit otherwise.
    #[must_use]
    pub const fn first(mut self, n: usize) -> Self {
        self.to = n;
        self
    }

    /// Only for so many in a thousand of the requests that fit otherwise. The `n`-th of them meets the same fate
    /// whenever the seed is the same.
    #[must_use]
    pub const fn chance(mut self, per_mille: u16, seed: u64) -> Self {
        self.chance = Some((per_mille, seed));
        self
    }

    /// What happens to them.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        self.action = action;
        self
    }

    /// They wait for the test before the server sees them.
    #[must_use]
    pub fn halt_before(self) -> (Self, Halt) {
        let (meeting, halt) = meeting();
        (self.action(Action::HaltBefore(meeting)), halt)
    }

    /// They wait for the test once the server has answered.
    #[must_use]
    pub fn halt_after(self) -> (Self, Halt) {
        let (meeting, halt) = meeting();
        (self.action(Action::HaltAfter(meeting)), halt)
    }

    fn decides(&self, n: usize) -> bool {
        let hit = |(per_mille, seed)| chance::hits(seed, n.try_into().unwrap_or(u64::MAX), per_mille);
        (self.from..=self.to).contains(&n) && self.chance.is_none_or(hit)
    }

    fn is_about(&self, request: &Request) -> bool {
        self.verb.as_ref().is_none_or(|verb| *verb == request.verb)
            && self.resource == request.resource
            && match &self.name {
                Name::Any => true,
                Name::Exactly(name) => *name == request.name,
                Name::Prefix(prefix) => request.name.starts_with(prefix),
            }
    }
}

/// The test's end of a meeting with a request. Dropping it cuts the request.
#[derive(Debug)]
pub struct Halt {
    reached: watch::Receiver<bool>,
    verdict: watch::Sender<Option<bool>>,
}

/// The request's end of a meeting with the test.
#[derive(Clone, Debug)]
pub struct Meeting {
    reached: watch::Sender<bool>,
    verdict: watch::Receiver<Option<bool>>,
}

fn meeting() -> (Meeting, Halt) {
    let (reached, is_reached) = watch::channel(false);
    let (verdict, is_decided) = watch::channel(None);
    (Meeting { reached, verdict: is_decided }, Halt { reached: is_reached, verdict })
}

impl Halt {
    /// Waits until a request is there.
    ///
    /// # Errors
    /// If none is within `deadline`.
    pub async fn reached(&mut self, deadline: Duration) -> Result<()> {
        let reached = tokio::time::timeout(deadline, self.reached.wait_for(|reached| *reached)).await;
        reached
            .with_context(|| format!("no request came to the point within {deadline:?}"))?
            .context("the rule was replaced before a request came to it")?;
        Ok(())
    }

    /// Whether a request is there, or was.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        *self.reached.borrow()
    }

    /// Lets the request, and later ones, pass.
    pub fn release(&self) {
        self.verdict.send_replace(Some(true));
    }
}

impl Meeting {
    /// Tells the test that a request is here; whether it may pass.
    pub(super) async fn hold(mut self) -> bool {
        self.reached.send_replace(true);
        self.verdict.wait_for(Option::is_some).await.is_ok_and(|verdict| verdict.unwrap_or_default())
    }
}

/// The rules of a proxy, with how many requests each has seen.
#[derive(Debug, Default)]
pub(super) struct Rules(Mutex<Vec<(Rule, usize)>>);

impl Rules {
    pub(super) fn set(&self, rules: Vec<Rule>) {
        *self.lock() = rules.into_iter().map(|rule| (rule, 0)).collect();
    }

    /// Every rule counts what it is about, whichever decides.
    pub(super) fn decide(&self, request: &Request) -> Action {
        let mut decided = None;
        for (rule, seen) in self.lock().iter_mut().filter(|(rule, _)| rule.is_about(request)) {
            *seen += 1;
            if decided.is_none() && rule.decides(*seen) {
                decided = Some(rule.action.clone());
            }
        }
        decided.unwrap_or(Action::Pass)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Rule, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str, name: &str) -> Request {
        Request {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Request::default()
        }
    }

    fn fates(rules: Vec<Rule>, requests: &[Request]) -> Vec<u16> {
        let all = Rules::default();
        all.set(rules);
        let number = |action| if let Action::Answer(status) = action { status } else { 0 };
        requests.iter().map(|request| number(all.decide(request))).collect()
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_each_counts_what_it_is_about() {
        let requests: Vec<_> = ["a", "b", "c", "d"].map(|name| request("create", "pods", name)).into();
        let rules = vec![
            Rule::on("create", "pods").nth(2).action(Action::Answer(1)),
            Rule::on("create", "pods").first(3).action(Action::Answer(2)),
        ];
        assert_eq!(fates(rules, &requests), [2, 1, 2, 0]);
    }

    #[test]
    fn chance_hits_the_same_requests_whenever_the_seed_is_the_same() {
        let requests = vec![request("create", "pods", "a"); 64];
        let of = |seed| {
            let rule = Rule::on("create", "pods").chance(500, seed).action(Action::Answer(7));
            fates(vec![rule], &requests)
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(1).contains(&0) && of(1).contains(&7));
    }

    #[test]
    fn a_rule_is_about_a_verb_a_resource_and_a_name_or_its_beginning() {
        let requests = [
            request("create", "pods", "web-1"),
            request("delete", "pods", "web-1"),
            request("create", "nodes", "web-1"),
            request("create", "pods", "db"),
        ];
        let answer = |rule: Rule| vec![rule.action(Action::Answer(5))];
        assert_eq!(fates(answer(Rule::on("create", "pods")), &requests), [5, 0, 0, 5]);
        assert_eq!(fates(answer(Rule::about("pods").prefix("web-")), &requests), [5, 5, 0, 0]);
        assert_eq!(fates(answer(Rule::about("pods").name("db")), &requests), [0, 0, 0, 5]);
    }

    #[tokio::test]
    async fn a_request_waits_for_the_test_and_is_cut_if_the_test_goes_away() {
        let (first, mut halt) = meeting();
        let waiting = tokio::spawn(first.hold());
        halt.reached(Duration::from_secs(10)).await.unwrap();
        halt.release();
        assert!(waiting.await.unwrap());
        let (second, halt) = meeting();
        drop(halt);
        assert!(!second.hold().await);
    }
}
