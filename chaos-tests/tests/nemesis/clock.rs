//! Clocks that run at another rate. What offsets and steps of wall clocks do is in `tests/leadership.rs`.

use chaos_tests::{
    ledger::stage::{DEADLINE, Stage},
    nemesis::clock::{self, Clock},
    proxy::{Action, Proxy, Rule},
    wait,
};

use crate::{beliefs, start};

/// A replica all of whose clocks run at this rate, behind a proxy.
async fn start_at(stage: &mut Stage<'_>, name: &str, rate: f64) -> Proxy {
    let file = |suffix: &str| stage.scope.directory().join(format!("{name}.{suffix}"));
    let clock = Clock::machine(&file("clock"), rate).unwrap();
    let proxy = Proxy::start(stage.scope.plane(), &file("jsonl")).await.unwrap();
    let mut spec = stage.spec(name, Some(&proxy.server())).await.unwrap();
    spec.env.extend(clock.env());
    start(stage, spec).await;
    proxy
}

#[tokio::test]
async fn a_leader_whose_clocks_are_slow_has_stopped_before_a_standby_whose_clocks_are_fast_takes_over() {
    if clock::library().is_none() {
        eprintln!("skipped: libfaketime is not installed (Debian: faketime)");
        return;
    }
    let rates = [0.9, 1.1];
    let mut stage = crate::stage().await;
    let slow = start_at(&mut stage, "slow", rates[0]).await;
    stage.leader().await.unwrap();
    let _fast = start_at(&mut stage, "fast", rates[1]).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("before", &class).await.unwrap();
    // It must not learn from the Lease that it is over.
    slow.freeze("leases");
    slow.set(vec![Rule::about("leases").action(Action::CutBefore)]);
    let taken = |lease: &_| stage.holder(lease) == Some(1);
    wait::until(&stage.leases(), stage.scope.provisioner(), DEADLINE, taken).await.unwrap();
    stage.bound("after", &class).await.unwrap();
    let [mut both, fast_ones] = [0, 1].map(|place| beliefs::of(&stage.replicas[place], rates[place]));
    for (replica, rate) in stage.replicas.iter().zip(rates) {
        let measured = beliefs::rate(replica);
        assert!((measured - rate).abs() < 0.02, "the lease's clock of {} runs at {measured}", replica.name());
    }
    both.extend(fast_ones);
    assert_eq!(beliefs::check_apart(both), 2);
    slow.set(Vec::new());
    slow.thaw("leases");
    stage.finish(&[]).await.unwrap();
}
