//! The rules that Kubernetes has for names, as far as options need them.

use super::{InvalidOption, require};

/// The longest label of a DNS name, and the longest name part of a qualified name.
const LABEL_MAX: usize = 63;

/// The longest DNS subdomain, which is what most objects are named by.
const SUBDOMAIN_MAX: usize = 253;

/// A volume's name is the prefix, a dash and at most 36 characters of UID.
const VOLUME_PREFIX_MAX: usize = SUBDOMAIN_MAX - 1 - 36;

/// A name that a StorageClass may have as its provisioner: the server's rule for qualified names, in any
/// case of letters.
pub(super) fn provisioner(option: &'static str, name: &str) -> Result<(), InvalidOption> {
    let lower = name.to_ascii_lowercase();
    let valid = match lower.split_once('/') {
        Some((prefix, rest)) => is_subdomain(prefix) && is_qualified_part(rest),
        None => is_qualified_part(&lower),
    };
    require(valid, option, || {
        format!(
            "must be a name that a StorageClass can carry: at most {LABEL_MAX} letters, digits, '-', '_' or \
             '.', with a letter or digit at both ends, and before it perhaps a DNS name and one '/'; \
             {name:?} is not"
        )
    })
}

/// What a volume's name may begin with.
pub(super) fn volume_prefix(option: &'static str, prefix: &str) -> Result<(), InvalidOption> {
    let valid = is_subdomain(prefix) && prefix.len() <= VOLUME_PREFIX_MAX;
    require(valid, option, || {
        format!(
            "must be at most {VOLUME_PREFIX_MAX} lower case letters, digits, '-' or '.', with a letter or \
             digit at both ends; {prefix:?} is not"
        )
    })
}

/// A DNS label.
pub(super) fn label(option: &'static str, name: &str) -> Result<(), InvalidOption> {
    require(is_label(name), option, || {
        format!(
            "must be at most {LABEL_MAX} lower case letters, digits or '-', with a letter or digit at both \
             ends; {name:?} is not"
        )
    })
}

/// A DNS subdomain, as objects are named.
pub(super) fn subdomain(option: &'static str, name: &str) -> Result<(), InvalidOption> {
    require(is_subdomain(name), option, || {
        format!(
            "must be at most {SUBDOMAIN_MAX} lower case letters, digits, '-' or '.', with a letter or digit \
             at both ends of each part; {name:?} is not"
        )
    })
}

/// The key of a label: a qualified name.
pub(super) fn label_key(option: &'static str, key: &str) -> Result<(), InvalidOption> {
    let valid = match key.split_once('/') {
        Some((prefix, rest)) => is_subdomain(prefix) && is_qualified_part(rest),
        None => is_qualified_part(key),
    };
    require(valid, option, || format!("must have label keys that Kubernetes allows; {key:?} is not one"))
}

/// The value of a label.
pub(super) fn label_value(option: &'static str, value: &str) -> Result<(), InvalidOption> {
    let valid = value.is_empty() || is_qualified_part(value);
    require(valid, option, || format!("must have label values that Kubernetes allows; {value:?} is not one"))
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_MAX && name.split('.').all(is_dns_part)
}

fn is_label(name: &str) -> bool {
    name.len() <= LABEL_MAX && is_dns_part(name)
}

fn is_dns_part(part: &str) -> bool {
    framed_by(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-")
}

fn is_qualified_part(part: &str) -> bool {
    part.len() <= LABEL_MAX && framed_by(part, |c| c.is_ascii_alphanumeric(), "-_.")
}

/// Whether `text` is of these letters with `inner` ones between, and begins and ends with a letter.
fn framed_by(text: &str, letter: impl Fn(char) -> bool, inner: &str) -> bool {
    text.starts_with(&letter)
        && text.ends_with(&letter)
        && text.chars().all(|c| letter(c) || inner.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provisioner_names_are_what_a_storage_class_may_carry() {
        let longest = format!("{}/{}", "a".repeat(SUBDOMAIN_MAX), "b".repeat(LABEL_MAX));
        for good in
            ["a", "example.com/disk", "directory.kube-provisioner.dev", "Example.com/Fast_Disk.1", &longest]
        {
            assert_eq!(provisioner("x", good), Ok(()), "{good}");
        }
        let long = "a".repeat(LABEL_MAX + 1);
        for bad in ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "a_b/c", "ä", "a\n", &long] {
            assert!(provisioner("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_volume_name_stays_a_valid_name_with_the_longest_prefix() {
        let longest = "p".repeat(VOLUME_PREFIX_MAX);
        assert_eq!(volume_prefix("x", &longest), Ok(()));
        assert_eq!(subdomain("x", &format!("{longest}-{}", "0".repeat(36))), Ok(()));
        for bad in ["", "-", "a-", "PVC", "a_b", "a..b", "../x", &format!("{longest}p")] {
            assert!(volume_prefix("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_and_subdomains_differ_by_the_dot() {
        assert!(label("x", "a.b").is_err());
        assert_eq!(label("x", "a-1"), Ok(()));
        assert_eq!(subdomain("x", "a.b"), Ok(()));
        assert_eq!(label_key("x", "example.com/team"), Ok(()));
        assert!(label_key("x", "example.com/").is_err());
        assert_eq!(label_value("x", ""), Ok(()));
        assert!(label_value("x", "a b").is_err());
    }
}
