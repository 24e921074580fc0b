//! An API server that is away, silent, or not there yet, on a control plane that only these tests use and may break.

use std::time::Duration;

use chaos_tests::{
    binaries::Program,
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    ledger::{
        Conduct, Rule,
        stage::{DEADLINE, Setup, Stage},
    },
};
use tokio::sync::OnceCell;

/// One after the other: each breaks the API server for all.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

async fn plane() -> &'static ControlPlane {
    let options = Options { scheduler: false, ..Options::default() };
    PLANE.get_or_try_init(|| ControlPlane::start(options)).await.unwrap()
}

/// Lets the API server go on, also after a test that failed.
struct Turn(#[expect(dead_code, reason = "held until the end")] tokio::sync::MutexGuard<'static, ()>);

impl Turn {
    async fn take() -> Self {
        Self(TURN.lock().await)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(plane) = PLANE.get() {
            let _ = plane.resume(Program::KubeApiserver);
        }
    }
}

async fn stage(setup: Setup) -> Stage<'static> {
    Stage::start(Scope::new(plane().await).await.unwrap(), crate::LEDGER.as_ref(), setup).await.unwrap()
}

/// CASES 29.
#[tokio::test]
async fn an_api_server_that_is_silent_for_eight_seconds_ends_no_process_and_service_resumes() {
    let _turn = Turn::take().await;
    let stage = stage(Setup::replicas(2)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("before", &class).await.unwrap();
    stage
        .ledger
        .set(&[Rule::on("provision").claim("data").first(1).conduct(Conduct::behind("gate"))])
        .unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_begun("provision", 2, DEADLINE).await.unwrap();
    plane().await.pause(Program::KubeApiserver).unwrap();
    let silence = tokio::time::Instant::now();
    // The guard ends after 2.25 s at most: from then on nothing may begin, and what runs is cancelled.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let at_the_end = stage.ledger.log().unwrap().len();
    for replica in &stage.replicas {
        // A standby notices when its turn would come, after 3 s, and nobody answers.
        let unready = async || Ok((replica.get("/readyz").await?.status == 200).then(|| "ready".to_owned()));
        stage.eventually("without an API server nobody is ready", unready).await.unwrap();
        assert_eq!(replica.get("/livez").await.unwrap().status, 200, "a restart would not help");
    }
    tokio::time::sleep_until(silence + Duration::from_secs(8)).await;
    stage.ledger.open("gate").unwrap();
    assert_eq!(stage.ledger.log().unwrap().len(), at_the_end, "nothing began without a guard");
    plane().await.resume(Program::KubeApiserver).unwrap();
    stage.volume_of("data").await.unwrap();
    stage.bound("after", &class).await.unwrap();
    stage.wait_ready().await.unwrap();
    assert!(stage.replicas.iter().all(|replica| replica.exit_status().is_none()));
    assert_eq!(stage.ledger.assets().unwrap().len(), 3);
    stage.finish(&[]).await.unwrap();
}

/// Issue 3, bad input.
#[tokio::test]
async fn without_an_api_server_a_replica_stays_up_says_so_and_goes_on_when_it_comes() {
    let _turn = Turn::take().await;
    let scope = Scope::new(plane().await).await.unwrap();
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    let spec = stage.spec("r0", None).await.unwrap();
    plane().await.kill(Program::KubeApiserver).unwrap();
    stage.replicas.push(chaos_tests::replica::Replica::start(&stage.scope, spec).unwrap());
    let replica = stage.replica(0).unwrap();
    let says_so = async || {
        let Ok(answer) = replica.get("/readyz").await else { return Ok(Some("no answer yet".to_owned())) };
        let fits =
            answer.status != 200 && answer.body.contains("kube-system") && answer.body.contains("refused");
        Ok((!fits).then(|| format!("{} {}", answer.status, answer.body)))
    };
    stage.eventually("readiness says that there is no API server", says_so).await.unwrap();
    let logged = async || {
        let log = replica.log_text()?;
        Ok((!log.contains("the API server can't be used yet")).then_some(log))
    };
    stage.eventually("the log says it too", logged).await.unwrap();
    assert_eq!(replica.get("/livez").await.unwrap().status, 200);
    assert_eq!(replica.exit_status(), None);
    plane().await.restart(Program::KubeApiserver).await.unwrap();
    stage.wait_ready().await.unwrap();
    stage.volume_of("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 11 and 29: the server is killed in the middle of work, and comes back.
#[tokio::test]
async fn an_api_server_that_is_killed_amid_claims_and_deletions_loses_none() {
    let _turn = Turn::take().await;
    let stage = stage(Setup::replicas(2)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let slow = |operation: &str| Rule::on(operation).conduct(Conduct::slow(Duration::from_millis(300)));
    for number in 0..5 {
        stage.bound(&format!("old-{number}"), &class).await.unwrap();
    }
    stage.ledger.set(&[slow("provision"), slow("delete")]).unwrap();
    for number in 0..5 {
        stage.claim(&format!("new-{number}"), &class).await.unwrap();
        stage.delete_claim(&format!("old-{number}")).await.unwrap();
    }
    stage.ledger.wait_begun("delete", 1, DEADLINE).await.unwrap();
    plane().await.kill(Program::KubeApiserver).unwrap();
    plane().await.restart(Program::KubeApiserver).await.unwrap();
    for number in 0..5 {
        stage.volume_of(&format!("new-{number}")).await.unwrap();
    }
    let rest = async || {
        let volumes = stage.scope.volumes().await?.len();
        Ok((volumes != 5).then(|| format!("{volumes} volumes")))
    };
    stage.eventually("the old ones are gone", rest).await.unwrap();
    stage.finish(&[]).await.unwrap();
}
