//! The store as it was: etcd's files copied aside, and put back later. What people do from a backup, without moving the
//! revision on (`etcdutl snapshot restore` without `--bump-revision`): versions go back.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::{ControlPlane, components, ready};
use crate::binaries::Program;

/// What the store held at some time. Its files vanish with this value.
#[derive(Debug)]
pub struct Snapshot {
    files: TempDir,
}

impl ControlPlane {
    /// Copies what the store holds now. It stands still meanwhile, for some milliseconds.
    ///
    /// # Errors
    /// If etcd does not run, or its files cannot be copied.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let data = components::etcd_data(self.directory());
        self.pause(Program::Etcd)?;
        // Between two of its writes the files are as after a crash, which etcd recovers from.
        let files = tokio::task::spawn_blocking(move || copied(&data)).await?;
        self.resume(Program::Etcd)?;
        Ok(Snapshot { files: files.context("cannot copy etcd's files")? })
    }

    /// Puts back what the store held at the time of `snapshot`, and starts everything again, as is advised after a
    /// restore: etcd, the API server, which is ready then, the controller manager and the scheduler.
    ///
    /// # Errors
    /// If the files cannot be copied, or a program does not come up.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        self.kill(Program::KubeApiserver)?;
        self.kill(Program::Etcd)?;
        let (kept, data) = (snapshot.files.path().to_owned(), components::etcd_data(self.directory()));
        tokio::task::spawn_blocking(move || replace(&kept, &data))
            .await?
            .context("cannot put etcd's files back")?;
        for program in [Program::Etcd, Program::KubeApiserver] {
            let launch = self.with(program, |running| Ok(running.launch.clone()))?;
            self.launch(program, launch)?;
        }
        ready::api_server(self).await?;
        for program in [Program::KubeControllerManager, Program::KubeScheduler] {
            if self.pids().contains_key(&program) {
                self.restart(program).await?;
            }
        }
        Ok(())
    }
}

fn copied(data: &Path) -> io::Result<TempDir> {
    let files = tempfile::tempdir()?;
    copy(data, files.path())?;
    Ok(files)
}

fn replace(kept: &Path, data: &PathBuf) -> io::Result<()> {
    fs::remove_dir_all(data)?;
    fs::create_dir(data)?;
    copy(kept, data)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if entry.is_dir() {
            fs::create_dir(&to)?;
            copy(&entry, &to)?;
        } else {
            fs::copy(&entry, &to)?;
        }
    }
    Ok(())
}
