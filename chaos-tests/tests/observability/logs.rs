//! The log of a real replica: one line per outcome, nothing about others' claims, and a level that changes.

use chaos_tests::cluster::{self, Scope};
use rustix::process::Signal;
use serde_json::Value;

use super::cast::{Cast, eventually};

/// The lines of a replica's log that say this.
fn lines(cast: &Cast<'_>, message: &str) -> Vec<Value> {
    let text = cast.replicas[0].log_text().unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn each_outcome_is_one_line_with_its_claim_and_trace_and_foreign_claims_have_none() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let foreign = scope.create_class("foreign", |class| class.provisioner = "else.example.dev".to_owned());
    let foreign = foreign.await.unwrap().metadata.name.unwrap();
    let cast = Cast::start(scope, 1, None).await;
    cast.scope.create_claim("not-ours", &foreign, |_| ()).await.unwrap();
    cast.fail_once();
    let uid = cast.claim("ours").await;
    let volume = cast.volume_of("ours").await;
    cast.delete("ours", &volume).await;
    eventually("the line of the deletion", async || (!lines(&cast, "removed").is_empty()).then_some(()))
        .await;
    for (message, level) in [("provisioned", "INFO"), ("provisioning failed", "WARN"), ("removed", "INFO")] {
        let [line] = &lines(&cast, message)[..] else { panic!("not one line {message:?}") };
        assert_eq!(line["level"], level);
        assert_eq!(line["volume"], format!("pvc-{uid}"));
        assert!(line["epoch"].is_u64() && line["trace_id"].is_string(), "{line}");
    }
    let provisioned = &lines(&cast, "provisioned")[0];
    assert_eq!(provisioned["claim"], format!("{}/ours", cast.scope.namespace()));
    assert_eq!(provisioned["trace_id"], uid.replace('-', ""));
    assert_eq!(provisioned["attempt"], 2);
    assert!(!cast.replicas[0].log_text().unwrap().contains("not-ours"));
}

#[tokio::test]
async fn a_hangup_changes_the_level_and_a_configuration_that_is_wrong_changes_nothing() {
    let cast = Cast::start(Scope::new(cluster::shared().await.unwrap()).await.unwrap(), 1, None).await;
    let hang_up = async |level: &str, message: &str| {
        cast.set_log_level("r0", level);
        cast.replicas[0].signal(Signal::HUP).unwrap();
        eventually(message, async || lines(&cast, message).pop()).await
    };
    let line = hang_up("debug", "logging at this level from now on").await;
    assert_eq!(line["level"], "INFO", "the line's own level");
    let line = hang_up("kube=loud", "the log level stays as it is").await;
    assert_eq!(line["level"], "WARN");
    cast.claim("data").await;
    cast.volume_of("data").await;
    let text = cast.replicas[0].log_text().unwrap();
    assert!(text.contains(r#""level":"DEBUG""#), "nothing at level debug");
}
