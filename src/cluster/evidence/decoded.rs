//! From the API's objects to the facts that explanations are made from.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, PodCondition, PodSpec},
    events::v1::Event,
};

use crate::{
    lease::{PROVISIONER_ANNOTATION, RESTORED_ANNOTATION},
    lifecycle::explain::facts::{self, Moment, Unscheduled},
};

/// An event, of the new kind or of the old one seen through the new.
pub(super) fn event(event: Event) -> facts::Event {
    let told = event.event_time.map(|time| Moment(time.0));
    let first = told.or(event.deprecated_first_timestamp.map(|time| Moment(time.0)));
    let repeated = event.series.as_ref().map(|series| Moment(series.last_observed_time.0));
    let last = repeated.or(event.deprecated_last_timestamp.map(|time| Moment(time.0)));
    let count = event.series.map(|series| series.count).or(event.deprecated_count);
    let source = event.deprecated_source.and_then(|source| source.component);
    facts::Event {
        reason: event.reason.unwrap_or_default(),
        note: event.note.unwrap_or_default(),
        controller: event.reporting_controller.filter(|name| !name.is_empty()).or(source).unwrap_or_default(),
        instance: event.reporting_instance.unwrap_or_default(),
        first,
        last: last.or(first),
        count: count.and_then(|count| count.try_into().ok()).unwrap_or(1),
    }
}

/// A Lease of a provisioner: its annotation names it, else it is `otherwise`'s.
pub(super) fn lease(lease: Lease, otherwise: Option<&str>) -> Option<facts::Lease> {
    let mut annotations = lease.metadata.annotations.unwrap_or_default();
    let annotated = annotations.remove(PROVISIONER_ANNOTATION);
    let spec = lease.spec.unwrap_or_default();
    Some(facts::Lease {
        provisioner: annotated.or_else(|| otherwise.map(ToOwned::to_owned))?,
        namespace: lease.metadata.namespace.unwrap_or_default(),
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed: spec.renew_time.map(|time| Moment(time.0)),
        seconds: spec.lease_duration_seconds.and_then(|seconds| seconds.try_into().ok()),
        restored: annotations.remove(RESTORED_ANNOTATION),
    })
}

/// A Pod, if it uses the claim and has not ended.
pub(super) fn pod_using(pod: Pod, claim: &str) -> Option<facts::Pod> {
    let name = pod.metadata.name?;
    let spec = pod.spec.filter(|spec| uses(spec, &name, claim))?;
    let status = pod.status.unwrap_or_default();
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let conditions = status.conditions.unwrap_or_default();
    Some(facts::Pod {
        name,
        node: spec.node_name.filter(|node| !node.is_empty()),
        scheduler: spec.scheduler_name.unwrap_or_else(|| "default-scheduler".into()),
        created: pod.metadata.creation_timestamp.map(|time| Moment(time.0)),
        unscheduled: conditions.into_iter().find(refused).map(unscheduled),
    })
}

fn uses(spec: &PodSpec, pod: &str, claim: &str) -> bool {
    spec.volumes.iter().flatten().any(|volume| match &volume.persistent_volume_claim {
        Some(source) => source.claim_name == claim,
        // The claim of a generic ephemeral volume is named after Pod and volume.
        None => volume.ephemeral.is_some() && claim == format!("{pod}-{}", volume.name),
    })
}

fn refused(condition: &PodCondition) -> bool {
    condition.type_ == "PodScheduled" && condition.status == "False"
}

fn unscheduled(condition: PodCondition) -> Unscheduled {
    Unscheduled {
        reason: condition.reason.unwrap_or_default(),
        message: condition.message.unwrap_or_default(),
        since: condition.last_transition_time.map(|time| Moment(time.0)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Option<facts::Pod> {
        pod_using(serde_json::from_value(value).unwrap(), "web-data")
    }

    #[test]
    fn a_pod_uses_a_claim_by_name_or_as_its_ephemeral_volume() {
        let named = json!({"name": "v", "persistentVolumeClaim": {"claimName": "web-data"}});
        let ephemeral = json!({"name": "data", "ephemeral": {}});
        let other = json!({"name": "data", "persistentVolumeClaim": {"claimName": "other"}});
        for (volume, used) in [(named, true), (ephemeral, true), (other, false)] {
            let pod = pod(json!({
                "metadata": {"name": "web"}, "spec": {"containers": [], "volumes": [volume]},
            }));
            assert_eq!(pod.is_some(), used, "{volume}");
        }
    }

    #[test]
    fn a_pod_that_has_ended_uses_nothing() {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "web-data"}});
        let pod = pod(json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [], "volumes": [volume]},
            "status": {"phase": "Succeeded"},
        }));
        assert_eq!(pod, None);
    }

    #[test]
    fn an_event_that_is_a_series_happened_last_when_the_series_says() {
        let decoded = event(
            serde_json::from_value(json!({
                "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z",
                "reason": "ProvisioningFailed", "note": "no", "reportingController": "ours.dev",
                "series": {"count": 4, "lastObservedTime": "2026-01-01T00:02:00.000000Z"},
            }))
            .unwrap(),
        );
        assert_eq!(decoded.count, 4);
        assert_eq!(decoded.last.unwrap().seconds_since(decoded.first.unwrap()), 120);
    }

    #[test]
    fn a_lease_without_our_annotation_is_somebody_elses_unless_it_was_asked_for() {
        let stored = json!({"metadata": {"namespace": "ns", "name": "l"}, "spec": {"holderIdentity": ""}});
        let decode = |otherwise| lease(serde_json::from_value(stored.clone()).unwrap(), otherwise);
        assert_eq!(decode(None), None);
        let ours = decode(Some("ours.dev")).unwrap();
        assert_eq!((ours.provisioner.as_str(), ours.holder), ("ours.dev", None));
    }
}
