//! Which volume names may become a directory's name. Pure.

use std::fmt;

/// The longest name in bytes: what a file system allows (255), less the room that the names of
/// half-made things need: `mark.` (5) + an epoch (20) + `.` (1), rounded.
const LONGEST: usize = 220;

/// The name of a volume, proven to be one harmless path component: lower case letters, digits, `-` and
/// `.`, beginning and ending with a letter or digit, no empty label. So it is never `.` or `..`, never
/// hidden, and has no slash and no NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct VolumeName(String);

/// A name that can't become a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "volume name {shown:?} is refused: it must be at most {LONGEST} lower case letters, digits, \"-\" and \
     \".\", with a letter or digit at both ends of each label"
)]
pub(super) struct NameError {
    /// The beginning of the name.
    shown: String,
}

impl VolumeName {
    pub(super) fn parse(name: &str) -> Result<Self, NameError> {
        if name.len() <= LONGEST && name.split('.').all(is_label) {
            return Ok(Self(name.to_owned()));
        }
        Err(NameError { shown: name.chars().take(80).collect() })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(label: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<u8>| b.is_some_and(plain);
    ends(label.bytes().next()) && ends(label.bytes().last()) && label.bytes().all(|b| plain(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_names_that_the_controller_makes_are_taken() {
        for good in ["pvc-8f14e45f-ceea-467f-a8a1-0d5f0a1b2c3d", "a", "0", "a.b-c.d", &"x".repeat(LONGEST)] {
            assert_eq!(VolumeName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn names_that_could_mean_another_place_are_refused() {
        let long = "x".repeat(LONGEST + 1);
        let hostile = [
            "",
            ".",
            "..",
            "../x",
            "/etc",
            "a/b",
            "a/",
            "a\0b",
            "A",
            "a b",
            "a\nb",
            "-a",
            "a-",
            ".a",
            "a.",
            "a..b",
            "a.-b",
            "ä",
            "a\\b",
            "~",
            "$HOME",
            ".kube-provisioner",
            &long,
        ];
        for bad in hostile {
            assert!(VolumeName::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    /// Mostly names made of what path tricks are made of.
    fn names() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c./\\\\\\-\\x00A~ ]{0,12}", "\\PC{0,40}", "[a-z0-9.-]{0,300}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_name_that_is_taken_is_one_visible_component_below_the_base(name in names()) {
            if let Ok(taken) = VolumeName::parse(&name) {
                let path = Path::new("/base").join(taken.as_str());
                let parts: Vec<_> = path.components().collect();
                prop_assert_eq!(parts.len(), 3);
                prop_assert_eq!(parts[2], Component::Normal(name.as_ref()));
                prop_assert!(!name.starts_with('.') && !name.contains('\0'));
                let longest = format!("mark.{}.{name}", u64::MAX);
                prop_assert!(longest.len() <= 255);
            }
        }

        #[test]
        fn every_dns_label_is_taken(name in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?") {
            prop_assert!(VolumeName::parse(&name).is_ok());
        }
    }
}
