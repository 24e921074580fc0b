//! The table of all options: id, key, what is allowed, default and meaning, each said once.

/// What an option belongs to, and so where it may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole process: not in an entry of `provisioners`.
    Process,
    /// Each provisioner. Outside `provisioners` it is the default of all of them.
    Provisioner,
    /// One provisioner alone. Refused outside `provisioners` where that list is used.
    Single,
    /// The backend of a single provisioner, under the key `backend`.
    Backend,
}

/// Whether an option has one value or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value.
    One,
    /// A list: a flag that repeats; commas, or a JSON list, in the environment.
    List,
    /// A list of `key=value`; a map in the file.
    Map,
}

/// One option.
#[derive(Debug)]
pub(super) struct OptionSpec {
    /// The field that it fills.
    pub(super) id: &'static str,
    /// Its key in the configuration file.
    pub(super) key: &'static str,
    pub(super) scope: Scope,
    pub(super) shape: Shape,
    /// What is allowed, for help and for messages.
    pub(super) allowed: &'static str,
    /// The default, as one would write it.
    pub(super) default: Option<&'static str>,
    /// What holds where there is neither a value nor a default.
    pub(super) absent: &'static str,
    pub(super) meaning: &'static str,
}

impl OptionSpec {
    /// Its flag, dashes included.
    pub(super) fn flag(&self) -> String {
        format!("--{}", self.id.replace('_', "-"))
    }

    /// Its environment variable.
    pub(super) fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.id.to_ascii_uppercase())
    }

    /// The default in words.
    pub(super) fn default_text(&self) -> &'static str {
        self.default.unwrap_or(self.absent)
    }
}

/// What the names of all environment variables begin with.
pub(super) const ENVIRONMENT_PREFIX: &str = "KUBE_PROVISIONER_";

/// The option with this id.
pub(super) fn by_id(id: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.id == id)
}

const DURATION: &str = "a time such as 15s, 2m30s or 100ms";
const SWITCH: &str = "true or false";
const COUNT: &str = "a whole number, 0 or more";
const WORKERS: &str = "a whole number, 1 or more";
const PROVISIONER: &str = "a name such as example.com/disk";
const NONE: &str = "none";

const fn one(
    id: &'static str,
    key: &'static str,
    scope: Scope,
    allowed: &'static str,
    default: Option<&'static str>,
    meaning: &'static str,
) -> OptionSpec {
    OptionSpec { id, key, scope, shape: Shape::One, allowed, default, absent: NONE, meaning }
}

impl OptionSpec {
    const fn shaped(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    const fn absent(self, absent: &'static str) -> Self {
        Self { absent, ..self }
    }
}

use Scope::{Backend, Process, Provisioner, Single};

/// All options, in the order of help and reference.
#[rustfmt::skip]
pub(super) static OPTIONS: &[OptionSpec] = &[
    one("config", "", Process, "a path", None,
        "The YAML file with the keys of this table. Has no key itself."),
    one("kubeconfig", "kubeconfig", Process, "a path", None,
        "The kubeconfig that says where the API server is and who we are.")
        .absent("KUBECONFIG, ~/.kube/config, or the Pod's service account"),
    one("http_address", "httpAddress", Process, "an address such as 0.0.0.0:8080", Some("0.0.0.0:8080"),
        "Where probes and metrics are served. Port 0 takes any free port."),
    one("log_format", "logFormat", Process, "json or human", None,
        "How log lines look.").absent("human on a terminal, else json"),
    one("log_level", "logLevel", Process, "a level (error, warn, info, debug, trace), or directives such as info,kube=debug",
        Some("info"), "What is logged."),
    one("otlp_endpoint", "otlpEndpoint", Process, "a URL such as http://collector:4318", None,
        "Where traces are sent, as OTLP over HTTP.").absent("no traces are sent"),

    one("provisioner_name", "provisionerName", Single, PROVISIONER, None,
        "The name that storage classes give as their provisioner. `name` in an entry of `provisioners`.")
        .absent("required"),
    one("additional_provisioner_names", "additionalProvisionerNames", Single, PROVISIONER, None,
        "Further names whose claims and volumes are this provisioner's as well. `additionalNames` in an entry of `provisioners`.")
        .shaped(Shape::List),
    one("instance", "instance", Provisioner, "a DNS label", None,
        "Sets deployments under one provisioner name apart, for bases that are local to a node: volumes of another instance are never touched. Part of the Lease's name."),
    one("resync_period", "resyncPeriod", Provisioner, DURATION, Some("15m"),
        "How often everything cached is looked at again. Never hastens a retry."),
    one("exponential_backoff_on_error", "exponentialBackoffOnError", Provisioner, SWITCH, Some("true"),
        "Whether the wait doubles with each failure of a claim or volume, up to the longest; otherwise it is always the first."),
    one("retry_initial", "retryInitial", Provisioner, DURATION, Some("15s"),
        "The wait after the first failure of a claim or volume."),
    one("retry_max", "retryMax", Provisioner, DURATION, Some("1000s"),
        "The longest wait between two attempts."),
    one("failed_provision_threshold", "failedProvisionThreshold", Provisioner, COUNT, Some("0"),
        "Attempts to provision one version of a claim before it is left alone; 0 is for ever."),
    one("failed_delete_threshold", "failedDeleteThreshold", Provisioner, COUNT, Some("0"),
        "Attempts to delete one version of a volume before it is left alone; 0 is for ever."),
    one("provision_workers", "provisionWorkers", Provisioner, WORKERS, Some("100"),
        "How many volumes are provisioned at once."),
    one("delete_workers", "deleteWorkers", Provisioner, WORKERS, Some("100"),
        "How many volumes are deleted at once."),
    one("provision_timeout", "provisionTimeout", Provisioner, DURATION, Some("5m"),
        "How long one provision call may take. Its outcome then counts as unknown, and the call is repeated."),
    one("deletion_timeout", "deletionTimeout", Provisioner, DURATION, Some("5m"),
        "How long one delete call may take. Its outcome then counts as unknown, and the call is repeated."),
    one("add_finalizer", "addFinalizer", Provisioner, SWITCH, Some("true"),
        "Whether volumes carry the finalizer that keeps them until their asset is gone."),
    one("volume_name_prefix", "volumeNamePrefix", Provisioner, "lower case letters, digits, '-' and '.'", Some("pvc"),
        "What the name of a volume begins with, before a dash and the claim's UID."),
    one("volume_name_uuid_length", "volumeNameUuidLength", Provisioner, "a whole number from 1 to 32", None,
        "How many digits of the claim's UID, without its dashes, a volume's name has.")
        .absent("the whole UID with its dashes"),
    one("event_verbosity", "eventVerbosity", Provisioner, "normal or all", Some("normal"),
        "Which events are written: `normal` leaves out `Provisioning`, which would double the writes."),
    one("audit_interval", "auditInterval", Provisioner, DURATION, Some("5m"),
        "How often the backend's assets are held against volumes and claims, while this replica leads."),
    one("orphans", "orphans", Provisioner, "auto, delete or report", Some("auto"),
        "What happens to assets that belong to no volume and no claim: auto deletes those that never held data and reports the others, delete deletes all, report none."),
    one("drain_budget", "drainBudget", Provisioner, DURATION, Some("100ms"),
        "How long running calls may go on after a stop was asked for; then they are cancelled and left to the successor."),

    one("lease_namespace", "leaseNamespace", Provisioner, "a namespace", None,
        "The namespace of the Lease.").absent("POD_NAMESPACE, the service account's namespace, or default"),
    one("lease_name", "leaseName", Single, "a DNS name", None,
        "The name of the Lease.").absent("the provisioner's name with - for /, and the instance behind it"),
    one("lease_labels", "leaseLabels", Provisioner, "labels, key=value", None,
        "Labels for a Lease that the program creates.").shaped(Shape::Map),
    one("lease_profile", "leaseProfile", Provisioner, "default (15s, 10s, 2s) or fast (3s, 2250ms, 750ms)", Some("default"),
        "The three durations below, where they are not set."),
    one("lease_duration", "leaseDuration", Provisioner, "whole seconds, such as 15s", None,
        "How long others wait, after the last renewal they saw, before they take the Lease.").absent("of the profile"),
    one("lease_hold", "leaseHold", Provisioner, DURATION, None,
        "How long after sending a renewal its sender takes itself for the leader. A tenth below the duration at least.").absent("of the profile"),
    one("lease_renew", "leaseRenew", Provisioner, DURATION, None,
        "The time from one renewal to the next. Fits three times in the hold.").absent("of the profile"),

    one("backend", "backend", Backend, "directory or exec", None,
        "What makes the volumes. In the file a map with this as its only key, and the backend's options under it.")
        .absent("required"),
    one("directory_path", "backend.directory.path", Backend, "an absolute path", None,
        "directory: where the directories of the volumes are made. Must exist, and be the same on every node."),
    one("directory_mode", "backend.directory.mode", Backend, "an octal number in quotes, such as \"0770\"", None,
        "directory: the permissions of a volume's directory.").absent("`\"0777\"`"),
    one("directory_uid", "backend.directory.uid", Backend, COUNT, None,
        "directory: the user who owns a volume's directory.").absent("the program's"),
    one("directory_gid", "backend.directory.gid", Backend, COUNT, None,
        "directory: the group that owns a volume's directory.").absent("the program's"),
    one("exec_command", "backend.exec.command", Backend, "a program and its arguments", None,
        "exec: what is started for each call; the operation comes as its last argument.").shaped(Shape::List),
    one("exec_env", "backend.exec.env", Backend, "variables, NAME=value", None,
        "exec: variables in the environment of that program, besides what is passed on.").shaped(Shape::Map),
    one("exec_pass_env", "backend.exec.passEnv", Backend, "names of variables", None,
        "exec: variables of our own environment that reach that program; no other does.").shaped(Shape::List),
    one("exec_working_directory", "backend.exec.workingDirectory", Backend, "an absolute path", None,
        "exec: the directory that the program starts in.").absent("`/`"),
];
