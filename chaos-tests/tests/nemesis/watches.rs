//! Views that are late, of one resource or the other.

use std::time::{Duration, Instant};

use chaos_tests::proxy::{Action, Proxy, Rule};

use crate::start;

const LATE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_leader_whose_view_of_claims_or_volumes_is_late_makes_no_asset_twice() {
    let mut stage = crate::stage().await;
    let log = stage.scope.directory().join("proxy.jsonl");
    let proxy = Proxy::start(stage.scope.plane(), &log).await.unwrap();
    let spec = stage.spec("r0", Some(&proxy.server())).await.unwrap();
    start(&mut stage, spec).await;
    stage.leader().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    // One in three requests is answered with an error, the same ones in each run.
    let unlucky =
        |verb: &str, seed| Rule::on(verb, "persistentvolumes").chance(333, seed).action(Action::Answer(500));
    proxy.set(vec![unlucky("create", 1), unlucky("delete", 2), unlucky("patch", 3)]);
    for late in ["persistentvolumeclaims", "persistentvolumes"] {
        proxy.delay_watch(late, LATE);
        let asked = Instant::now();
        let volume = stage.bound(late, &class).await.unwrap();
        let took = asked.elapsed();
        assert_eq!(took >= LATE, late == "persistentvolumeclaims", "bound after {took:?}");
        let deleted = Instant::now();
        stage.delete_claim(late).await.unwrap();
        stage.volume_gone(&volume).await.unwrap();
        let took = deleted.elapsed();
        assert_eq!(took >= LATE, late == "persistentvolumes", "gone after {took:?}");
        proxy.delay_watch(late, Duration::ZERO);
    }
    let made = stage.ledger.ended("provision").unwrap().into_iter().filter(|call| call.changed).count();
    assert_eq!(made, 2);
    stage.finish(&[]).await.unwrap();
}
