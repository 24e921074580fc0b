//! YAML manifests: read from a directory, fitted to a test, applied.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

/// Who the API server says applied it.
const FIELD_MANAGER: &str = "chaos-tests";

/// Reads all objects of the `.yaml` files in `directory`, in the order of the file names, with each `from` of
/// `replacements` replaced by its `to` in the text. Kustomizations are left out: they are no objects.
///
/// # Errors
/// If a file cannot be read or is not YAML.
pub fn read(directory: &Path, replacements: &[(&str, &str)]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in files(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = replacements.iter().fold(text, |text, (from, to)| text.replace(from, to));
        objects.extend(parse(&text).with_context(|| format!("{} is not YAML", path.display()))?);
    }
    Ok(objects)
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    Ok(files)
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(documents.into_iter().filter(is_object).collect())
}

fn is_object(document: &Value) -> bool {
    text(document, "/kind").is_some()
        && text(document, "/apiVersion")
            .is_some_and(|version| !version.starts_with("kustomize.config.k8s.io/"))
}

/// Applies `objects` on the server's side; what is namespaced and names no namespace goes to `namespace`.
///
/// # Errors
/// If the API server does not know a kind or refuses an object.
pub async fn apply(client: &Client, namespace: &str, objects: &[Value]) -> Result<()> {
    for object in objects {
        let what = describe(object);
        apply_one(client, namespace, object).await.with_context(|| format!("cannot apply {what}"))?;
    }
    Ok(())
}

async fn apply_one(client: &Client, namespace: &str, object: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("it has no kind")?;
    let (resource, capabilities) =
        discovery::pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// The identity and permissions among `objects`, moved into `namespace`: what is namespaced goes there, and what is
/// not gets the namespace as a suffix of its name, so that tests side by side do not share it.
#[must_use]
pub fn permissions_in(namespace: &str, objects: &[Value]) -> Vec<Value> {
    let cluster_roles: BTreeSet<&str> = objects
        .iter()
        .filter(|object| text(object, "/kind") == Some("ClusterRole"))
        .filter_map(|object| text(object, "/metadata/name"))
        .collect();
    objects.iter().filter_map(|object| moved(namespace, object, &cluster_roles)).collect()
}

fn moved(namespace: &str, object: &Value, cluster_roles: &BTreeSet<&str>) -> Option<Value> {
    let mut object = object.clone();
    match text(&object, "/kind")? {
        "ServiceAccount" | "Role" | "RoleBinding" => {
            object
                .pointer_mut("/metadata")?
                .as_object_mut()?
                .insert("namespace".to_owned(), namespace.into());
        }
        "ClusterRole" | "ClusterRoleBinding" => add_suffix(&mut object, "/metadata/name", namespace),
        _ => return None,
    }
    // Roles of the cluster itself, such as system:auth-delegator, keep their names.
    if text(&object, "/roleRef/kind") == Some("ClusterRole")
        && text(&object, "/roleRef/name").is_some_and(|name| cluster_roles.contains(name))
    {
        add_suffix(&mut object, "/roleRef/name", namespace);
    }
    for subject in object.pointer_mut("/subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if text(subject, "/kind") == Some("ServiceAccount") {
            subject.as_object_mut()?.insert("namespace".to_owned(), namespace.into());
        }
    }
    Some(object)
}

fn add_suffix(object: &mut Value, pointer: &str, suffix: &str) {
    if let Some(Value::String(name)) = object.pointer_mut(pointer) {
        *name = format!("{name}-{suffix}");
    }
}

/// The names of the ServiceAccounts among `objects`.
#[must_use]
pub fn service_accounts(objects: &[Value]) -> Vec<&str> {
    let accounts = objects.iter().filter(|object| text(object, "/kind") == Some("ServiceAccount"));
    accounts.filter_map(|object| text(object, "/metadata/name")).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn describe(object: &Value) -> String {
    let part = |pointer| text(object, pointer).unwrap_or("?");
    format!("{} {}", part("/kind"), part("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHIPPED: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: provisioner, namespace: storage}
---
# A comment between documents.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: provisioner}
rules: [{apiGroups: [''], resources: [persistentvolumes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: provisioner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: provisioner}
subjects: [{kind: ServiceAccount, name: provisioner, namespace: storage}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:auth-delegator'}
subjects: [{kind: User, name: somebody}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: provisioner}
---
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
";

    fn shipped_permissions() -> Vec<Value> {
        permissions_in("t-1", &parse(SHIPPED).unwrap())
    }

    #[test]
    fn only_identity_and_permissions_are_moved() {
        let kinds: Vec<_> =
            shipped_permissions().iter().map(|o| text(o, "/kind").unwrap().to_owned()).collect();
        assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding"]);
    }

    #[test]
    fn the_account_moves_and_its_bindings_follow_it() {
        let objects = shipped_permissions();
        assert_eq!(service_accounts(&objects), ["provisioner"]);
        assert_eq!(objects[0]["metadata"], json!({ "name": "provisioner", "namespace": "t-1" }));
        assert_eq!(objects[2]["subjects"][0]["namespace"], "t-1");
    }

    #[test]
    fn shipped_cluster_roles_are_renamed_where_they_are_defined_and_used() {
        let objects = shipped_permissions();
        assert_eq!(objects[1]["metadata"]["name"], "provisioner-t-1");
        assert_eq!(objects[2]["metadata"]["name"], "provisioner-t-1");
        assert_eq!(objects[2]["roleRef"]["name"], "provisioner-t-1");
    }

    #[test]
    fn roles_of_the_cluster_keep_their_names_and_users_get_no_namespace() {
        let objects = shipped_permissions();
        assert_eq!(objects[3]["roleRef"]["name"], "system:auth-delegator");
        assert_eq!(objects[3]["subjects"][0], json!({ "kind": "User", "name": "somebody" }));
    }

    #[test]
    fn files_are_read_in_order_with_replacements() {
        let directory = tempfile::tempdir().unwrap();
        let object = |name: &str| format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n");
        fs::write(directory.path().join("b.yaml"), object("NAME-b")).unwrap();
        fs::write(directory.path().join("a.yml"), object("NAME-a")).unwrap();
        fs::write(directory.path().join("README.md"), "no manifest: [").unwrap();
        let objects = read(directory.path(), &[("NAME", "test")]).unwrap();
        let names: Vec<_> = objects.iter().map(|object| text(object, "/metadata/name").unwrap()).collect();
        assert_eq!(names, ["test-a", "test-b"]);
    }
}
