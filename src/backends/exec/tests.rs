//! The exec backend with real child processes: what programs do wrong, and what is left of them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tempfile::TempDir;

use super::*;
use crate::provisioner::ReclaimPolicy;

/// A claim of 1Gi, ReadWriteOnce, to be served within a minute.
pub(super) fn options(name: &str) -> VolumeOptions {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity("1Gi".into()))]);
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        resources: Some(VolumeResourceRequirements { requests: Some(requests), ..Default::default() }),
        ..Default::default()
    };
    let mut claim = PersistentVolumeClaim { spec: Some(spec), ..Default::default() };
    claim.metadata.name = Some("data".into());
    VolumeOptions {
        persistent_volume_reclaim_policy: ReclaimPolicy::Delete,
        pv_name: name.into(),
        pvc: Arc::new(claim),
        parameters: BTreeMap::new(),
        storage_class: Arc::new(StorageClass::default()),
        mount_options: vec![],
        selected_node: None,
        call: call(Duration::from_secs(60)),
    }
}

fn call(limit: Duration) -> Call {
    Call {
        provisioner: "example.com/shelf".into(),
        installation: "uid/example.com/shelf".into(),
        epoch: 7,
        deadline: SystemTime::now() + limit,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
    }
}

fn backend(command: &[&str], env: &[(&str, &str)]) -> ExecBackend {
    let pairs = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ExecBackend::new(ExecConfig {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env: pairs.collect(),
        pass_env: vec!["PATH".into()],
        working_directory: "/".into(),
    })
    .unwrap()
}

/// A backend whose program is a line of shell.
fn shell(script: &str) -> ExecBackend {
    backend(&["/bin/sh", "-c", script, "program"], &[])
}

async fn provision(backend: &ExecBackend) -> Result<PersistentVolume, ProvisionError> {
    backend.provision(options("pvc-1")).await
}

fn volume(name: &str) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = Some(name.into());
    volume
}

/// Waits until a file has a whole line, and gives it.
async fn line_of(path: &Path) -> String {
    until("a line is written", || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')))
        .await
}

/// Waits until no process, not even a zombie, has this id.
async fn gone(pid: &str) {
    let process = PathBuf::from("/proc").join(pid.trim());
    until("the process is gone", || (!process.exists()).then_some(())).await;
}

/// Waits until a process has ended. Whose child it is by then, and when that reaps it, is not ours to say.
async fn dead(pid: &str) {
    let stat = PathBuf::from("/proc").join(pid.trim()).join("stat");
    let ended = || match std::fs::read_to_string(&stat) {
        Ok(line) => line.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    };
    until("the process has ended", || ended().then_some(())).await;
}

/// Looks again and again, for ten seconds at most: nothing tells of another's files and processes.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("ten seconds went by before {what}");
}

#[tokio::test]
async fn the_request_the_argument_and_the_scrubbed_environment_reach_the_program() {
    let place = TempDir::new().unwrap();
    let script = r#"cat > "$PLACE/request"; env > "$PLACE/env"; echo "$1" > "$PLACE/operation"; pwd > "$PLACE/pwd"
        echo '{"outcome":"noChange","message":"seen"}'"#;
    let place_name = place.path().to_str().unwrap();
    let backend = backend(&["/bin/sh", "-c", script, "program"], &[("PLACE", place_name)]);
    let error = provision(&backend).await.unwrap_err();
    assert!(matches!(&error, ProvisionError::NoChange(_)) && error.to_string() == "seen", "{error:?}");
    let read = |file: &str| std::fs::read_to_string(place.path().join(file)).unwrap();
    let request: serde_json::Value = serde_json::from_str(&read("request")).unwrap();
    assert_eq!(request["claim"]["metadata"]["name"], "data");
    assert_eq!(request["epoch"], 7);
    assert_eq!(read("operation"), "provision\n");
    assert_eq!(read("pwd"), "/\n");
    let env = read("env");
    let mut names: Vec<_> = env.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // A shell sets these three by itself.
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["PATH", "PLACE", "TRACEPARENT"]);
}

#[tokio::test]
async fn each_outcome_reaches_the_controller_with_the_programs_own_reason() {
    type Fits = fn(&ProvisionError) -> bool;
    let cases: [(&str, Fits); 6] = [
        ("background", |e| matches!(e, ProvisionError::Background(_))),
        ("noChange", |e| matches!(e, ProvisionError::NoChange(_))),
        ("reschedule", |e| matches!(e, ProvisionError::Reschedule(_))),
        ("infeasible", |e| matches!(e, ProvisionError::Infeasible(_))),
        ("ignored", |e| matches!(e, ProvisionError::Ignored(_))),
        ("failed", |e| matches!(e, ProvisionError::Finished(_))),
    ];
    for (outcome, fits) in cases {
        let script = format!(r#"echo '{{"outcome":"{outcome}","message":"because"}}'"#);
        let error = provision(&shell(&script)).await.unwrap_err();
        assert!(fits(&error) && error.to_string().contains("because"), "{outcome}: {error:?}");
    }
}

#[tokio::test]
async fn outcomes_of_a_deletion_reach_the_controller() {
    let answered = |outcome: &str| shell(&format!(r#"echo '{{"outcome":"{outcome}","message":"because"}}'"#));
    let pv = volume("pvc-1");
    answered("done").delete(&pv).await.unwrap();
    shell("exit 0").delete(&pv).await.unwrap();
    assert!(matches!(answered("inUse").delete(&pv).await, Err(DeleteError::InUse(_))));
    assert!(matches!(answered("ignored").delete(&pv).await, Err(DeleteError::Ignored(_))));
    for odd in ["failed", "reschedule"] {
        assert!(matches!(answered(odd).delete(&pv).await, Err(DeleteError::Failed(_))));
    }
    assert!(matches!(shell("exit 1").delete(&pv).await, Err(DeleteError::Failed(_))));
}

#[tokio::test]
async fn what_leaves_the_outcome_unknown_is_asked_again() {
    let cases = [
        ("echo made it", "not one JSON object"),
        (r#"echo '{"outcome":"done"}{"outcome":"done"}'"#, "not one JSON object"),
        (r#"echo '{"outcome":"done"}'"#, "no volume"),
        (r#"echo '{"outcome":"done","volume":{"source":{}}}'"#, "exactly one entry"),
        (r#"echo '{"outcome":"inUse"}'"#, "no outcome of provision"),
        (r#"echo disk on fire >&2; echo '{"outcome":"failed"}'; exit 3"#, "disk on fire"),
        ("kill -SEGV $$", "signal 11"),
    ];
    for (script, why) in cases {
        let error = provision(&shell(script)).await.unwrap_err();
        assert!(matches!(error, ProvisionError::Background(_)), "{script}: {error:?}");
        assert!(error.to_string().contains(why), "{script}: {error}");
    }
}

#[tokio::test]
async fn a_program_that_is_missing_or_not_executable_has_changed_nothing() {
    for program in ["/nowhere/to/be/found", "/etc/passwd", "/"] {
        let error = provision(&backend(&[program], &[])).await.unwrap_err();
        assert!(matches!(error, ProvisionError::NoChange(_)), "{error:?}");
        assert!(error.to_string().contains(program), "{error}");
    }
}

#[tokio::test]
async fn silence_is_a_failure_that_made_nothing() {
    let error = provision(&shell("echo no idea >&2")).await.unwrap_err();
    assert!(matches!(&error, ProvisionError::Finished(_)) && error.to_string() == "no idea", "{error:?}");
}

#[tokio::test]
async fn a_flood_on_either_pipe_neither_hangs_nor_fills_memory() {
    let before = memory("VmRSS");
    let error = provision(&shell("exec head -c 100000000 /dev/zero")).await.unwrap_err();
    assert!(error.to_string().contains("passed 1048576 bytes"), "{error}");
    let script = r#"echo first >&2; head -c 100000000 /dev/zero >&2; echo '{"outcome":"failed"}'"#;
    let error = provision(&shell(script)).await.unwrap_err();
    assert!(matches!(&error, ProvisionError::Finished(_)) && error.to_string() == "first", "{error:?}");
    let grown = memory("VmRSS").saturating_sub(before);
    assert!(grown < 50_000, "200 MB of output left {grown} kB more in memory");
}

/// A figure of this process, in kB.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_program_that_does_not_read_its_request_still_answers() {
    let backend = shell(r#"exec <&-; echo '{"outcome":"failed","message":"deaf"}'"#);
    let mut options = options("pvc-1");
    // More than a pipe holds.
    options.parameters.insert("filler".into(), "x".repeat(1_000_000));
    assert_eq!(backend.provision(options.clone()).await.unwrap_err().to_string(), "deaf");
    let backend = shell(r#"echo '{"outcome":"failed","message":"deaf"}'"#);
    assert_eq!(backend.provision(options).await.unwrap_err().to_string(), "deaf");
}

#[tokio::test]
async fn a_grandchild_that_keeps_the_pipes_open_delays_nothing_and_is_killed() {
    let place = TempDir::new().unwrap();
    let pid = place.path().join("pid");
    let script =
        format!(r#"sleep 1000 & echo $! > {}; echo '{{"outcome":"failed","message":"ok"}}'"#, pid.display());
    let started = Instant::now();
    assert_eq!(provision(&shell(&script)).await.unwrap_err().to_string(), "ok");
    assert!(started.elapsed() < Duration::from_secs(30), "waited for the grandchild");
    dead(&line_of(&pid).await).await;
}

#[tokio::test]
async fn the_deadline_kills_the_whole_group() {
    let place = TempDir::new().unwrap();
    let (child, own) = (place.path().join("child"), place.path().join("own"));
    let script = format!(
        "trap '' TERM; echo working on it >&2; sleep 1000 & echo $! > {}; echo $$ > {}; wait",
        child.display(),
        own.display()
    );
    let mut options = options("pvc-1");
    options.call = call(Duration::from_secs(2));
    let error = shell(&script).provision(options).await.unwrap_err();
    assert!(matches!(error, ProvisionError::Background(_)), "{error:?}");
    assert_eq!(error.to_string(), "working on it (the program was killed at its deadline)");
    dead(&line_of(&child).await).await;
    gone(&line_of(&own).await).await;
}

#[tokio::test]
async fn dropping_the_call_kills_the_whole_group_and_leaves_no_zombie() {
    let place = TempDir::new().unwrap();
    let (child, own) = (place.path().join("child"), place.path().join("own"));
    let script = format!("sleep 1000 & echo $! > {}; echo $$ > {}; wait", child.display(), own.display());
    let task = tokio::spawn(async move { provision(&shell(&script)).await });
    let (child, own) = (line_of(&child).await, line_of(&own).await);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    dead(&child).await;
    gone(&own).await;
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_starts_nothing() {
    let place = TempDir::new().unwrap();
    let mark = place.path().join("started");
    let mut options = options("pvc-1");
    options.call.deadline = SystemTime::now() - Duration::from_secs(1);
    let error = shell(&format!("touch {}", mark.display())).provision(options).await.unwrap_err();
    assert!(matches!(error, ProvisionError::NoChange(_)), "{error:?}");
    assert!(!mark.exists());
}

#[tokio::test]
async fn capabilities_are_what_the_program_says_or_the_least() {
    let said = shell(r#"echo '{"outcome":"done","operations":["provision","delete"],"topology":true}'"#);
    assert_eq!(said.capabilities().await, Capabilities { topology: true, ..Default::default() });
    for script in ["exit 2", "echo garbage", r#"echo '{"outcome":"failed","block":true}'"#, ""] {
        assert_eq!(shell(script).capabilities().await, Capabilities::default(), "{script}");
    }
}

/// A program that is killed the first times that it is asked what it can do, and that can `keep`.
fn killed_at_first(place: &TempDir, times: usize) -> ExecBackend {
    let count = place.path().join("count");
    shell(&format!(
        r#"echo >>{0}
           case $1 in
             capabilities) [ $(wc -l <{0}) -gt {times} ] || kill -9 $$
                           echo '{{"outcome":"done","operations":["keep"],"block":true}}';;
             *) echo '{{"outcome":"done"}}'; touch {1};;
           esac"#,
        count.display(),
        place.path().join("kept").display()
    ))
}

#[tokio::test]
async fn a_program_that_was_not_let_tell_its_capabilities_is_asked_again() {
    let place = TempDir::new().unwrap();
    let told = killed_at_first(&place, 2).capabilities().await;
    assert_eq!(told, Capabilities { keep: true, block: true, ..Default::default() });
}

#[tokio::test]
async fn an_asset_is_not_given_up_while_it_is_not_known_whether_the_program_can_keep_it() {
    let place = TempDir::new().unwrap();
    let backend = killed_at_first(&place, 4);
    assert_eq!(backend.capabilities().await, Capabilities::default(), "for the moment");
    let (pv, call) = (volume("pvc-1"), call(Duration::from_secs(60)));
    backend.keep(&pv, &call).await.unwrap_err();
    backend.keep(&pv, &call).await.unwrap();
    assert!(place.path().join("kept").exists());
}

#[tokio::test]
async fn keep_is_asked_of_programs_that_know_it_alone() {
    let knows = r#"case $1 in capabilities) echo '{"outcome":"done","operations":["keep"]}';;"#;
    let pv = volume("pvc-1");
    let call = call(Duration::from_secs(60));
    let fails = shell(&format!("{knows} *) echo not now >&2; exit 1;; esac"));
    assert!(fails.keep(&pv, &call).await.unwrap_err().to_string().contains("not now"));
    let done = shell(&format!(r#"{knows} *) echo '{{"outcome":"done"}}';; esac"#));
    done.keep(&pv, &call).await.unwrap();
    shell("exit 1").keep(&pv, &call).await.unwrap();
}

/// The examples of the documentation, each with the interpreter it needs.
fn examples(base: &Path) -> Vec<ExecBackend> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/exec");
    let env = [("BASE_DIR", base.to_str().unwrap())];
    let mut found =
        vec![backend(&["/bin/sh", examples.join("shell/directories.sh").to_str().unwrap()], &env)];
    match python() {
        Some(python) => {
            let script = examples.join("python/directories.py");
            found.push(backend(&[python.to_str().unwrap(), script.to_str().unwrap()], &env));
        }
        None => eprintln!("there is no python3 here: the Python example is not tested"),
    }
    found
}

fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join("python3")).find(|program| program.exists())
}

#[tokio::test]
async fn the_examples_make_adopt_keep_and_remove_volumes() {
    let place = TempDir::new().unwrap();
    for example in examples(place.path()) {
        let made = example.provision(options("pvc-1")).await.unwrap();
        let path = made.spec.clone().unwrap().host_path.unwrap().path;
        assert_eq!(Path::new(&path), place.path().join("pvc-1"));
        std::fs::write(Path::new(&path).join("data"), "precious").unwrap();
        assert_eq!(example.provision(options("pvc-1")).await.unwrap(), made, "not idempotent");
        assert_eq!(std::fs::read_to_string(Path::new(&path).join("data")).unwrap(), "precious");
        let call = call(Duration::from_secs(60));
        example.keep(&made, &call).await.unwrap();
        assert!(place.path().join(".kept-pvc-1").exists());
        for _ in 0..2 {
            example.delete_with(&made, &call).await.unwrap();
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }
}

#[tokio::test]
async fn the_examples_refuse_names_that_leave_the_base_and_volumes_that_are_not_theirs() {
    let outer = TempDir::new().unwrap();
    let base = outer.path().join("base");
    std::fs::create_dir(&base).unwrap();
    for example in examples(&base) {
        for hostile in ["../escape", "/tmp/escape", "..", "", ".hidden", "a/b"] {
            example.provision(options(hostile)).await.unwrap_err();
            example.delete(&volume(hostile)).await.unwrap_err();
        }
        let mut forged = example.provision(options("pvc-1")).await.unwrap();
        forged.spec.as_mut().unwrap().host_path.as_mut().unwrap().path = "/etc".into();
        example.delete(&forged).await.unwrap_err();
        assert!(base.join("pvc-1").exists());
        example.delete(&volume("pvc-1")).await.unwrap();
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 0);
    }
}
