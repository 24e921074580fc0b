//! What must hold of names, sizes and waits whatever they are made from: properties, of the library from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::lifecycle::{
    fit::{self, Misfit},
    names::VolumeNaming,
    retry::Backoff,
};
use proptest::prelude::*;
use serde_json::json;

fn uid() -> impl Strategy<Value = String> {
    "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
}

/// As Kubernetes demands of a volume's name.
fn is_subdomain(name: &str) -> bool {
    let label = |part: &str| {
        let inside =
            part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        inside && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

proptest! {
    #[test]
    fn names_are_valid_and_as_different_as_the_claims(
        uids in prop::collection::btree_set(uid(), 1..20),
        prefix in "[a-z][a-z0-9]{0,19}",
    ) {
        let naming = VolumeNaming::new(prefix.clone(), None);
        let names: BTreeSet<_> = uids.iter().map(|uid| naming.name(uid)).collect();
        prop_assert_eq!(names.len(), uids.len());
        for name in &names {
            prop_assert!(is_subdomain(name), "{}", name);
            prop_assert!(name.strip_prefix(&*prefix).is_some_and(|rest| rest.starts_with('-')));
        }
    }

    #[test]
    fn a_short_name_is_the_beginning_of_a_longer_one_and_as_long_as_was_asked(uid in uid(), length in 1_usize..40) {
        let short = VolumeNaming::new("pvc", Some(length)).name(&uid);
        let longer = VolumeNaming::new("pvc", Some(length + 1)).name(&uid);
        prop_assert!(longer.starts_with(&*short));
        prop_assert_eq!(short.len(), "pvc-".len() + length.min(32));
        prop_assert!(is_subdomain(&short));
        prop_assert_eq!(&*short, &*VolumeNaming::new("pvc", Some(length)).name(&uid), "always the same");
    }
}

/// A size in some notation, and what it is in billionths: at most 2^63 − 1 whole ones.
fn size() -> impl Strategy<Value = (String, i128)> {
    const BILLION: i128 = 1_000_000_000;
    let units: Vec<(String, i128)> = [("n", 1), ("u", 1_000), ("m", 1_000_000), ("", BILLION)]
        .into_iter()
        .map(|(suffix, size)| (suffix.to_owned(), size))
        .chain(
            (1_u32..)
                .zip(["k", "M", "G", "T"])
                .map(|(power, s)| (s.to_owned(), BILLION * 1_000_i128.pow(power))),
        )
        .chain(
            (1_u32..).zip(["Ki", "Mi", "Gi", "Ti"]).map(|(power, s)| (s.to_owned(), BILLION << (10 * power))),
        )
        .chain((0_u32..=12).map(|power| (format!("e{power}"), BILLION * 10_i128.pow(power))))
        .chain((1_u32..=9).map(|power| (format!("E-{power}"), BILLION / 10_i128.pow(power))))
        .collect();
    let whole = (0_u32..2_000_000, prop::sample::select(units.clone()))
        .prop_map(|(number, (suffix, unit))| (format!("{number}{suffix}"), i128::from(number) * unit));
    // Half of an odd billionth is rounded up, as Kubernetes does.
    let halves = (0_u32..2_000_000, prop::sample::select(units))
        .prop_map(|(number, (suffix, unit))| {
            (format!("{number}.5{suffix}"), (i128::from(number) * 2 + 1) * unit)
        })
        .prop_map(|(text, twice)| (text, (twice + 1) / 2));
    prop_oneof![whole, halves]
}

fn compared(capacity: &str, request: &str) -> Result<(), Misfit> {
    let volume: PersistentVolume =
        serde_json::from_value(json!({ "spec": { "capacity": { "storage": capacity } } })).unwrap();
    let claim: PersistentVolumeClaim =
        serde_json::from_value(json!({ "spec": { "resources": { "requests": { "storage": request } } } }))
            .unwrap();
    fit::check(&volume, &claim)
}

proptest! {
    #[test]
    fn a_volume_fits_exactly_if_it_is_not_smaller_whatever_the_notations((have, is) in size(), (want, needs) in size()) {
        let told = compared(&have, &want);
        if is >= needs {
            prop_assert_eq!(told, Ok(()), "{} for {}", have, want);
        } else {
            prop_assert_eq!(told, Err(Misfit::TooSmall(have, want)));
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused_or_compared_and_never_a_panic(have in "\\PC{0,12}", want in "[0-9.eE+-]{0,30}[kKMGTPEinum]{0,3}") {
        let known = [Ok(()), Err(Misfit::NoQuantity(have.clone())), Err(Misfit::TooSmall(have.clone(), want.clone()))];
        prop_assert!(known.contains(&compared(&have, &want)));
    }
}

fn backoff() -> impl Strategy<Value = Backoff> {
    let millis = 1_u64..1_000_000_000;
    (millis.clone(), millis, any::<bool>()).prop_map(|(initial, max, exponential)| Backoff {
        initial: Duration::from_millis(initial),
        max: Duration::from_millis(max),
        exponential,
    })
}

proptest! {
    #[test]
    fn a_wait_grows_with_the_failures_and_stays_in_its_bounds(
        backoff in backoff(),
        failures in prop_oneof![1_u32..64, any::<u32>()],
        jitter in -1.0..2.0_f64,
    ) {
        let full = backoff.wait(failures, 0.0);
        let least = backoff.initial.min(backoff.max);
        prop_assert!(least <= full && full <= backoff.max);
        prop_assert!(backoff.wait(failures.saturating_add(1), 0.0) >= full);
        let spread = backoff.wait(failures, jitter);
        prop_assert!(full.mul_f64(0.9) <= spread + Duration::from_nanos(1) && spread <= full);
    }

    #[test]
    fn an_exponential_wait_doubles_until_it_is_the_longest_and_a_fixed_one_never_changes(
        backoff in backoff(),
        failures in 1_u32..40,
    ) {
        let (now, next) = (backoff.wait(failures, 0.0), backoff.wait(failures + 1, 0.0));
        let expected = if backoff.exponential { (now * 2).min(backoff.max) } else { now };
        // After 31 doublings of at least a millisecond it has been the longest for long.
        prop_assert_eq!(next, expected);
    }
}
