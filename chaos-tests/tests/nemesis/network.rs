//! Replicas in network namespaces, and broken wires.

use std::time::{Duration, Instant};

use chaos_tests::{
    ledger::stage::{DEADLINE, Stage},
    nemesis::network::{self, Manner, Namespace, Way},
    proxy::Proxy,
    wait,
};

use crate::{beliefs, start};

/// A replica in a namespace, and the proxy that it goes through.
async fn start_apart(stage: &mut Stage<'_>, name: &str) -> (Namespace, Proxy) {
    let namespace = Namespace::create().unwrap();
    let log = stage.scope.directory().join(format!("{name}.jsonl"));
    let proxy = Proxy::start_on(namespace.host(), stage.scope.plane(), &log).await.unwrap();
    let spec = stage.spec(name, Some(&proxy.server())).await.unwrap();
    start(stage, namespace.enter(spec)).await;
    (namespace, proxy)
}

/// Waits until another replica than that at `place` holds the Lease.
async fn successor_of(stage: &Stage<'_>, place: usize) -> usize {
    let other = |lease: &_| stage.holder(lease).is_some_and(|holder| holder != place);
    let lease = wait::until(&stage.leases(), stage.scope.provisioner(), DEADLINE, other).await.unwrap();
    stage.holder(&lease).unwrap()
}

#[tokio::test]
async fn a_leader_that_is_cut_off_stops_in_time_and_stands_by_once_its_wire_is_whole() {
    if let Some(reason) = network::unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let mut stage = crate::stage().await;
    let mut wires = Vec::new();
    for name in ["r0", "r1"] {
        wires.push(start_apart(&mut stage, name).await);
    }
    let class = stage.class("a", |_| ()).await.unwrap();
    let ways = [(Way::Both, Manner::Drop), (Way::In, Manner::Drop), (Way::Out, Manner::Reject)];
    for (way, manner) in ways {
        let leader = stage.leader().await.unwrap();
        let (namespace, _) = &wires[leader];
        namespace.cut(way, manner).unwrap();
        let cut = Instant::now();
        let successor = successor_of(&stage, leader).await;
        let taken = cut.elapsed();
        eprintln!("{way:?}, {manner:?}: taken over after {taken:?}");
        assert!(taken > Duration::from_secs(3) - Duration::from_millis(1_125), "too early: {taken:?}");
        let claim = format!("{way:?}-{manner:?}").to_lowercase();
        stage.bound(&claim, &class).await.unwrap();
        // Probes come through, and its caches are as good as before; that it leads no more is in its record.
        stage.replica(leader).unwrap().get("/livez").await.unwrap();
        namespace.heal().unwrap();
        stage.replica(leader).unwrap().wait_ready(DEADLINE).await.unwrap();
        assert_eq!(stage.leader().await.unwrap(), successor, "it stands by");
    }
    let all = stage.replicas.iter().flat_map(|replica| beliefs::of(replica, 1.0)).collect();
    assert_eq!(beliefs::check_apart(all), 4);
    stage.finish(&[]).await.unwrap();
}
