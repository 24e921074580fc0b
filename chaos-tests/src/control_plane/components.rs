//! How each program of the control plane is started: its flags and its configuration files. Starts nothing.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    Jaeger, Options,
    certificates::{Authority, Identity},
    kubeconfig::{self, Credentials},
};
use crate::{binaries::Program, ports::Port, process::Launch};

/// What Jaeger shows of a trace.
const TRACE_PAGE: &str = include_str!("../../trace-page/index.html");

/// Everything that is decided before the first program starts.
pub(super) struct Plan {
    pub(super) launches: BTreeMap<Program, Launch>,
    pub(super) server: String,
    pub(super) authority: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) audit_log: Option<PathBuf>,
    pub(super) jaeger: Option<Jaeger>,
    /// Held as long as the control plane lives, so that its programs can restart on their ports.
    pub(super) ports: Vec<Port>,
}

struct Planner<'a> {
    directory: &'a Path,
    options: &'a Options,
    programs: &'a BTreeMap<Program, PathBuf>,
    ports: Vec<Port>,
    launches: BTreeMap<Program, Launch>,
}

/// Writes keys, certificates and configuration into `directory` and lays out how the programs start.
pub(super) fn plan(
    directory: &Path,
    options: &Options,
    programs: &BTreeMap<Program, PathBuf>,
) -> Result<Plan> {
    let mut planner = Planner { directory, options, programs, ports: Vec::new(), launches: BTreeMap::new() };
    let authority = Authority::new(directory)?;
    let token_keys = authority.token_keys()?;
    let etcd = planner.etcd()?;
    let audit_log = options.audit_log.then(|| directory.join("audit.log"));
    let server = planner.apiserver(&etcd, &authority, &token_keys, audit_log.as_deref())?;
    let kubeconfig = planner.kubeconfig("admin", "admin", Some("system:masters"), &server, &authority)?;
    planner.controller_manager(&server, &authority, &token_keys)?;
    if options.scheduler {
        planner.scheduler(&server, &authority)?;
    }
    let jaeger = if options.jaeger { Some(planner.jaeger()?) } else { None };
    let Planner { ports, launches, .. } = planner;
    Ok(Plan { launches, server, authority: authority.certificate(), kubeconfig, audit_log, jaeger, ports })
}

/// Where etcd keeps what it stores.
pub(super) fn etcd_data(directory: &Path) -> PathBuf {
    directory.join("etcd")
}

impl Planner<'_> {
    fn port(&mut self) -> Result<u16> {
        let port = Port::claim()?;
        let number = port.number();
        self.ports.push(port);
        Ok(number)
    }

    fn launch(&mut self, program: Program, args: Vec<OsString>) -> Result<()> {
        let path =
            self.programs.get(&program).with_context(|| format!("no path of {} is known", program.name()))?;
        let log = self.directory.join(format!("{}.log", program.name()));
        let launch = Launch { program: path.clone(), args, log: Some(log), ..Launch::default() };
        self.launches.insert(program, launch);
        Ok(())
    }

    fn write_json(&self, name: &str, value: &Value) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, value.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn kubeconfig(
        &self,
        name: &str,
        user: &str,
        group: Option<&str>,
        server: &str,
        authority: &Authority,
    ) -> Result<PathBuf> {
        let identity = authority.client(name, user, group)?;
        let path = self.directory.join(format!("{name}.kubeconfig"));
        let credentials = Credentials::Certificate(&identity);
        kubeconfig::write(&path, server, &authority.certificate(), "default", &credentials)?;
        Ok(path)
    }

    fn etcd(&mut self) -> Result<String> {
        let clients = format!("http://127.0.0.1:{}", self.port()?);
        let peers = format!("http://127.0.0.1:{}", self.port()?);
        let args = vec![
            flag("data-dir", etcd_data(self.directory)),
            flag("listen-client-urls", &clients),
            flag("advertise-client-urls", &clients),
            flag("listen-peer-urls", &peers),
            flag("initial-advertise-peer-urls", &peers),
            flag("initial-cluster", format!("default={peers}")),
            flag("log-level", "warn"),
            // What is lost when the machine dies is a test. A killed etcd loses nothing by this.
            "--unsafe-no-fsync".into(),
            // Benchmarks with tens of thousands of objects and no compaction fill the default of 2 GiB.
            flag("quota-backend-bytes", (8_u64 << 30).to_string()),
        ];
        self.launch(Program::Etcd, args)?;
        Ok(clients)
    }

    fn apiserver(
        &mut self,
        etcd: &str,
        authority: &Authority,
        token_keys: &Identity,
        audit_log: Option<&Path>,
    ) -> Result<String> {
        let port = self.port()?;
        let serving = authority.server("apiserver")?;
        let mut args = vec![
            flag("etcd-servers", etcd),
            flag("bind-address", "127.0.0.1"),
            flag("advertise-address", "127.0.0.1"),
            flag("secure-port", port.to_string()),
            // The endpoints of the service "kubernetes" may not be on loopback; nobody uses them here.
            flag("endpoint-reconciler-type", "none"),
            flag("cert-dir", self.directory.join("apiserver")),
            flag("tls-cert-file", &serving.certificate),
            flag("tls-private-key-file", &serving.key),
            flag("client-ca-file", authority.certificate()),
            flag("authorization-mode", "RBAC"),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-key-file", &token_keys.certificate),
            flag("service-account-signing-key-file", &token_keys.key),
            flag("service-cluster-ip-range", "10.0.0.0/24"),
            flag("allow-privileged", "true"),
        ];
        if let Some(log) = audit_log {
            args.push(flag("audit-policy-file", self.write_json("audit-policy.json", &audit_policy())?));
            args.push(flag("audit-log-path", log));
            // One file, however long it gets: a count over a rotated log would be wrong.
            args.push(flag("audit-log-maxsize", "100000"));
        }
        self.launch(Program::KubeApiserver, args)?;
        Ok(format!("https://127.0.0.1:{port}"))
    }

    fn controller_manager(
        &mut self,
        server: &str,
        authority: &Authority,
        token_keys: &Identity,
    ) -> Result<()> {
        let user = "system:kube-controller-manager";
        let kubeconfig = self.kubeconfig("kube-controller-manager", user, None, server, authority)?;
        let mut args = lone_component(&kubeconfig);
        args.extend([
            flag("use-service-account-credentials", "true"),
            flag("controllers", "*,-node-ipam-controller"),
            flag("service-account-private-key-file", &token_keys.key),
            flag("root-ca-file", authority.certificate()),
        ]);
        if let Some(qps) = self.options.controller_manager_qps {
            // The ratio of the program's own defaults, 20 and 30.
            args.push(flag("kube-api-qps", qps.to_string()));
            args.push(flag("kube-api-burst", qps.saturating_add(qps / 2).to_string()));
        }
        self.launch(Program::KubeControllerManager, args)
    }

    fn scheduler(&mut self, server: &str, authority: &Authority) -> Result<()> {
        let kubeconfig =
            self.kubeconfig("kube-scheduler", "system:kube-scheduler", None, server, authority)?;
        self.launch(Program::KubeScheduler, lone_component(&kubeconfig))
    }

    fn jaeger(&mut self) -> Result<Jaeger> {
        let (otlp, query, grpc) = (self.port()?, self.port()?, self.port()?);
        let pages = self.trace_page()?;
        let config = self.write_json("jaeger.json", &jaeger_config(otlp, query, grpc, &pages))?;
        self.launch(Program::Jaeger, vec![flag("config", config)])?;
        Ok(Jaeger { otlp: format!("http://127.0.0.1:{otlp}"), query: format!("http://127.0.0.1:{query}") })
    }

    /// Jaeger's Go module comes without its web pages: it serves ours, at every path that is not its API's.
    fn trace_page(&self) -> Result<PathBuf> {
        let pages = self.directory.join("trace-page");
        fs::create_dir_all(&pages).with_context(|| format!("cannot create {}", pages.display()))?;
        let page = pages.join("index.html");
        fs::write(&page, TRACE_PAGE).with_context(|| format!("cannot write {}", page.display()))?;
        Ok(pages)
    }
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

/// Flags of a component that is the only one of its kind (no election) and serves nothing.
fn lone_component(kubeconfig: &Path) -> Vec<OsString> {
    vec![flag("kubeconfig", kubeconfig), flag("leader-elect", "false"), flag("secure-port", "0")]
}

/// Who asked for what, once per request, without bodies.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    })
}

/// Everything on loopback: without a configuration Jaeger listens on all addresses.
fn jaeger_config(otlp: u16, query: u16, grpc: u16, pages: &Path) -> Value {
    let loopback = |port: u16| json!({ "endpoint": format!("127.0.0.1:{port}") });
    json!({
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": { "traces": { "receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"] } },
            "telemetry": { "metrics": { "level": "none" }, "logs": { "level": "warn" } },
        },
        "extensions": {
            "jaeger_storage": { "backends": { "memory": { "memory": { "max_traces": 100_000 } } } },
            "jaeger_query": {
                "storage": { "traces": "memory" },
                // Its own traces would go to the default port of OTLP, whoever listens there.
                "enable_tracing": false,
                "ui": { "assets_path": pages },
                "http": loopback(query), "grpc": loopback(grpc) },
        },
        "receivers": { "otlp": { "protocols": { "http": loopback(otlp) } } },
        "exporters": { "jaeger_storage_exporter": { "trace_storage": "memory" } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jaeger_listens_on_loopback_only() {
        let config = jaeger_config(1, 2, 3, Path::new("/pages")).to_string();
        assert_eq!(config.matches("\"endpoint\"").count(), 3);
        assert_eq!(config.matches("\"endpoint\":\"127.0.0.1:").count(), 3);
    }
}
