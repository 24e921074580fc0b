//! The Event objects of `events.k8s.io/v1`.

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use crate::lifecycle::tell::{About, Kind, Note, Reason};

/// What the API server takes of a note, in bytes.
const NOTE_LIMIT: usize = 1024;

/// Who reports.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    /// The provisioner name.
    pub controller: String,
    /// The identity of this replica, at most 128 bytes.
    pub instance: String,
}

/// The event with this number, as it is created.
pub(super) fn create(number: u64, note: &Note, reporter: &Reporter, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name(number, note, reporter)),
            namespace: Some(namespace(&note.about).to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(action(note.reason).to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(cut(&note.message, NOTE_LIMIT).to_owned()),
        reason: Some(note.reason.as_str().to_owned()),
        regarding: Some(regarding(&note.about)),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        type_: Some(if note.reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// The series of an event that has happened `count` times.
pub(super) fn series(count: u32, now: Timestamp) -> EventSeries {
    EventSeries { count: i32::try_from(count).unwrap_or(i32::MAX), last_observed_time: MicroTime(now) }
}

/// The name of the event with this number: unique among replicas, because their identities are.
pub(super) fn name(number: u64, note: &Note, reporter: &Reporter) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (number, &reporter.instance, &note.about.uid).hash(&mut hasher);
    // An object's name may fill all of the 253 characters that an event's name has.
    format!("{}.{:016x}", cut(&note.about.name, 236).trim_end_matches(['.', '-']), hasher.finish())
}

/// Where an event lives: with its object, or in `default` for one without a namespace.
pub(super) fn namespace(about: &About) -> &str {
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}

fn regarding(about: &About) -> ObjectReference {
    let (api_version, kind) = match about.kind {
        Kind::Claim => ("v1", "PersistentVolumeClaim"),
        Kind::Volume => ("v1", "PersistentVolume"),
        Kind::Lease => ("coordination.k8s.io/v1", "Lease"),
    };
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: (!about.namespace.is_empty()).then(|| about.namespace.to_string()),
        name: Some(about.name.to_string()),
        uid: Some(about.uid.to_string()),
        ..ObjectReference::default()
    }
}

const fn action(reason: Reason) -> &'static str {
    match reason {
        Reason::Provisioning | Reason::ProvisioningSucceeded | Reason::ProvisioningFailed => "Provision",
        Reason::ProvisioningCleanupFailed
        | Reason::VolumeFailedDelete
        | Reason::VolumeDelete
        | Reason::OrphanedAsset => "Delete",
        Reason::LeaderElection => "LeaderElection",
        Reason::StoreRestored => "Audit",
    }
}

/// The longest beginning of `text` that fits, on a character boundary.
fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &str, message: &str) -> Note {
        let about = About { kind: Kind::Volume, namespace: "".into(), name: name.into(), uid: "u".into() };
        Note { about, reason: Reason::VolumeFailedDelete, message: message.to_owned() }
    }

    fn reporter() -> Reporter {
        Reporter { controller: "ours.dev".to_owned(), instance: "pod-1".to_owned() }
    }

    #[test]
    fn an_event_about_a_volume_lives_in_the_default_namespace() {
        let event = create(1, &note("pvc-1", "busy"), &reporter(), Timestamp::UNIX_EPOCH);
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.regarding.unwrap().namespace, None);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.reason.as_deref(), Some("VolumeFailedDelete"));
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        let event = create(1, &note(&"n".repeat(253), &"ä".repeat(600)), &reporter(), Timestamp::UNIX_EPOCH);
        assert_eq!(event.note.unwrap().len(), 1024);
        assert!(event.metadata.name.unwrap().len() <= 253);
    }

    #[test]
    fn names_differ_between_numbers_and_replicas() {
        let other = Reporter { instance: "pod-2".to_owned(), ..reporter() };
        let note = note("pvc-1", "busy");
        let names = [name(1, &note, &reporter()), name(2, &note, &reporter()), name(1, &note, &other)];
        assert!(names[0] != names[1] && names[0] != names[2]);
    }
}
