//! Limits of a running replica, put so low that it meets them: files that it may have open, memory that it may use.
//!
//! Without a file to spare a replica has to live on: calls of the backend fail, requests too, and all is repeated
//! once there are files again. Without memory a program is aborted: whoever runs it starts it again. In neither case
//! may anything leak.

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::{
    procfs,
    replica::{Replica, Spec},
};

/// A limit of one process. Dropping it lifts it.
#[derive(Debug)]
pub struct Limit {
    pid: Pid,
    resource: Resource,
    before: Rlimit,
}

impl Limit {
    /// A replica may have `spare` files more than it has now; 0 closes the door.
    ///
    /// # Errors
    /// If it has ended, or is somebody else's.
    pub fn files(replica: &Replica, spare: u64) -> Result<Self> {
        let open: u64 = procfs::open_files(replica.pid())?.try_into()?;
        Self::put(replica, Resource::Nofile, open + spare)
    }

    /// A replica's heaps and stacks may grow by `spare` bytes. What it has mapped without a right to write is not
    /// counted: C libraries reserve a lot of that, and grow into it.
    ///
    /// # Errors
    /// If it has ended, or is somebody else's.
    pub fn memory(replica: &Replica, spare: u64) -> Result<Self> {
        let writable = procfs::writable_bytes(replica.pid())?;
        Self::put(replica, Resource::Data, writable + spare)
    }

    /// A replica that may never have more than `files` files open, however often it is started.
    #[must_use]
    pub fn from_start(spec: Spec, files: u64) -> Spec {
        let own = [format!("--nofile={files}"), "--".to_owned(), spec.program.display().to_string()];
        Spec { program: "prlimit".into(), args: own.into_iter().chain(spec.args).collect(), ..spec }
    }

    /// Ends it. Of a process that has ended meanwhile, there is nothing left to lift.
    pub fn lift(self) {
        drop(self);
    }

    fn put(replica: &Replica, resource: Resource, current: u64) -> Result<Self> {
        let pid = i32::try_from(replica.pid()).ok().and_then(Pid::from_raw).context("no process id")?;
        // It has ours, and not everybody may raise it again.
        let maximum = getrlimit(resource).maximum;
        let before = prlimit(Some(pid), resource, Rlimit { current: Some(current), maximum })
            .with_context(|| format!("cannot limit replica {}", replica.name()))?;
        Ok(Self { pid, resource, before })
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = prlimit(Some(self.pid), self.resource, self.before);
    }
}
