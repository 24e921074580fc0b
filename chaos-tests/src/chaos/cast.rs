//! Who contests: candidates of either kind (ours, or on the Go library), each with directories of its own, so that
//! a volume's path tells who made it.

use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;
use tokio::time::{interval, timeout};

use crate::{
    binaries::{self, Program},
    cluster::Scope,
    ports::Port,
    product::{self, Profile},
    replica::{Replica, Spec},
    wait,
};

/// For what takes a moment on an idle machine, and much longer on one that builds beside it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a log is read again for a line that must come.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Which program a candidate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The product.
    Ours,
    /// The program on the Go library.
    GoPeer,
}

impl Kind {
    /// What people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "kube-provisioner",
            Self::GoPeer => "go library",
        }
    }
}

/// The durations of a lease. The Go library calls the last two renew deadline and retry period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait.
    pub lease: Duration,
    /// How long the holder relies on a renewal.
    pub hold: Duration,
    /// From one renewal to the next.
    pub renew: Duration,
}

impl Timing {
    /// Both programs' default.
    pub const DEFAULT: Self = Self::of_millis(15_000, 10_000, 2_000);
    /// The product's fast profile.
    pub const FAST: Self = Self::of_millis(3_000, 2_250, 750);
    /// The shortest lease that a Lease can store.
    pub const SHORTEST: Self = Self::of_millis(1_000, 900, 300);

    const fn of_millis(lease: u64, hold: u64, renew: u64) -> Self {
        Self {
            lease: Duration::from_millis(lease),
            hold: Duration::from_millis(hold),
            renew: Duration::from_millis(renew),
        }
    }
}

/// The programs that candidates run, built before anything is measured.
#[derive(Clone, Debug)]
pub struct Programs {
    ours: PathBuf,
    peer: PathBuf,
}

impl Programs {
    /// Builds what is missing, which may take minutes.
    ///
    /// # Errors
    /// If something cannot be built.
    pub async fn build(profile: Profile) -> Result<Self> {
        let build = move || -> Result<Self> {
            let ours = product::build(profile)?;
            let mut found = binaries::locate_or_build(&[Program::GoPeer])?;
            let peer = found.remove(&Program::GoPeer).context("no path of the Go peer is known")?;
            Ok(Self { ours, peer })
        };
        tokio::task::spawn_blocking(build).await?
    }

    /// This program as the product, where the cast has no Go peer.
    #[must_use]
    pub fn given(ours: PathBuf) -> Self {
        Self { ours, peer: PathBuf::new() }
    }

    /// Builds the product alone, where the cast has no Go peer.
    ///
    /// # Errors
    /// If it cannot be built.
    pub async fn only_ours(profile: Profile) -> Result<Self> {
        let ours = tokio::task::spawn_blocking(move || product::build(profile)).await??;
        Ok(Self::given(ours))
    }
}

impl Programs {
    /// What is measured beside each other, the product first and then the program on the Go library unless `only_ours`;
    /// release builds.
    ///
    /// # Errors
    /// If something cannot be built.
    pub async fn side_by_side(only_ours: bool) -> Result<(Vec<Kind>, Self)> {
        if only_ours {
            return Ok((vec![Kind::Ours], Self::only_ours(Profile::Release).await?));
        }
        Ok((vec![Kind::Ours, Kind::GoPeer], Self::build(Profile::Release).await?))
    }
}

/// The candidates' common ground: a share of a control plane, and a class.
pub struct Cast<'a> {
    /// The share of the control plane.
    pub scope: Scope<'a>,
    /// The class whose claims the candidates provision.
    pub class: String,
    programs: Programs,
}

/// One candidate.
#[derive(Debug)]
pub struct Candidate {
    /// Its process.
    pub replica: Replica,
    kind: Kind,
    /// So often was it started.
    starts: usize,
}

impl<'a> Cast<'a> {
    /// A cast without candidates.
    ///
    /// # Errors
    /// If the class cannot be made.
    pub async fn new(scope: Scope<'a>, programs: Programs) -> Result<Self> {
        let class = scope.create_class("a", |class| class.reclaim_policy = Some("Delete".to_owned())).await?;
        let class = class.metadata.name.context("the class has no name")?;
        Ok(Self { scope, class, programs })
    }

    /// Starts a candidate called `name`, which must begin no other one's name, with `env` on top.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(
        &self,
        name: &str,
        kind: Kind,
        timing: Timing,
        env: &[(String, String)],
    ) -> Result<Candidate> {
        let base = self.base(name);
        fs::create_dir(&base).with_context(|| format!("cannot create {}", base.display()))?;
        let mut spec = match kind {
            Kind::Ours => self.ours(name, &base, timing).await?,
            Kind::GoPeer => self.peer(name, &base, timing)?,
        };
        spec.env.extend_from_slice(env);
        Ok(Candidate { replica: Replica::start(&self.scope, spec)?, kind, starts: 1 })
    }

    /// Where the candidate `name` makes its directories.
    #[must_use]
    pub fn base(&self, name: &str) -> PathBuf {
        self.scope.directory().join(name)
    }

    /// The account of the candidate `name`, as the audit log calls it. Each of ours has one of its own.
    #[must_use]
    pub fn account(&self, name: &str) -> String {
        format!("system:serviceaccount:{}:{name}", self.scope.namespace())
    }

    /// The Leases beside the candidates.
    #[must_use]
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.scope.client(), self.scope.namespace())
    }

    /// The name of the Lease.
    #[must_use]
    pub fn lease(&self) -> String {
        self.scope.provisioner().replace('/', "-")
    }

    /// Waits until the holder of the Lease has renewed it once more.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn wait_renewed(&self) -> Result<()> {
        let first = OnceCell::new();
        let renewed = |lease: &Lease| {
            let version = &lease.metadata.resource_version;
            first.get_or_init(|| version.clone()) != version
        };
        wait::until(&self.leases(), &self.lease(), DEADLINE, renewed).await.map(drop)
    }

    async fn ours(&self, name: &str, base: &Path, timing: Timing) -> Result<Spec> {
        let http = Port::claim()?;
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let settings = [
            ("PROVISIONER_NAME", self.scope.provisioner().to_owned()),
            ("BACKEND", "directory".to_owned()),
            ("DIRECTORY_PATH", base.display().to_string()),
            ("HTTP_ADDRESS", format!("127.0.0.1:{}", http.number())),
            ("LEASE_NAMESPACE", self.scope.namespace().to_owned()),
            ("LEASE_DURATION", format!("{}s", timing.lease.as_secs())),
            ("LEASE_HOLD", millis(timing.hold)),
            ("LEASE_RENEW", millis(timing.renew)),
            ("LOG_FORMAT", "json".to_owned()),
        ];
        let mut env: Vec<_> =
            settings.into_iter().map(|(key, value)| (format!("KUBE_PROVISIONER_{key}"), value)).collect();
        env.push(("POD_NAME".to_owned(), name.to_owned()));
        Ok(Spec {
            name: name.to_owned(),
            program: self.programs.ours.clone(),
            args: vec!["run".to_owned()],
            env,
            kubeconfig: self.scope.replica_kubeconfig(name, None).await?,
            http,
        })
    }

    /// As an administrator, and not held back by limits of its own: what is compared is the lease.
    fn peer(&self, name: &str, base: &Path, timing: Timing) -> Result<Spec> {
        let args = [
            ("provisioner", self.scope.provisioner().to_owned()),
            ("base", base.display().to_string()),
            ("qps", "5000".to_owned()),
            ("burst", "5000".to_owned()),
            ("workers", "64".to_owned()),
            ("finalizer", "true".to_owned()),
            ("lease-namespace", self.scope.namespace().to_owned()),
            ("lease-duration", format!("{}ms", timing.lease.as_millis())),
            ("renew-deadline", format!("{}ms", timing.hold.as_millis())),
            ("retry-period", format!("{}ms", timing.renew.as_millis())),
        ];
        Ok(Spec {
            name: name.to_owned(),
            program: self.programs.peer.clone(),
            args: args.into_iter().map(|(key, value)| format!("-{key}={value}")).collect(),
            env: Vec::new(),
            kubeconfig: self.scope.plane().kubeconfig().to_owned(),
            // It serves nothing.
            http: Port::claim()?,
        })
    }
}

impl Candidate {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.replica.name()
    }

    /// Waits until it contests the Lease.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn wait_contesting(&self) -> Result<()> {
        match self.kind {
            Kind::Ours => self.replica.wait_ready(DEADLINE).await,
            // It has no readiness, but says when it begins.
            Kind::GoPeer => self.wait_logged("Attempting to acquire leader lease", self.starts).await,
        }
    }

    /// Waits until its readiness has these words.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn wait_told(&self, words: &str) -> Result<()> {
        let look = async {
            let mut ticks = interval(LOOK_EVERY);
            while !self.replica.get("/readyz?verbose").await?.body.contains(words) {
                ticks.tick().await;
            }
            Ok(())
        };
        timeout(DEADLINE, look)
            .await
            .with_context(|| format!("the readiness of {} has no {words:?}", self.name()))?
    }

    /// Waits until its log has this text so many times.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn wait_logged(&self, text: &str, times: usize) -> Result<()> {
        let look = async {
            let mut ticks = interval(LOOK_EVERY);
            while self.replica.log_text()?.matches(text).count() < times {
                ticks.tick().await;
            }
            Ok(())
        };
        timeout(DEADLINE, look)
            .await
            .with_context(|| format!("{} did not log {text:?} {times} times", self.name()))?
    }

    /// Ends it with this signal and waits for its end. The product must end with exit code 0 when asked to.
    ///
    /// # Errors
    /// If it does not end, or not so.
    pub async fn end(&self, signal: Signal) -> Result<()> {
        self.replica.signal(signal)?;
        self.wait_end(signal).await
    }

    /// Waits for the end that `signal` brings about.
    ///
    /// # Errors
    /// If it does not end, or not as it should.
    pub async fn wait_end(&self, signal: Signal) -> Result<()> {
        let status = self.replica.wait_exit(DEADLINE).await?;
        let in_order = self.kind == Kind::GoPeer || signal != Signal::TERM || status.success();
        anyhow::ensure!(in_order, "{} ended with {status} on SIGTERM", self.name());
        Ok(())
    }

    /// Starts it again, as it was started before.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn restart(&mut self) -> Result<()> {
        self.starts += 1;
        self.replica.restart()?;
        self.wait_contesting().await
    }
}
