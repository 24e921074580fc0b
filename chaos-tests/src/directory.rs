//! Directories that vanish with their owner, and the janitor that removes them however this process ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::janitor::Janitor;

/// Removes the directory. A program that is being killed may still create a file in it, hence the second and later
/// tries.
const REMOVE: &str = r#"
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
    _janitor: Janitor,
}

impl Directory {
    /// Takes `wanted`, which must be absent or empty as it will be removed, or a new temporary directory.
    pub(crate) fn create(wanted: Option<&Path>) -> Result<Self> {
        let path = match wanted {
            Some(path) => take(path)?,
            None => temporary().context("cannot create a temporary directory")?,
        };
        let janitor = Janitor::hire(REMOVE, path.as_os_str())
            .context("cannot start sh, which would remove the directory afterwards")?;
        Ok(Self { path, _janitor: janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
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
