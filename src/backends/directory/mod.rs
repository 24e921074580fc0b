//! The directory backend: a directory per volume below one base, handed to pods as a hostPath volume.
//!
//! For a base that every node sees under the same path (a shared file system), or a single node: volumes
//! carry no node affinity. What may go wrong with paths is dealt with in `tree`, `make` and
//! `remove`; this file only translates between them and the contract.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::json;

use self::{
    config::Settings,
    job::{Jobs, Wanted},
    make::{MakeError, Plan},
    marker::Marker,
    name::VolumeName,
    tree::{Base, Entry},
};
use super::BackendError;
use crate::provisioner::{
    Asset, AssetClaim, AssetPage, Call, Capabilities, Cause, DeleteError, ProvisionError, Provisioner,
    ReclaimPolicy, VolumeOptions, async_trait,
};

mod config;
mod job;
mod make;
mod marker;
mod name;
mod remove;
#[cfg(test)]
mod tests;
mod tree;

pub use config::DirectoryConfig;

/// Makes a directory per volume below a base.
///
/// Cancelling a call (dropping its future) stops the work at its next step; a later call for the same
/// volume starts once that has happened.
#[derive(Debug)]
pub struct DirectoryBackend {
    settings: Arc<Settings>,
    jobs: Jobs,
}

impl DirectoryBackend {
    /// A backend with these settings.
    ///
    /// # Errors
    /// [`BackendError`] names the setting that can't work: among others, a base that doesn't exist.
    pub fn new(config: DirectoryConfig) -> Result<Self, BackendError> {
        Ok(Self { settings: Arc::new(config.check()?), jobs: Jobs::default() })
    }

    fn path_of(&self, name: &VolumeName) -> String {
        format!("{}/{name}", self.settings.base)
    }

    /// The volume's name, if the volume is what this backend would have made under it.
    fn own(&self, volume: &PersistentVolume) -> Result<VolumeName, Cause> {
        let name = VolumeName::parse(volume.metadata.name.as_deref().unwrap_or_default())?;
        // An orphan has no PV any more: all there is of it is its name, and the path follows from that.
        let Some(spec) = &volume.spec else { return Ok(name) };
        let expected = self.path_of(&name);
        match &spec.host_path {
            Some(source) if source.path == expected => Ok(name),
            Some(source) => Err(refusal(&name, &format!("its path is {:?}", source.path), &expected)),
            None => Err(refusal(&name, "it has no hostPath", &expected)),
        }
    }

    async fn remove(&self, volume: &PersistentVolume, call: Option<&Call>) -> Result<(), DeleteError> {
        let name = self.own(volume).map_err(DeleteError::failed)?;
        let installation = call.map(|call| call.installation.to_string());
        let (settings, subject) = (self.settings.clone(), name.clone());
        let work = move |wanted: &Wanted| {
            let base = open_base(&settings).map_err(DeleteError::failed)?;
            ours(&base, &subject, installation.as_deref()).map_err(DeleteError::failed)?;
            remove::remove(&base, &subject, wanted).map_err(|error| match error.is_in_use() {
                true => DeleteError::InUse(error.into()),
                false => DeleteError::failed(error),
            })
        };
        self.jobs.run(&name, work).await.map_err(DeleteError::failed)?
    }
}

#[async_trait]
impl Provisioner for DirectoryBackend {
    async fn provision(&self, options: VolumeOptions) -> Result<PersistentVolume, ProvisionError> {
        let name = VolumeName::parse(&options.pv_name).map_err(|e| ProvisionError::Infeasible(e.into()))?;
        let volume = build(&options, self.path_of(&name)).map_err(ProvisionError::Infeasible)?;
        let plan = Plan {
            name: name.clone(),
            epoch: options.call.epoch,
            access: self.settings.access,
            marker: Marker::of(&options),
        };
        let settings = self.settings.clone();
        let work = move |wanted: &Wanted| {
            let base = open_base(&settings).map_err(ProvisionError::NoChange)?;
            plan.carry_out(&base, wanted).map_err(|error| match error {
                MakeError::Nothing(_) => ProvisionError::finished(error),
                MakeError::Unknown { .. } => ProvisionError::background(error),
            })
        };
        self.jobs.run(&name, work).await.map_err(ProvisionError::background)??;
        Ok(volume)
    }

    async fn delete(&self, volume: &PersistentVolume) -> Result<(), DeleteError> {
        self.remove(volume, None).await
    }

    async fn delete_with(&self, volume: &PersistentVolume, call: &Call) -> Result<(), DeleteError> {
        self.remove(volume, Some(call)).await
    }

    async fn keep(&self, volume: &PersistentVolume, _call: &Call) -> Result<(), Cause> {
        // A volume that isn't ours needs no record: no audit of ours will ever look at its asset.
        let Ok(name) = self.own(volume) else { return Ok(()) };
        let (settings, subject) = (self.settings.clone(), name.clone());
        let work = move |_: &Wanted| {
            let base = open_base(&settings)?;
            let there = tree::entry(&base.root, subject.as_str())? != Entry::Missing;
            if there || marker::read(&base, &subject)?.is_some() {
                marker::keep(&base, &subject)?;
            }
            Ok(())
        };
        self.jobs.run(&name, work).await?
    }

    async fn list(&self, _page: Option<String>, _call: &Call) -> Result<AssetPage, Cause> {
        let settings = self.settings.clone();
        let listing = tokio::task::spawn_blocking(move || -> Result<_, Cause> {
            Ok(assets(&open_base(&settings)?, &settings)?)
        });
        Ok(AssetPage { assets: listing.await??, next: None })
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities { list: true, keep: true, ..Capabilities::default() }
    }
}

/// Every asset of the base: what has a marker, and directories without one.
fn assets(base: &Base, settings: &Settings) -> std::io::Result<Vec<Asset>> {
    let mut names = tree::names(&base.markers)?;
    names.extend(tree::names(&base.root)?);
    names.iter().map(|name| asset(base, settings, name)).collect()
}

fn asset(base: &Base, settings: &Settings, name: &VolumeName) -> std::io::Result<Asset> {
    let marker = marker::read(base, name)?;
    let claim = marker.as_ref().map(|marker| AssetClaim {
        namespace: marker.claim.namespace.clone(),
        name: marker.claim.name.clone(),
        uid: marker.claim.uid.clone(),
        resource_version: marker.claim.resource_version.clone(),
    });
    Ok(Asset {
        volume_name: name.to_string(),
        reclaim_policy: marker.as_ref().and_then(|marker| ReclaimPolicy::parse(&marker.reclaim_policy)),
        installation: marker.map(|marker| marker.installation),
        claim,
        kept: marker::is_kept(base, name)?,
        unused: tree::is_empty(&base.root, name.as_str())?,
        source: Some(json!({ "hostPath": { "path": format!("{}/{name}", settings.base) } })),
    })
}

/// Opens the base. That it can't be opened says nothing about any volume: it may not be mounted.
fn open_base(settings: &Settings) -> Result<Base, Cause> {
    Base::open(&settings.base).map_err(|e| format!("the base {} can't be used: {e}", settings.base).into())
}

/// Refuses what another installation made in a base that both share.
fn ours(base: &Base, name: &VolumeName, installation: Option<&str>) -> Result<(), Cause> {
    let Some(own) = installation else { return Ok(()) };
    match marker::foreign(base, name, own)? {
        Some(foreign) => Err(foreign.into()),
        None => Ok(()),
    }
}

fn refusal(name: &VolumeName, found: &str, expected: &str) -> Cause {
    format!(
        "volume {name} is refused, nothing was touched: {found}, this backend would have made {expected:?}"
    )
    .into()
}

/// The PV for a volume at `path`; an error if a directory can never be what the class and claim ask for.
fn build(options: &VolumeOptions, path: String) -> Result<PersistentVolume, Cause> {
    if let Some(parameter) = options.parameters.keys().next() {
        return Err(format!("the class has the parameter {parameter:?}; this backend knows none").into());
    }
    if !options.mount_options.is_empty() {
        return Err("the class has mountOptions; hostPath volumes are not mounted with any".into());
    }
    let claim = options.pvc.spec.clone().unwrap_or_default();
    let requested = claim.resources.and_then(|r| r.requests).and_then(|mut r| r.remove("storage"));
    let capacity: Quantity = requested.ok_or("the claim requests no storage")?;
    // `Directory`: if the base isn't mounted on a node, a pod there waits, instead of finding an empty volume.
    let source = HostPathVolumeSource { path, type_: Some("Directory".to_owned()) };
    let mut volume = PersistentVolume::default();
    volume.metadata.name = Some(options.pv_name.clone());
    volume.spec = Some(PersistentVolumeSpec {
        capacity: Some(BTreeMap::from([("storage".to_owned(), capacity)])),
        access_modes: claim.access_modes,
        host_path: Some(source),
        ..Default::default()
    });
    Ok(volume)
}
