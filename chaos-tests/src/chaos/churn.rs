//! Many changes of leadership in one pair of processes: nothing may grow, each has a new epoch, none overlap.

use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    cast::{Candidate, Cast, Kind, Programs, Timing},
    terms,
};
use crate::{
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    procfs,
    product::Profile,
};

/// After so many changes every connection and thread there will be has been made.
const WARM_AFTER: usize = 5;
/// Threads and files come and go a few at a time: of a pool, or of a watch that begins anew.
const LEEWAY: usize = 6;
/// Allocators keep a little more than is used.
const LEEWAY_BYTES: u64 = 6 << 20;

/// Force many changes of leadership on one pair of processes: nothing may grow.
#[derive(Clone, Copy, Debug, Args)]
pub struct Churn {
    /// How many changes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    changes: u16,
}

/// What one process uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: usize,
    files: usize,
    resident: u64,
}

impl Usage {
    fn of(candidate: &Candidate) -> Result<Self> {
        let pid = candidate.replica.pid();
        Ok(Self {
            threads: procfs::threads(pid)?,
            files: procfs::open_files(pid)?,
            resident: procfs::resident_bytes(pid)?,
        })
    }

    fn check_growth(self, since: Self) -> Result<()> {
        let Self { threads, files, resident } = self;
        ensure!(threads <= since.threads + LEEWAY, "threads grow: {since:?}, then {self:?}");
        ensure!(files <= since.files + LEEWAY, "open files grow: {since:?}, then {self:?}");
        ensure!(resident <= since.resident + LEEWAY_BYTES, "memory grows: {since:?}, then {self:?}");
        Ok(())
    }
}

/// Runs the scenario on a control plane of its own.
///
/// # Errors
/// If something grows, or two lead at a time.
pub async fn run(options: Churn) -> Result<()> {
    let programs = Programs::build(Profile::Release).await?;
    let plane = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await?;
    check(Scope::new(&plane).await?, programs, options.changes.into()).await
}

/// Forces `changes` changes by writing other holders into the Lease, and checks what must hold.
///
/// # Errors
/// If something grows, or two lead at a time.
pub async fn check(scope: Scope<'_>, programs: Programs, changes: usize) -> Result<()> {
    let cast = Cast::new(scope, programs).await?;
    let first = cast.start("first", Kind::Ours, Timing::SHORTEST, &[]).await?;
    let second = cast.start("second", Kind::Ours, Timing::SHORTEST, &[]).await?;
    let both = [&first, &second];
    let usage = || -> Result<Vec<Usage>> { both.into_iter().map(Usage::of).collect() };
    let mut warm = None;
    terms::wait_for(&both, 1).await?;
    for change in 1..=changes {
        if change == WARM_AFTER {
            warm = Some(usage()?);
        }
        let so_far = terms::of(&both)?.len();
        overwrite(&cast, change).await?;
        terms::wait_for(&both, so_far + 1).await.with_context(|| format!("change {change} of {changes}"))?;
    }
    let (warm, now) = (warm.context("too few changes to tell growth")?, usage()?);
    eprintln!("{changes} changes of leadership; after {WARM_AFTER}: {warm:?}, at the end: {now:?}");
    now.into_iter().zip(warm).try_for_each(|(now, warm)| now.check_growth(warm))?;
    terms::check_sequence(&terms::of(&both)?)
}

async fn overwrite(cast: &Cast<'_>, change: usize) -> Result<()> {
    let holder = json!({ "spec": { "holderIdentity": format!("somebody-{change}") } });
    let patched = cast.leases().patch(&cast.lease(), &PatchParams::default(), &Patch::Merge(holder)).await;
    patched.map(drop).context("cannot overwrite the Lease")
}
