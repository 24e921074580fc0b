//! The log of a real replica: one line per outcome, nothing about others' claims, and a level that changes.

use std::fs;

use chaos_tests::ledger::stage::Stage;
use kube::ResourceExt;
use rustix::process::Signal;
use serde_json::Value;

use crate::{eventually, fails_first, scope, stage};

/// The lines of a replica's log that say this.
fn lines(stage: &Stage<'_>, message: &str) -> Vec<Value> {
    let text = stage.replicas[0].log_text().unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn each_outcome_is_one_line_with_its_claim_and_trace_and_foreign_claims_have_none() {
    let scope = scope().await;
    let foreign = scope.create_class("foreign", |class| class.provisioner = "else.example.dev".to_owned());
    let foreign = foreign.await.unwrap().metadata.name.unwrap();
    let stage = stage(scope, 1, None).await;
    let class = stage.class("c", |_| ()).await.unwrap();
    stage.claim("not-ours", &foreign).await.unwrap();
    stage.ledger.set(&[fails_first("ours")]).unwrap();
    let uid = stage.claim("ours", &class).await.unwrap().uid().unwrap();
    let volume = stage.volume_of("ours").await.unwrap();
    stage.delete_claim("ours").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    eventually("the line of the deletion", async || (!lines(&stage, "removed").is_empty()).then_some(()))
        .await;
    for (message, level) in [("provisioned", "INFO"), ("provisioning failed", "WARN"), ("removed", "INFO")] {
        let [line] = &lines(&stage, message)[..] else { panic!("not one line {message:?}") };
        assert_eq!(line["level"], level);
        assert_eq!(line["volume"], format!("pvc-{uid}"));
        assert!(line["epoch"].is_u64() && line["trace_id"].is_string(), "{line}");
    }
    let provisioned = &lines(&stage, "provisioned")[0];
    assert_eq!(provisioned["claim"], format!("{}/ours", stage.scope.namespace()));
    assert_eq!(provisioned["trace_id"], uid.replace('-', ""));
    assert_eq!(provisioned["attempt"], 2);
    assert!(!stage.replicas[0].log_text().unwrap().contains("not-ours"));
}

#[tokio::test]
async fn a_hangup_changes_the_level_and_a_configuration_that_is_wrong_changes_nothing() {
    let stage = stage(scope().await, 1, None).await;
    let config = stage.scope.directory().join("r0.yaml");
    let hang_up = async |level: &str, message: &str| {
        // JSON is YAML.
        let mut settings: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        settings["logLevel"] = level.into();
        fs::write(&config, settings.to_string()).unwrap();
        stage.replicas[0].signal(Signal::HUP).unwrap();
        eventually(message, async || lines(&stage, message).pop()).await
    };
    let line = hang_up("debug", "logging at this level from now on").await;
    assert_eq!(line["level"], "INFO", "the line's own level");
    let line = hang_up("kube=loud", "the log level stays as it is").await;
    assert_eq!(line["level"], "WARN");
    let class = stage.class("c", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    let text = stage.replicas[0].log_text().unwrap();
    assert!(text.contains(r#""level":"DEBUG""#), "nothing at level debug");
}
