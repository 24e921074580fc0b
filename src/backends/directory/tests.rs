//! The directory backend on a real file system: what it makes, adopts, keeps and removes.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use cap_std::fs::Dir;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use tempfile::TempDir;

use super::*;
use crate::provisioner::ReclaimPolicy;

mod hostile;
mod interrupted;

const NAME: &str = "pvc-8f14e45f";

/// A backend over a base of its own, in a directory that also holds things it must never touch.
struct Place {
    outer: TempDir,
    backend: DirectoryBackend,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut DirectoryConfig)) -> Self {
        let outer = TempDir::new().unwrap();
        let base = outer.path().join("base");
        fs::create_dir(&base).unwrap();
        fs::create_dir(outer.path().join("outside")).unwrap();
        fs::write(outer.path().join("outside/treasure"), "gold").unwrap();
        let path = base.to_str().unwrap().to_owned();
        let mut config = DirectoryConfig { path, mode: "0777".into(), uid: None, gid: None };
        change(&mut config);
        Self { outer, backend: DirectoryBackend::new(config).unwrap() }
    }

    fn base(&self, below: &str) -> PathBuf {
        self.outer.path().join("base").join(below)
    }

    fn state(&self, below: &str) -> PathBuf {
        self.base(".kube-provisioner").join(below)
    }

    fn outside(&self) -> PathBuf {
        self.outer.path().join("outside")
    }

    async fn provision(&self) -> Result<PersistentVolume, ProvisionError> {
        self.backend.provision(options(NAME)).await
    }

    /// Nothing outside the base was created, changed or removed.
    fn assert_outside_untouched(&self) {
        assert_eq!(fs::read_to_string(self.outside().join("treasure")).unwrap(), "gold");
        assert_eq!(fs::read_dir(self.outside()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(self.outer.path()).unwrap().count(), 2);
    }

    /// No volume, no record, nothing half-made.
    fn assert_empty(&self) {
        let mut entries = vec![];
        for place in [
            self.base(""),
            self.state("markers"),
            self.state("kept"),
            self.state("staging"),
            self.state("deleting"),
        ] {
            entries.extend(fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()));
        }
        assert_eq!(entries, [self.base(".kube-provisioner")]);
    }
}

fn options(name: &str) -> VolumeOptions {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity("1Gi".into()))]);
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteMany".into()]),
        resources: Some(VolumeResourceRequirements { requests: Some(requests), ..Default::default() }),
        ..Default::default()
    };
    let mut claim = PersistentVolumeClaim { spec: Some(spec), ..Default::default() };
    claim.metadata.namespace = Some("team".into());
    claim.metadata.name = Some("data".into());
    claim.metadata.uid = Some("8f14e45f".into());
    claim.metadata.resource_version = Some("42".into());
    VolumeOptions {
        persistent_volume_reclaim_policy: ReclaimPolicy::Delete,
        pv_name: name.into(),
        pvc: Arc::new(claim),
        parameters: BTreeMap::new(),
        storage_class: Arc::default(),
        mount_options: vec![],
        selected_node: None,
        call: call("cluster/example.com/dir"),
    }
}

fn call(installation: &str) -> Call {
    Call {
        provisioner: "example.com/dir".into(),
        installation: installation.into(),
        epoch: 7,
        deadline: SystemTime::now() + Duration::from_secs(60),
        traceparent: None,
    }
}

fn at(mut volume: PersistentVolume, path: &str) -> PersistentVolume {
    volume.spec.as_mut().unwrap().host_path.as_mut().unwrap().path = path.into();
    volume
}

fn ambient(path: PathBuf) -> Dir {
    Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap()
}

fn mode_of(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_volume_is_a_directory_that_any_pod_can_write_and_a_pv_that_names_it() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    let spec = volume.spec.unwrap();
    let source = spec.host_path.unwrap();
    assert_eq!(PathBuf::from(source.path), place.base(NAME));
    assert_eq!(source.type_.as_deref(), Some("Directory"));
    assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteMany"]);
    assert_eq!(spec.node_affinity, None);
    assert_eq!(mode_of(place.base(NAME)), 0o777);
    assert_eq!(fs::read_dir(place.base(NAME)).unwrap().count(), 0, "a volume must be born empty");
}

#[tokio::test]
async fn the_marker_tells_whose_the_volume_is() {
    let place = Place::new();
    place.provision().await.unwrap();
    let text = fs::read_to_string(place.state("markers").join(NAME)).unwrap();
    let marker: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "installation": "cluster/example.com/dir",
        "claim": {"namespace": "team", "name": "data", "uid": "8f14e45f", "resourceVersion": "42"},
        "reclaimPolicy": "Delete",
    });
    assert_eq!(marker, expected);
}

#[tokio::test]
async fn provisioning_again_adopts_what_is_there_with_its_data_and_its_permissions() {
    let place = Place::new();
    let first = place.provision().await.unwrap();
    fs::write(place.base(NAME).join("data"), "precious").unwrap();
    fs::set_permissions(place.base(NAME), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(place.provision().await.unwrap(), first);
    assert_eq!(fs::read_to_string(place.base(NAME).join("data")).unwrap(), "precious");
    assert_eq!(mode_of(place.base(NAME)), 0o700);
}

#[tokio::test]
async fn a_directory_from_before_there_were_markers_is_adopted_and_marked() {
    let place = Place::new();
    fs::create_dir(place.base(NAME)).unwrap();
    fs::write(place.base(NAME).join("data"), "precious").unwrap();
    place.provision().await.unwrap();
    assert_eq!(fs::read_to_string(place.base(NAME).join("data")).unwrap(), "precious");
    assert!(place.state("markers").join(NAME).exists());
}

#[tokio::test]
async fn mode_and_owner_are_as_configured_whatever_the_umask_and_setgid_stays() {
    let base = Place::new();
    let own = fs::metadata(base.base("")).unwrap();
    let place = Place::with(|config| {
        config.mode = "0766".into();
        (config.uid, config.gid) = (Some(own.uid()), Some(own.gid()));
    });
    fs::set_permissions(place.base(""), fs::Permissions::from_mode(0o2755)).unwrap();
    place.provision().await.unwrap();
    assert_eq!(mode_of(place.base(NAME)), 0o2766);
    let made = fs::metadata(place.base(NAME)).unwrap();
    assert_eq!((made.uid(), made.gid()), (own.uid(), own.gid()));
}

#[tokio::test]
async fn a_setgid_bit_and_group_that_the_base_got_later_are_passed_on() {
    let place = Place::new();
    let first = place.provision().await.unwrap();
    place.backend.delete(&first).await.unwrap();
    let group = a_group_of_ours_or_any();
    std::os::unix::fs::chown(place.base(""), None, Some(group)).unwrap();
    fs::set_permissions(place.base(""), fs::Permissions::from_mode(0o2755)).unwrap();
    place.provision().await.unwrap();
    assert_eq!(mode_of(place.base(NAME)), 0o2777);
    assert_eq!(fs::metadata(place.base(NAME)).unwrap().gid(), group);
}

/// A group that this process may give to files, another one than its own if there is any.
fn a_group_of_ours_or_any() -> u32 {
    if rustix::process::geteuid().is_root() {
        return 12_345;
    }
    let own = rustix::process::getegid();
    let mut groups = rustix::process::getgroups().unwrap().into_iter();
    groups.find(|group| *group != own).unwrap_or(own).as_raw()
}

#[test]
fn a_chmod_that_fails_is_an_error() {
    // The kernel lets nobody change the modes of these.
    let stubborn = tree::open_child(&ambient("/proc/self".into()), "task").unwrap();
    let access = config::Access { mode: 0o777, uid: None, gid: None };
    assert_eq!(make::give(&stubborn, &stubborn, access).unwrap_err().0, "setting its mode");
}

#[tokio::test]
async fn deleting_removes_the_tree_and_every_record_and_does_so_again() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    fs::create_dir_all(place.base(NAME).join("a/b/c")).unwrap();
    fs::write(place.base(NAME).join("a/b/c/file"), "x").unwrap();
    place.backend.keep(&volume, &call("cluster/example.com/dir")).await.unwrap();
    for _ in 0..2 {
        place.backend.delete_with(&volume, &call("cluster/example.com/dir")).await.unwrap();
        place.assert_empty();
    }
}

#[tokio::test]
async fn an_orphan_is_deleted_by_its_name_alone() {
    let place = Place::new();
    let mut volume = place.provision().await.unwrap();
    volume.spec = None;
    place.backend.delete(&volume).await.unwrap();
    place.assert_empty();
}

#[tokio::test]
async fn a_tree_deeper_than_any_stack_or_path_is_removed() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    let mut dir = ambient(place.base(NAME));
    for _ in 0..3_000 {
        tree::make_private(&dir, "deeper").unwrap();
        dir = tree::open_child(&dir, "deeper").unwrap();
    }
    drop(dir);
    place.backend.delete(&volume).await.unwrap();
    place.assert_empty();
}

#[tokio::test]
async fn a_class_that_asks_for_what_a_directory_cannot_do_is_infeasible() {
    let place = Place::new();
    let mut with_parameter = options(NAME);
    with_parameter.parameters.insert("archiveOnDelete".into(), "true".into());
    let mut with_mount = options(NAME);
    with_mount.mount_options.push("ro".into());
    for (options, why) in [(with_parameter, "archiveOnDelete"), (with_mount, "mountOptions")] {
        let error = place.backend.provision(options).await.unwrap_err();
        assert!(
            matches!(&error, ProvisionError::Infeasible(_)) && error.to_string().contains(why),
            "{error:?}"
        );
    }
    assert_eq!(fs::read_dir(place.base("")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_base_that_is_gone_is_not_made_and_says_nothing_about_its_volumes() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    fs::rename(place.base(""), place.outer.path().join("unmounted")).unwrap();
    assert!(matches!(place.provision().await, Err(ProvisionError::NoChange(_))));
    assert!(matches!(place.backend.delete(&volume).await, Err(DeleteError::Failed(_))));
    assert!(!place.base("").exists());
}

#[tokio::test]
async fn keeping_is_recorded_only_for_what_is_there() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    place.backend.keep(&volume, &call("cluster/example.com/dir")).await.unwrap();
    assert!(place.state("kept").join(NAME).exists());
    place.backend.delete(&volume).await.unwrap();
    place.backend.keep(&volume, &call("cluster/example.com/dir")).await.unwrap();
    place.assert_empty();
}
