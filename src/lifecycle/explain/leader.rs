//! Who leads, judged by a Lease and the asker's clock.

use serde::Serialize;

use super::facts::{Lease, Moment, Surroundings};

/// A Lease whose duration is missing counts as renewed for this long.
const DEFAULT_SECONDS: u64 = 15;

/// Whether somebody leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Leadership {
    /// A replica holds the Lease and renews it.
    Held,
    /// A replica holds it but has not renewed it for longer than its duration.
    Expired,
    /// The Lease is there, and nobody holds it.
    Vacant,
    /// There is no Lease.
    Absent,
    /// No Lease was found, but not all places could be looked at.
    Unknown,
}

/// Which replica leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Whether one does.
    pub leadership: Leadership,
    /// The provisioner that the Lease is for.
    pub provisioner: Option<String>,
    /// The Lease, `namespace/name`.
    pub lease: Option<String>,
    /// Its holder: begins with the name of the replica's Pod.
    pub holder: Option<String>,
    /// When it was renewed last.
    pub renewed_at: Option<Moment>,
    /// How long ago that was, in seconds, by the asker's clock.
    pub renew_age_seconds: Option<u64>,
    /// For how many seconds a renewal counts.
    pub duration_seconds: Option<u64>,
    /// What the Lease tells of a restore of the API server's store: orphans are only reported.
    pub store_restored: Option<String>,
}

impl Leader {
    /// Judges the Lease of one of `names` that speaks best for a leader. With an `instance`, only its Lease.
    pub(super) fn find(around: &Surroundings, names: &[&str], instance: Option<&str>) -> Self {
        let suffix = instance.map(|instance| format!("-{instance}"));
        let fits = |lease: &&Lease| {
            names.contains(&lease.provisioner.as_str())
                && suffix.as_ref().is_none_or(|suffix| lease.name.ends_with(suffix))
        };
        let found = around.leases.iter().filter(fits).map(|lease| Self::judge(lease, around.now));
        let unread = around.leases_not_read.is_some();
        let none = if unread { Leadership::Unknown } else { Leadership::Absent };
        found.min_by_key(|leader| (leader.leadership, leader.renew_age_seconds)).unwrap_or_else(|| Self {
            leadership: none,
            provisioner: names.first().map(ToString::to_string),
            lease: None,
            holder: None,
            renewed_at: None,
            renew_age_seconds: None,
            duration_seconds: None,
            store_restored: None,
        })
    }

    fn judge(lease: &Lease, now: Moment) -> Self {
        let age = lease.renewed.map(|renewed| now.seconds_since(renewed));
        let fresh = age.is_some_and(|age| age <= lease.seconds.unwrap_or(DEFAULT_SECONDS));
        let leadership = match &lease.holder {
            None => Leadership::Vacant,
            Some(_) if fresh => Leadership::Held,
            Some(_) => Leadership::Expired,
        };
        Self {
            leadership,
            provisioner: Some(lease.provisioner.clone()),
            lease: Some(format!("{}/{}", lease.namespace, lease.name)),
            holder: lease.holder.clone(),
            renewed_at: lease.renewed,
            renew_age_seconds: age,
            duration_seconds: lease.seconds,
            store_restored: lease.restored.clone(),
        }
    }

    /// Whether it is known that nobody leads.
    pub(super) const fn is_missing(&self) -> bool {
        matches!(self.leadership, Leadership::Expired | Leadership::Vacant | Leadership::Absent)
    }

    /// In words, without a full stop.
    pub(super) fn describe(&self) -> String {
        match &self.store_restored {
            Some(told) => format!(
                "{}; orphans are only reported, because the API server's store was restored: {told}",
                self.who()
            ),
            None => self.who(),
        }
    }

    fn who(&self) -> String {
        let lease = self.lease.as_deref().unwrap_or("?");
        let holder = self.holder.as_deref().unwrap_or("nobody");
        let age = self.renew_age_seconds.map_or_else(|| "never".into(), |age| format!("{age} s ago"));
        let name = self.provisioner.as_deref().unwrap_or("this provisioner");
        match self.leadership {
            Leadership::Held => format!("{holder} leads (Lease {lease}, renewed {age})"),
            Leadership::Expired => {
                format!("{holder} still stands in Lease {lease} but renewed it {age}, longer than it lasts")
            }
            Leadership::Vacant => format!("nobody holds Lease {lease}; it was given up, or never taken"),
            Leadership::Absent => format!("there is no Lease for {name}, so no replica of it ever ran here"),
            Leadership::Unknown => format!("whether a replica of {name} leads could not be read"),
        }
    }

    /// What to do so that somebody leads.
    pub(super) fn advice(&self) -> Vec<String> {
        let namespace = self.lease.as_deref().and_then(|lease| lease.split_once('/')).map(|(ns, _)| ns);
        match (self.leadership, namespace) {
            (Leadership::Expired | Leadership::Vacant, Some(namespace)) => vec![
                format!("See whether its Pods run: kubectl -n {namespace} get pods."),
                format!(
                    "If they run, see in their logs why none leads: kubectl -n {namespace} logs POD. They may \
                     lack the right to patch the Lease, or not reach the API server."
                ),
            ],
            (Leadership::Absent, _) => vec![
                format!(
                    "Deploy a provisioner that serves {}, or start the one there is.",
                    self.provisioner.as_deref().unwrap_or("this name")
                ),
                "If it is served under another provisioner's Lease, as an additional name or by another \
                 program, name that: --provisioner-name (repeatable), --lease-namespace, --lease-name."
                    .into(),
            ],
            _ => Vec::new(),
        }
    }

    /// Where the leader tells what it does.
    pub(super) fn where_to_look(&self) -> String {
        // A holder's name is its Pod's, then "_" and what makes it unique.
        let pod = self.holder.as_deref().and_then(|holder| holder.split('_').next());
        let namespace = self.lease.as_deref().and_then(|lease| lease.split_once('/')).map(|(ns, _)| ns);
        match (namespace, pod) {
            (Some(namespace), Some(pod)) => {
                format!("The leader's log tells more: kubectl -n {namespace} logs {pod}.")
            }
            _ => "The log of the leading replica tells more.".into(),
        }
    }
}
