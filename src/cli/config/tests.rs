//! The configuration as a whole: every option by each of its ways, precedence, and messages.

use std::{collections::BTreeSet, io};

use clap::{Command, FromArgMatches as _};
use serde_json::{Value, json};

use super::{
    environment,
    file::entry_key,
    table::{OPTIONS, OptionSpec, Scope, Shape},
    *,
};
use crate::options::{ControllerOptions, LeaderElectionOptions};

/// What a run of the program is given.
#[derive(Clone, Debug, Default)]
struct Given {
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    file: Option<String>,
}

impl Given {
    /// The least that is valid.
    fn minimal() -> Self {
        Self::flags(&["--provisioner-name=example.com/disk", "--backend=directory", "--directory-path=/srv"])
    }

    fn flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(ToString::to_string).collect(), ..Self::default() }
    }

    fn file(text: &str) -> Self {
        Self { file: Some(text.into()), ..Self::default() }
    }

    fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.into());
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn merge(&self) -> Result<Merged, ConfigError> {
        let words = ["kube-provisioner"].into_iter().chain(self.flags.iter().map(String::as_str));
        let command = <Flags as clap::Args>::augment_args(Command::new("kube-provisioner"));
        let matches = command.try_get_matches_from(words).expect("well-formed flags");
        let mut flags = Flags::from_arg_matches(&matches).unwrap();
        if self.file.is_some() {
            let source = Source::Flag("--config".into());
            flags.0.insert("config", Sourced { text: Text::One("config.yaml".into()), source });
        }
        let read = |_: &str| self.file.clone().ok_or_else(|| io::Error::other("no file"));
        Merged::from_layers(&flags.0, environment::layer(self.variables.clone())?, read)
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        Settings::validate(&self.merge()?)
    }

    fn accepted(&self) -> Settings {
        self.settings().unwrap_or_else(|error| panic!("{self:?} is refused: {error}"))
    }

    fn refused(&self) -> String {
        self.settings().expect_err("a wrong configuration is refused").to_string()
    }
}

/// For each option one value that differs from its default, and one that is refused. A backend's own
/// fields are its own to refuse.
#[rustfmt::skip]
const SAMPLES: &[(&str, &str, Option<&str>)] = &[
    ("kubeconfig", "/etc/kubeconfig", None),
    ("http_address", "127.0.0.1:0", Some("8080")),
    ("log_format", "human", Some("xml")),
    ("log_level", "debug", Some("kube=loud")),
    ("otlp_endpoint", "http://collector:4318", Some("collector")),
    ("provisioner_name", "example.com/other", Some("a/b/c")),
    ("additional_provisioner_names", "example.com/old", Some("a b")),
    ("instance", "rack-7", Some("Rack")),
    ("resync_period", "1h", Some("15")),
    ("exponential_backoff_on_error", "false", Some("no")),
    ("retry_initial", "1s", Some("0s")),
    ("retry_max", "2h", Some("1s")),
    ("failed_provision_threshold", "15", Some("-1")),
    ("failed_delete_threshold", "15", Some("many")),
    ("provision_workers", "4", Some("0")),
    ("delete_workers", "4", Some("0")),
    ("provision_timeout", "1m", Some("-1m")),
    ("deletion_timeout", "1m", Some("0s")),
    ("add_finalizer", "false", Some("maybe")),
    ("volume_name_prefix", "vol", Some("PVC")),
    ("volume_name_uuid_length", "16", Some("33")),
    ("event_verbosity", "all", Some("loud")),
    ("audit_interval", "1m", Some("often")),
    ("orphans", "report", Some("eat")),
    ("drain_budget", "1s", Some("soon")),
    ("lease_namespace", "storage", Some("a.b")),
    ("lease_name", "mine", Some("a/b")),
    ("lease_labels", "team=storage", Some("team=a b")),
    ("lease_profile", "fast", Some("slow")),
    ("lease_duration", "30s", Some("1500ms")),
    ("lease_hold", "11s", Some("15s")),
    ("lease_renew", "1s", Some("9s")),
    ("backend", "exec", Some("floppy")),
    ("directory_path", "/other", None),
    ("directory_mode", "0700", None),
    ("directory_uid", "1000", Some("me")),
    ("directory_gid", "1000", Some("us")),
    ("exec_command", "/bin/true", None),
    ("exec_env", "HOME=/", Some("HOME")),
    ("exec_pass_env", "PATH", None),
    ("exec_working_directory", "/srv", None),
];

fn spec(id: &str) -> &'static OptionSpec {
    table::by_id(id).unwrap()
}

/// The least that is valid, without what `id` says, and with the backend whose option `id` is.
fn around(id: &str) -> Given {
    let mut given = if id.starts_with("exec_") || id == "backend" {
        Given::flags(&["--provisioner-name=example.com/disk", "--backend=exec"])
    } else {
        Given::minimal()
    };
    let own = format!("{}=", spec(id).flag());
    given.flags.retain(|flag| !flag.starts_with(&own));
    given
}

/// A file with nothing but this value of this option.
fn file_with(spec: &OptionSpec, value: &str) -> String {
    let value = match (spec.shape, value.split_once('=')) {
        (Shape::One, _) if value.parse::<u32>().is_ok() && !value.starts_with('0') => value.to_owned(),
        (Shape::One, _) => json!(value).to_string(),
        (Shape::Map, Some((key, value))) => json!({ key: value }).to_string(),
        (Shape::List | Shape::Map, _) => json!([value]).to_string(),
    };
    match spec.key.split('.').collect::<Vec<_>>().as_slice() {
        ["backend"] => format!("backend: {{ {value}: {{}} }}\n"),
        ["backend", kind, field] => format!("backend: {{ {kind}: {{ {field}: {value} }} }}\n"),
        _ => format!("# a comment\n{}: {value}\n", spec.key),
    }
}

#[test]
fn every_option_has_a_sample_and_names_that_derive_from_its_id() {
    let ids: BTreeSet<_> = OPTIONS.iter().map(|spec| spec.id).filter(|id| *id != "config").collect();
    assert_eq!(ids, SAMPLES.iter().map(|(id, ..)| *id).collect());
    for spec in OPTIONS.iter().filter(|spec| spec.scope != Scope::Backend && !spec.key.is_empty()) {
        assert_eq!(spec.key.to_ascii_lowercase(), spec.id.replace('_', ""), "the key of {}", spec.id);
    }
}

#[test]
fn every_option_works_the_same_by_flag_environment_and_file() {
    for (id, good, _) in SAMPLES {
        let (spec, around) = (spec(id), around(id));
        let by_flag = around.clone().flag(&format!("{}={good}", spec.flag())).accepted();
        let by_variable = around.clone().variable(&spec.environment(), good).accepted();
        let mut in_file = around.clone();
        // A section in the file names its backend itself.
        in_file.flags.retain(|flag| spec.scope != Scope::Backend || !flag.starts_with("--backend"));
        in_file.flags.retain(|flag| !(*id == "backend" && flag.starts_with("--directory")));
        in_file.file = Some(file_with(spec, good));
        assert_eq!(without_sources(&by_flag), without_sources(&by_variable), "{id}");
        assert_eq!(without_sources(&by_flag), without_sources(&in_file.accepted()), "{id}");
        if !matches!(*id, "backend" | "provisioner_name") {
            assert_ne!(without_sources(&by_flag), without_sources(&around.accepted()), "{id} has no effect");
        }
    }
}

/// Settings as text that says nothing of where they came from.
fn without_sources(settings: &Settings) -> String {
    let backends: Vec<Value> =
        settings.provisioners.iter().map(|one| one.backend.written().clone()).collect();
    let options: Vec<_> =
        settings.provisioners.iter().map(|one| (&one.controller, &one.leader_election)).collect();
    let Settings { kubeconfig, http_address, log_format, log_level, otlp_endpoint, provisioners: _ } =
        settings;
    format!(
        "{kubeconfig:?} {http_address} {log_format:?} {log_level} {otlp_endpoint:?} {options:?} {backends:?}"
    )
}

#[test]
fn every_wrong_value_is_refused_by_its_key_and_its_source() {
    for (id, _, bad) in SAMPLES {
        let (spec, around, Some(bad)) = (spec(id), around(id), bad) else { continue };
        let by_flag = around.clone().flag(&format!("{}={bad}", spec.flag())).refused();
        assert!(by_flag.starts_with(&format!("{}: ", spec.key)), "{by_flag}");
        assert!(by_flag.contains(&format!("from flag {} must", spec.flag())), "{by_flag}");
        let by_variable = around.clone().variable(&spec.environment(), bad).refused();
        assert!(
            by_variable.contains(&format!("from environment variable {}", spec.environment())),
            "{by_variable}"
        );
        if spec.scope != Scope::Backend {
            let mut in_file = around.clone();
            in_file.file = Some(file_with(spec, bad));
            let in_file = in_file.refused();
            assert!(in_file.contains("config.yaml:2") && in_file.contains(spec.key), "{in_file}");
        }
    }
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default() {
    let workers = |given: &Given| given.accepted().provisioners[0].controller.provision_workers.get();
    let mut given = Given::minimal();
    assert_eq!(workers(&given), 100);
    given.file = Some("provisionWorkers: 1".into());
    assert_eq!(workers(&given), 1);
    given = given.variable("KUBE_PROVISIONER_PROVISION_WORKERS", "2");
    assert_eq!(workers(&given), 2);
    given = given.flag("--provision-workers=3");
    assert_eq!(workers(&given), 3);
}

#[test]
fn an_entry_of_provisioners_wins_over_what_is_said_for_all() {
    let file = "retryMax: 1h\nprovisioners:\n- name: a\n  backend: {directory: {path: /a}}\n  retryMax: 2h\n\
                - name: b\n  additionalNames: [old-b]\n  backend: {exec: {command: [/bin/b]}}\n";
    let settings = Given::file(file).flag("--retry-max=3h").accepted();
    let hours: Vec<_> =
        settings.provisioners.iter().map(|one| one.controller.retry_max.as_secs() / 3600).collect();
    assert_eq!(hours, [2, 3]);
    assert_eq!(settings.provisioners[1].controller.additional_provisioner_names, ["old-b"]);
    assert_eq!(settings.provisioners[1].backend.written().clone(), json!({"exec": {"command": ["/bin/b"]}}));
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_library() {
    let settings = Given::minimal().accepted();
    assert_eq!(settings.provisioners[0].controller, ControllerOptions::new("example.com/disk"));
    assert_eq!(settings.provisioners[0].leader_election, LeaderElectionOptions::default());
    let fast = Given::minimal().flag("--lease-profile=fast").accepted();
    assert_eq!(fast.provisioners[0].leader_election, LeaderElectionOptions::fast());
}

#[test]
fn flags_of_the_backend_lie_over_the_section_of_the_file() {
    let backend = |given: &Given| given.accepted().provisioners[0].backend.written().clone();
    let given =
        Given::file("provisionerName: a\nbackend:\n  directory: {path: /a, future: {deep: [1, true]}}\n");
    assert_eq!(backend(&given), json!({"directory": {"path": "/a", "future": {"deep": [1, true]}}}));
    let given = given.flag("--directory-path=/b").flag("--directory-uid=7");
    assert_eq!(
        backend(&given),
        json!({"directory": {"path": "/b", "future": {"deep": [1, true]}, "uid": 7}})
    );
    let exec = Given::file("provisionerName: a\nbackend: {directory: {path: /a}}")
        .variable("KUBE_PROVISIONER_BACKEND", "exec")
        .variable("KUBE_PROVISIONER_EXEC_COMMAND", r#"["sh", "-c", "a,b"]"#)
        .variable("KUBE_PROVISIONER_EXEC_ENV", "A=1, B=2");
    let expected = json!({"exec": {"command": ["sh", "-c", "a,b"], "env": {"A": "1", "B": "2"}}});
    assert_eq!(backend(&exec), expected);
}

#[test]
fn the_arguments_of_a_program_may_begin_with_a_dash() {
    let given = Given::flags(&["--provisioner-name=a", "--backend=exec"]);
    let given = ["--exec-command", "sh", "--exec-command", "-c"].into_iter().fold(given, Given::flag);
    let backend = given.accepted().provisioners[0].backend.written().clone();
    assert_eq!(backend, json!({"exec": {"command": ["sh", "-c"]}}));
}

/// Wrong input as a whole, and what the message must say.
#[rustfmt::skip]
#[test]
fn what_has_no_place_is_refused_with_the_place_and_what_is_allowed() {
    let base = "provisionerName: a\nbackend: {directory: {path: /a}}\n";
    let two = |second: &str| format!("provisioners:\n- name: a\n  backend: {{directory: {{path: /a}}}}\n- {second}\n  backend: {{directory: {{path: /b}}}}\n");
    let cases: Vec<(Given, &[&str])> = vec![
        (Given::default(), &["backend is missing", "--backend", "KUBE_PROVISIONER_BACKEND", "directory or exec"]),
        (Given::flags(&["--backend=directory"]), &["provisionerName is missing", "--provisioner-name"]),
        (Given::file(&format!("{base}provisionWorker: 3\n")), &["config.yaml:3", "unknown key \"provisionWorker\", perhaps \"provisionWorkers\" was meant; allowed here: addFinalizer, "]),
        (Given::file(&format!("{base}provisionWorkers: [1]\n")), &["config.yaml:3", "provisionWorkers must be one value"]),
        (Given::file(&format!("{base}leaseLabels: [a]\n")), &["config.yaml:3", "leaseLabels must be a map"]),
        (Given::file(&format!("{base}additionalProvisionerNames: b\n")), &["config.yaml:3", "must be a list"]),
        (Given::file(&format!("{base}backend.directory.path: /b\n")), &["config.yaml:3", "unknown key"]),
        (Given::file(&format!("{base}provisionerName: b\n")), &["config.yaml:3", "duplicate"]),
        (Given::file("a: [\n"), &["config.yaml:", "not valid YAML"]),
        (Given::file("just text"), &["config.yaml:1", "must be a map"]),
        (Given::file("provisioners: []"), &["config.yaml:1", "at least one entry"]),
        (Given::file("provisioners: {}"), &["config.yaml:1", "must be a list"]),
        (Given::file("provisioners:\n- backend: {directory: {path: /a}}"), &["config.yaml:2", "provisionerName is missing"]),
        (Given::file("provisioners:\n- name: a"), &["config.yaml:2", "backend is missing"]),
        (Given::file("provisioners:\n- name: a\n  httpAddress: x"), &["config.yaml:3", "unknown key \"httpAddress\"", "additionalNames"]),
        (Given::file("provisionerName: a\nbackend: {directory: {}, exec: {}}"), &["config.yaml:2", "one key"]),
        (Given::file("provisionerName: a\nbackend: directory"), &["config.yaml:2", "must be a map with one key"]),
        (Given::file(&two("name: a")), &["config.yaml:4", "serves a", "too"]),
        (Given::file(&two("{name: b, additionalNames: [a],") .replace("\n  backend: {directory: {path: /b}}", " backend: {directory: {}}}")), &["config.yaml:4", "serves a"]),
        (Given::file(&two("name: b\n  leaseName: a")), &["config.yaml:5", "is the Lease of the provisioner a"]),
        (Given::file(&two("name: b")).flag("--lease-name=x"), &["flag --lease-name", "its entry of provisioners"]),
        (Given::file(&two("name: b")).flag("--directory-path=/x"), &["flag --directory-path", "its entry of provisioners"]),
        (Given::file(&format!("{}backend: {{exec: {{}}}}\n", two("name: b"))), &["config.yaml:6", "its entry of provisioners"]),
        (Given::minimal().flag("--exec-command=x"), &["backend.exec.command", "flag --exec-command", "no meaning for the backend directory"]),
        (Given::minimal().variable("KUBE_PROVISIONER_WORKERS", "1"), &["environment variable KUBE_PROVISIONER_WORKERS", "no option has this name"]),
        (Given::minimal().variable("KUBE_PROVISIONER_ADDITIONAL_PROVISIONER_NAMES", "[1]"), &["ADDITIONAL_PROVISIONER_NAMES", "JSON list"]),
        (Given::minimal().variable("KUBE_PROVISIONER_CONFIG", "/missing"), &["cannot read the configuration file /missing", "no file"]),
    ];
    for (given, parts) in &cases {
        let message = given.refused();
        for part in *parts {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}

#[test]
fn variables_that_service_links_make_are_no_options() {
    Given::minimal()
        .variable("KUBE_PROVISIONER_SERVICE_HOST", "10.0.0.1")
        .variable("KUBE_PROVISIONER_PORT", "tcp://10.0.0.1:80")
        .variable("KUBE_PROVISIONER_METRICS_PORT_8080_TCP", "tcp://10.0.0.1:8080")
        .accepted();
    let links = |name: &str| name.contains("_PORT") || name.contains("_SERVICE");
    assert!(OPTIONS.iter().all(|spec| !links(&spec.environment())), "an option looks like a service link");
}

#[test]
fn an_empty_variable_and_an_empty_key_count_as_absent() {
    let given = Given { file: Some("provisionWorkers:\n".into()), ..Given::minimal() };
    let settings = given.variable("KUBE_PROVISIONER_DELETE_WORKERS", "").accepted();
    assert_eq!(settings.provisioners[0].controller, ControllerOptions::new("example.com/disk"));
}

#[test]
fn what_check_prints_means_the_same_when_it_is_read() {
    let file = "logLevel: \"info,kube=debug\"\nleaseLabels: {team: 'storage'}\nprovisioners:\n\
                - {name: a, backend: {directory: {path: '/a: b'}}}\n- {name: b, leaseLabels: {x: y}, backend: {exec: {}}}\n";
    let given = Given::file(file).variable("KUBE_PROVISIONER_RETRY_MAX", "1h");
    let printed = given.merge().unwrap().to_yaml();
    assert!(
        printed.contains("retryMax: \"1h\" # environment variable KUBE_PROVISIONER_RETRY_MAX"),
        "{printed}"
    );
    assert!(printed.contains("name: \"b\" # config.yaml:5"), "{printed}");
    assert_eq!(without_sources(&Given::file(&printed).accepted()), without_sources(&given.accepted()));
}

#[test]
fn numbers_and_truth_values_of_the_file_are_read_as_they_are_written() {
    let file = "provisionerName: 1.10\nadditionalProvisionerNames: [&seven 007, 1e3]\ninstance: *seven\n\
                leaseLabels: {on: true}\naddFinalizer: false # a comment\nbackend: {exec: {}}\n";
    let provisioner = Given::file(&format!("# ä\n{file}")).accepted().provisioners.remove(0);
    let ControllerOptions { provisioner_name, additional_provisioner_names, instance, add_finalizer, .. } =
        provisioner.controller;
    assert_eq!((provisioner_name.as_str(), instance.as_deref(), add_finalizer), ("1.10", Some("007"), false));
    assert_eq!(additional_provisioner_names, ["007", "1e3"]);
    assert_eq!(provisioner.leader_election.lease_labels["on"], "true");
}

#[test]
fn an_empty_file_says_nothing() {
    for file in ["", "# only a comment\n", "---\n", "{}"] {
        Given { file: Some(file.into()), ..Given::minimal() }.accepted();
    }
}

#[test]
fn a_strange_document_is_refused_with_its_line_and_never_more() {
    let deep = format!("a: {}", "[".repeat(5000));
    let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n";
    for file in
        [deep.as_str(), bomb, "a: b\n---\nc: d\n", "[1]: x", "? {a: b}\n: c", "\t\u{1}x", "a: *nowhere"]
    {
        let message = Given { file: Some(file.into()), ..Given::minimal() }.refused();
        assert!(message.starts_with("config.yaml:") && message.len() < 2000, "{file:.20}: {message}");
    }
}

#[test]
fn the_environment_of_a_program_may_hold_secrets_and_is_never_shown() {
    let file = "provisionerName: a\nbackend: {exec: {command: [/bin/a], env: {TOKEN: hunter2}}}\n";
    let given = Given::file(file).variable("KUBE_PROVISIONER_EXEC_ENV", "KEY=hunter2");
    let merged = given.merge().unwrap();
    let shown = [merged.to_yaml(), format!("{merged:?}"), format!("{:?}", given.accepted())].concat();
    assert!(shown.contains("KEY") && !shown.contains("hunter2"), "{shown}");
    let wrong = Given::file(file).variable("KUBE_PROVISIONER_EXEC_ENV", "hunter2").refused();
    assert!(wrong.contains("EXEC_ENV") && !wrong.contains("hunter2"), "{wrong}");
}

#[test]
fn keys_in_an_entry_differ_only_where_they_are_short() {
    let differing: Vec<_> =
        OPTIONS.iter().filter(|spec| entry_key(spec) != spec.key).map(|spec| spec.id).collect();
    assert_eq!(differing, ["provisioner_name", "additional_provisioner_names"]);
}

#[test]
fn the_configuration_that_is_deployed_is_valid_and_fits_the_manifests_around_it() {
    let deployed = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let settings = Given::file(&deployed("config.yaml")).accepted();
    let provisioner = &settings.provisioners[0];
    let class: Value = serde_saphyr::from_str(&deployed("storage-class.yaml")).unwrap();
    assert_eq!(class["provisioner"], json!(provisioner.controller.provisioner_name));
    let rbac: Vec<Value> = serde_saphyr::from_multiple(&deployed("rbac.yaml")).unwrap();
    let role = rbac.iter().find(|object| object["kind"] == "Role").unwrap();
    let lease = provisioner.leader_election.name_for(&provisioner.controller);
    assert_eq!(role["rules"][0]["resourceNames"], json!([lease]));
    let base: Value = provisioner.backend.written().clone();
    let deployment: Value = serde_saphyr::from_str(&deployed("deployment.yaml")).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let path = &base["directory"]["path"];
    assert!(mounts.iter().any(|mount| mount["mountPath"] == *path));
    assert!(pod["volumes"].as_array().unwrap().iter().any(|volume| volume["hostPath"]["path"] == *path));
    let port = pod["containers"][0]["ports"][0]["containerPort"].as_u64();
    assert_eq!(port, Some(settings.http_address.port().into()));
}
