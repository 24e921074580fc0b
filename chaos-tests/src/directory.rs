//! Directories that vanish with their owner, and the janitor that removes them however this process ends.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Waits for the end of its input, then removes the directory. A program that is being killed may still create a
/// file in it, hence the second and later tries.
const JANITOR: &str = r#"
read -r _
tries=0
until rm -rf -- "$0" 2>/dev/null || [ "$tries" -ge 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
"#;

/// A directory that vanishes with its owner: on drop, and also when the owner is killed.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Holds the other end of its input: the kernel closes it when this process is gone.
    janitor: Child,
}

impl Directory {
    /// Takes `wanted`, which must be absent or empty as it will be removed, or a new temporary directory.
    pub(crate) fn create(wanted: Option<&Path>) -> Result<Self> {
        let path = match wanted {
            Some(path) => take(path)?,
            None => temporary().context("cannot create a temporary directory")?,
        };
        let janitor =
            start_janitor(&path).context("cannot start sh, which would remove the directory afterwards")?;
        Ok(Self { path, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        if let Err(error) = self.janitor.wait() {
            eprintln!("cannot wait for the removal of {}: {error}", self.path.display());
        }
    }
}

fn take(path: &Path) -> Result<PathBuf> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        entries.next().is_none(),
        "{} is not empty: name an empty or a new directory, it is removed at the end",
        path.display()
    );
    fs::canonicalize(path).with_context(|| format!("cannot resolve {}", path.display()))
}

fn temporary() -> io::Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("kube-provisioner-").tempdir()?.keep())
}

fn start_janitor(path: &Path) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", JANITOR])
        .arg(path)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not in the group that a Ctrl-C reaches: its work begins after that.
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_gone_after_its_owner() {
        let directory = Directory::create(None).unwrap();
        let path = directory.path().to_owned();
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/c"), "data").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_with_content_is_refused_and_kept() {
        let owner = tempfile::tempdir().unwrap();
        fs::write(owner.path().join("precious"), "data").unwrap();
        let refusal = Directory::create(Some(owner.path())).unwrap_err().to_string();
        assert!(refusal.contains("is not empty"), "{refusal}");
        assert!(owner.path().join("precious").exists());
    }
}
