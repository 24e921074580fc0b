//! The API server's store went back in time: what the Arbiter knew is of another history.

use super::*;

fn relist<T>() -> [watch::News<T>; 1] {
    [watch::News::Relisting]
}

#[test]
fn after_a_restore_nothing_of_before_is_worked_on_and_nothing_starts_before_all_was_listed_anew() {
    let mut table = Table::leading(rules());
    table.claim("lost");
    table.claim("waiting");
    assert!(table.did().iter().any(|line| line.contains("pvc-lost")));
    table.arbiter.forget_all(table.now);
    table.sync();
    table.lead(60);
    assert!(!table.arbiter.is_synced(), "the ends of lists that began before tell nothing");
    table.finish("pvc-lost", Outcome::Stopped { unknown: true });
    table.did();
    table.arbiter.see_claims(&relist(), table.now);
    table.arbiter.see_volumes(&relist(), table.now);
    table.arbiter.see_classes(&relist(), table.now);
    table.arbiter.see_nodes(&relist(), table.now);
    table.class("fast", OURS);
    table.claim("found");
    assert!(table.did().iter().all(|line| !line.contains("pvc-")), "not before all is listed");
    table.sync();
    let started: Vec<_> = table.did().into_iter().filter(|line| line.contains("pvc-")).collect();
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(started[0].contains("pvc-found"), "not even what was unknown: {started:?}");
}
