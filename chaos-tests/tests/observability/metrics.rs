//! Metrics of a leader and a standby against what was done. The counters against the ledger, with failures of every
//! kind and a change of leaders, are in the acceptance tests (`probes`).

use chaos_tests::{replica::Replica, scrape::Scrape};

use crate::{eventually, fails_first, scope, stage};

/// What a replica tells now.
pub(crate) async fn scrape(replica: &Replica) -> Scrape {
    Scrape::of(replica).await.unwrap()
}

#[tokio::test]
async fn every_metric_of_leader_and_standby_tells_what_was_done() {
    let stage = stage(scope().await, 2, None).await;
    let storage_class = stage.class("c", |_| ()).await.unwrap();
    let leader = stage.leader().await.unwrap();
    let (leader, standby) = (&stage.replicas[leader], &stage.replicas[1 - leader]);

    stage.ledger.set(&[fails_first("a")]).unwrap();
    let mut volumes = Vec::new();
    for name in ["a", "b", "c"] {
        volumes.push(stage.bound(name, &storage_class).await.unwrap());
    }
    for (name, volume) in ["a", "b"].into_iter().zip(&volumes) {
        stage.delete_claim(name).await.unwrap();
        stage.volume_gone(volume).await.unwrap();
    }
    // Counters follow the effects, and gauges are brought up to date each second.
    let settled = |scrape: &Scrape| {
        scrape.sum("controller_persistentvolume_delete_total") == 2.0
            && scrape.sum("kube_provisioner_events_total") == 5.0
            && scrape.sum_where("kube_provisioner_cache_objects", &[("kind", "volumes")]) == 1.0
            && scrape.sum("kube_provisioner_pending_claims") == 0.0
    };
    let led =
        eventually("two deletions and five events", async || Some(scrape(leader).await).filter(settled))
            .await;

    let class = [("class", storage_class.as_str())];
    for (name, labels, expected) in [
        ("controller_persistentvolumeclaim_provision_total", &class[..], 3.0),
        ("controller_persistentvolumeclaim_provision_failed_total", &class, 1.0),
        ("controller_persistentvolumeclaim_provision_duration_seconds_count", &class, 3.0),
        ("kube_provisioner_claim_to_volume_seconds_count", &class, 3.0),
        ("controller_persistentvolume_delete_total", &class, 2.0),
        ("controller_persistentvolume_delete_failed_total", &class, 0.0),
        ("kube_provisioner_backend_calls_total", &[("operation", "provision"), ("outcome", "ok")], 3.0),
        ("kube_provisioner_backend_calls_total", &[("operation", "provision"), ("outcome", "failed")], 1.0),
        ("kube_provisioner_backend_calls_total", &[("operation", "delete"), ("outcome", "ok")], 2.0),
        ("kube_provisioner_backend_calls_running", &[], 0.0),
        ("workqueue_retries_total", &[("name", "claims")], 1.0),
        ("workqueue_depth", &[], 0.0),
        ("workqueue_queue_duration_seconds_count", &[("name", "claims")], 4.0),
        ("workqueue_work_duration_seconds_count", &[("name", "claims")], 4.0),
        ("workqueue_work_duration_seconds_count", &[("name", "volumes")], 2.0),
        ("rest_client_requests_total", &[("method", "DELETE")], 2.0),
        ("leader_election_master_status", &[], 1.0),
        ("kube_provisioner_takeover_duration_seconds_count", &[], 1.0),
        ("kube_provisioner_pending_claims", &[], 0.0),
        ("kube_provisioner_cache_objects", &[("kind", "volumes")], 1.0),
        ("kube_provisioner_relists_total", &[], 4.0),
    ] {
        assert_eq!(led.sum_where(name, labels), expected, "{name} {labels:?} of the leader: {led:#?}");
    }
    // Each volume and each event is one request.
    let created = led.sum_where("rest_client_requests_total", &[("method", "POST"), ("code", "201")]);
    assert_eq!(created, 3.0 + led.sum("kube_provisioner_events_total"));
    assert!(led.sum_where("workqueue_adds_total", &[("name", "claims")]) >= 4.0);

    // Gauges are brought up to date once a second.
    let one_left =
        |scrape: &Scrape| scrape.sum_where("kube_provisioner_cache_objects", &[("kind", "volumes")]) == 1.0;
    let stood_by = eventually("the standby's cache has one volume", async || {
        Some(scrape(standby).await).filter(one_left)
    })
    .await;
    for (name, labels, expected) in [
        ("controller_persistentvolumeclaim_provision_total", &class[..], 0.0),
        ("controller_persistentvolume_delete_total", &class, 0.0),
        ("kube_provisioner_backend_calls_total", &[("operation", "provision")], 0.0),
        ("workqueue_depth", &[], 0.0),
        ("workqueue_work_duration_seconds_count", &[], 0.0),
        ("rest_client_requests_total", &[("method", "POST"), ("code", "201")], 0.0),
        ("leader_election_master_status", &[], 0.0),
        ("kube_provisioner_cache_objects", &[("kind", "volumes")], 1.0),
        ("kube_provisioner_relists_total", &[], 4.0),
    ] {
        assert_eq!(
            stood_by.sum_where(name, labels),
            expected,
            "{name} {labels:?} of the standby: {stood_by:#?}"
        );
    }
    assert!(stood_by.sum_where("workqueue_adds_total", &[("name", "claims")]) >= 3.0, "its queue is warm");
}
