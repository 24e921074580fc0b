//! The pinned Go modules that the programs are built from. Builds nothing.

use super::Program;

/// A Go module that pins one family of programs, or is one.
pub(super) struct Module {
    /// The family's name, as in `chaos-tests/control-plane/<family>`; it begins the name of its cache directory.
    family: &'static str,
    /// The path of the required module whose version is the family's version.
    requirement: &'static str,
    pub(super) go_mod: &'static str,
    pub(super) go_sum: &'static str,
    /// Imports what is built.
    tools_go: Option<&'static str>,
    /// What is built, where that is a program of our own.
    main_go: Option<&'static str>,
}

static KUBERNETES: Module = Module {
    family: "kubernetes",
    requirement: "k8s.io/kubernetes",
    go_mod: include_str!("../../control-plane/kubernetes/go.mod"),
    go_sum: include_str!("../../control-plane/kubernetes/go.sum"),
    tools_go: Some(include_str!("../../control-plane/kubernetes/tools.go")),
    main_go: None,
};

static ETCD: Module = Module {
    family: "etcd",
    requirement: "go.etcd.io/etcd/server/v3",
    go_mod: include_str!("../../control-plane/etcd/go.mod"),
    go_sum: include_str!("../../control-plane/etcd/go.sum"),
    tools_go: Some(include_str!("../../control-plane/etcd/tools.go")),
    main_go: None,
};

static JAEGER: Module = Module {
    family: "jaeger",
    requirement: "github.com/jaegertracing/jaeger",
    go_mod: include_str!("../../control-plane/jaeger/go.mod"),
    go_sum: include_str!("../../control-plane/jaeger/go.sum"),
    tools_go: Some(include_str!("../../control-plane/jaeger/tools.go")),
    main_go: None,
};

static PROMETHEUS: Module = Module {
    family: "prometheus",
    requirement: "github.com/prometheus/prometheus",
    go_mod: include_str!("../../control-plane/prometheus/go.mod"),
    go_sum: include_str!("../../control-plane/prometheus/go.sum"),
    tools_go: Some(include_str!("../../control-plane/prometheus/tools.go")),
    main_go: None,
};

static PEER: Module = Module {
    family: "go-peer",
    requirement: "sigs.k8s.io/sig-storage-lib-external-provisioner/v13",
    go_mod: include_str!("../../peer/go.mod"),
    go_sum: include_str!("../../peer/go.sum"),
    tools_go: None,
    main_go: Some(include_str!("../../peer/main.go")),
};

pub(super) const fn of(program: Program) -> &'static Module {
    match program {
        Program::Etcd => &ETCD,
        Program::KubeApiserver | Program::KubeControllerManager | Program::KubeScheduler => &KUBERNETES,
        Program::Jaeger => &JAEGER,
        Program::Promtool => &PROMETHEUS,
        Program::GoPeer => &PEER,
    }
}

/// The Go package whose build is `program`.
pub(super) const fn package(program: Program) -> &'static str {
    match program {
        Program::Etcd => "go.etcd.io/etcd/server/v3",
        Program::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
        Program::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
        Program::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
        Program::Jaeger => "github.com/jaegertracing/jaeger/cmd/jaeger",
        Program::Promtool => "github.com/prometheus/prometheus/cmd/promtool",
        Program::GoPeer => ".",
    }
}

impl Module {
    /// Whether it is a program of our own, and not only a pin of somebody else's.
    pub(super) const fn is_our_own(&self) -> bool {
        self.main_go.is_some()
    }

    /// The files that it consists of: name and text.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let code = [("tools.go", self.tools_go), ("main.go", self.main_go)];
        let code = code.into_iter().filter_map(|(name, text)| Some((name, text?)));
        [("go.mod", self.go_mod), ("go.sum", self.go_sum)].into_iter().chain(code)
    }

    /// The pinned version, such as `v1.37.2`.
    pub(super) fn version(&self) -> &'static str {
        let required = |line: &'static str| {
            line.trim().trim_start_matches("require ").trim_start().strip_prefix(self.requirement)
        };
        self.go_mod
            .lines()
            .filter_map(required)
            .find_map(|rest| rest.strip_prefix(' '))
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or("unknown")
    }

    /// The oldest Go that can build the module, such as `1.26.0`.
    pub(super) fn go_version(&self) -> &'static str {
        self.go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.26").trim()
    }

    /// Version and digest of everything that is pinned.
    pub(super) fn identity(&self) -> String {
        let own_code = self.main_go.unwrap_or_default();
        let pins = [self.go_mod, self.go_sum, own_code, &self.linker_flags()].concat();
        format!("{}-{}-{:016x}", self.family, self.version(), fnv1a(pins.as_bytes()))
    }

    /// Without symbols (half the size), and for Kubernetes with the version that its build scripts would set:
    /// the API server refuses to emulate an unknown one.
    pub(super) fn linker_flags(&self) -> String {
        if self.family != KUBERNETES.family {
            return "-s -w".to_owned();
        }
        let version = self.version();
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let variable = "k8s.io/component-base/version";
        format!(
            "-s -w -X {variable}.gitVersion={version} -X {variable}.gitMajor={major} -X {variable}.gitMinor={minor}"
        )
    }
}

/// FNV-1a: a digest that names directories needs to be stable across compilers, not cryptographic.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_names_its_version_and_the_go_it_needs() {
        for module in [&KUBERNETES, &ETCD, &JAEGER, &PROMETHEUS, &PEER] {
            assert!(module.version().starts_with('v'), "{} has version {}", module.family, module.version());
            assert!(module.go_version().starts_with("1."), "{} needs {}", module.family, module.go_version());
        }
    }

    #[test]
    fn kubernetes_is_linked_with_its_pinned_version() {
        let minor = KUBERNETES.version().split('.').nth(1).unwrap();
        assert!(KUBERNETES.linker_flags().ends_with(&format!("gitMinor={minor}")));
        assert!(KUBERNETES.linker_flags().contains(&format!("gitVersion={}", KUBERNETES.version())));
    }

    #[test]
    fn another_pin_is_another_cache_directory() {
        let changed = Module { go_sum: "", ..JAEGER };
        assert_ne!(changed.identity(), JAEGER.identity());
    }

    #[test]
    fn other_code_of_our_own_is_another_cache_directory() {
        let changed = Module { main_go: Some(""), ..PEER };
        assert_ne!(changed.identity(), PEER.identity());
    }

    #[test]
    fn the_digest_is_the_published_one() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
