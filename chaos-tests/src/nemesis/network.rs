//! A network namespace for a replica, and what can be wrong with its wire: packets dropped in silence or refused, in
//! both directions or in one. Needs root, and `ip`, `nft` and `nsenter`.
//!
//! Requests are slowed down by the [proxy](crate::proxy) that the replica has to use: not every kernel can delay
//! packets.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::addresses::Pair;
use crate::{janitor::Janitor, ports, replica::Spec};

/// All names of namespaces and of wires begin so. An interface's name has 15 letters at most.
const PREFIX: &str = "kp-";

/// Removes the wire and the namespace `$0`. The wire first: that of a namespace goes later than its name. What still
/// runs in it is ended by whoever started it.
const REMOVE: &str = r#"ip link delete "$0"; ip netns delete "$0""#;

/// The name of the wire's end within a namespace.
const INNER: &str = "eth0";

/// Which packets are lost, seen from the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All.
    Both,
    /// Those that it sends: the server hears nothing of it.
    Out,
    /// Those that are sent to it: the server hears it, and its answers are lost.
    In,
}

/// How they are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// In silence.
    Drop,
    /// Whoever sent them is told at once, by a reset of the connection.
    Reject,
}

/// A network namespace with a wire to this machine's. It vanishes when this value is dropped, and also when this
/// process ends in any other way.
///
/// A replica in it reaches nothing but [`Namespace::host`], where a [`Proxy`](crate::proxy::Proxy::start_on) has to
/// listen.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    _janitor: Janitor,
    pair: Pair,
}

/// Why there can be no namespaces here, if so: no root, no programs, no kernel for it.
#[must_use]
pub fn unavailable() -> Option<String> {
    let tried = Namespace::create().and_then(|namespace| namespace.cut(Way::Both, Manner::Drop));
    tried.err().map(|error| format!("{error:#}"))
}

impl Namespace {
    /// Makes a namespace whose wire is whole.
    ///
    /// # Errors
    /// If this process may not, or a program is missing.
    pub fn create() -> Result<Self> {
        let pair = Pair::claim()?;
        remove_leftovers(pair.number());
        let name = format!("{PREFIX}{}-{}", std::process::id(), pair.number());
        let janitor = Janitor::hire(REMOVE, name.as_ref()).context("cannot start sh")?;
        run("ip", &["netns", "add", &name], "")
            .context("cannot make a network namespace (this needs root)")?;
        let namespace = Self { name, _janitor: janitor, pair };
        namespace.wire().context("cannot lay the wire into a network namespace")?;
        Ok(namespace)
    }

    /// This machine's address on the wire: what listens there can be reached from within.
    #[must_use]
    pub fn host(&self) -> Ipv4Addr {
        self.pair.host()
    }

    /// The address within.
    #[must_use]
    pub fn inside(&self) -> Ipv4Addr {
        self.pair.inside()
    }

    /// The name, as `ip netns` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A replica that is to be started, put into this namespace: it will listen on [`Namespace::inside`].
    #[must_use]
    pub fn enter(&self, spec: Spec) -> Spec {
        let (before, http) = (spec.http.socket().to_string(), spec.http.at(self.inside()));
        let after = http.socket().to_string();
        let own =
            [format!("--net=/run/netns/{}", self.name), "--".to_owned(), spec.program.display().to_string()];
        let args = spec.args.into_iter().map(|arg| arg.replace(&before, &after));
        Spec { program: "nsenter".into(), args: own.into_iter().chain(args).collect(), http, ..spec }
    }

    /// Breaks the wire, in place of how it was broken before. Probes and scrapes still come through, as those of a
    /// kubelet on the same machine would.
    ///
    /// # Errors
    /// If `nft` fails.
    pub fn cut(&self, way: Way, manner: Manner) -> Result<()> {
        self.nft(&rules(way, manner)).context("cannot break the wire of a network namespace")
    }

    /// Makes the wire whole.
    ///
    /// # Errors
    /// If `nft` fails.
    pub fn heal(&self) -> Result<()> {
        self.nft("flush ruleset\n").context("cannot mend the wire of a network namespace")
    }

    fn wire(&self) -> Result<()> {
        let (host, inside) = (format!("{}/30", self.host()), format!("{}/30", self.inside()));
        let name = self.name.as_str();
        let batch = format!(
            "link add {name} type veth peer name {INNER} netns {name}\n\
             address add {host} dev {name}\n\
             link set {name} up\n"
        );
        run("ip", &["-batch", "-"], &batch)?;
        let batch = format!("link set lo up\naddress add {inside} dev {INNER}\nlink set {INNER} up\n");
        run("ip", &["-netns", name, "-batch", "-"], &batch)
    }

    fn nft(&self, script: &str) -> Result<()> {
        let net = format!("--net=/run/netns/{}", self.name);
        run("nsenter", &[&net, "--", "nft", "--file", "-"], script)
    }
}

/// What an earlier owner of this pair has left, who was killed together with its janitor.
fn remove_leftovers(number: u8) {
    for (directory, object) in [("/sys/class/net", "link"), ("/run/netns", "netns")] {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let of_pair = |name: &String| name.starts_with(PREFIX) && name.ends_with(&format!("-{number}"));
        for name in names.filter(of_pair) {
            // Its janitor may be at it.
            let _ = run("ip", &[object, "delete", &name], "");
        }
    }
}

/// The whole rule set, for the namespace's own side of the wire.
fn rules(way: Way, manner: Manner) -> String {
    let verdict = match manner {
        Manner::Drop => "drop",
        Manner::Reject => "meta l4proto tcp reject with tcp reset",
    };
    let chain = |hook: &str, own_port: &str, broken: bool| {
        let verdict = if broken { verdict } else { "accept" };
        let (first, last) = (ports::RANGE.start, ports::RANGE.end - 1);
        format!(
            "chain {hook} {{ type filter hook {hook} priority 0; iif lo accept; \
             tcp {own_port} {first}-{last} accept; {verdict}; }}\n"
        )
    };
    let output = chain("output", "sport", way != Way::In).replace("iif lo", "oif lo");
    let input = chain("input", "dport", way != Way::Out);
    // A file is one transaction: there is no instant without rules.
    format!("flush ruleset\ntable inet wire {{\n{output}{input}}}\n")
}

fn run(program: &str, args: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).with_context(|| format!("{program} does not listen"))?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} failed: {}", args.join(" "), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        path::Path,
        process::Child,
        time::{Duration, Instant},
    };

    use super::*;

    fn named() -> String {
        let mut list = Command::new("ip");
        String::from_utf8_lossy(&list.args(["netns", "list"]).output().unwrap().stdout).into_owned()
    }

    /// Asks for [`held`] to be more than nothing.
    const HOLD: &str = "KUBE_PROVISIONER_HOLD";

    /// The owner that is killed, as a process of its own.
    #[test]
    #[ignore = "runs until it is killed"]
    fn held() {
        if std::env::var_os(HOLD).is_none() {
            return;
        }
        let namespace = Namespace::create().unwrap();
        println!("\n{}", namespace.name());
        std::thread::park();
    }

    /// A process that holds a namespace, and the namespace's name.
    fn holder() -> (Child, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "nemesis::network::tests::held", "--ignored", "--nocapture"]);
        let mut child = command.env(HOLD, "1").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let name = lines.map(Result::unwrap).find(|line| line.starts_with(PREFIX)).unwrap();
        (child, name)
    }

    #[test]
    fn a_namespace_is_gone_after_its_owner_also_if_that_is_killed() {
        if let Some(reason) = unavailable() {
            eprintln!("skipped: {reason}");
            return;
        }
        let namespace = Namespace::create().unwrap();
        let name = namespace.name().to_owned();
        assert!(named().contains(&name));
        drop(namespace);
        assert!(!named().contains(&name));
        let (mut owner, name) = holder();
        assert!(named().contains(&name));
        owner.kill().unwrap();
        owner.wait().unwrap();
        let killed = Instant::now();
        while named().contains(&name) || Path::new("/sys/class/net").join(&name).exists() {
            assert!(killed.elapsed() < Duration::from_secs(30), "{name} is still there");
            std::thread::yield_now();
        }
    }
}
