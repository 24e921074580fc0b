//! Kubernetes quantities, as far as comparing two sizes needs them. Pure.

/// The value in billionths, or `None` if the text is no quantity, is negative, or is beyond any size
/// that Kubernetes knows (2^63 − 1).
pub(crate) fn nano(text: &str) -> Option<i128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (factor, divisor) = scale(suffix)?;
    let fraction = fraction.get(..fraction.len().min(9)).unwrap_or_default();
    let digits: i128 = format!("{whole}{fraction:0<9}").parse().ok()?;
    // Rounded up, as Kubernetes does below a billionth.
    let value = digits.checked_mul(factor)?.checked_add(divisor - 1)? / divisor;
    (value <= i128::from(i64::MAX).checked_mul(1_000_000_000)?).then_some(value)
}

/// What a suffix multiplies by, and what it divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 1));
    match suffix {
        "" => Some((1, 1)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

fn decimal(power: i32) -> Option<(i128, i128)> {
    let size = 10_i128.checked_pow(power.unsigned_abs())?;
    Some(if power < 0 { (1, size) } else { (size, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_compare_across_notations() {
        let equal = [
            ("1Gi", "1073741824"),
            ("1.5k", "1500"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("5E", "5e18"),
            (".5", "500m"),
        ];
        for (one, other) in equal {
            assert_eq!(nano(one).unwrap(), nano(other).unwrap(), "{one} {other}");
        }
        assert!(nano("1G") < nano("1Gi"));
        assert!(nano("100m") < nano("1"));
        assert_eq!(nano("9223372036854775807").unwrap(), i128::from(i64::MAX) * 1_000_000_000);
    }

    #[test]
    fn what_is_no_size_is_none() {
        for bad in [
            "",
            ".",
            "Gi",
            "1.2.3",
            "-1",
            "1GiB",
            "1 Gi",
            "1e",
            "1e99",
            "8Ei",
            "99999999999999999999",
            "ä",
            "1ä",
        ] {
            assert_eq!(nano(bad), None, "{bad:?}");
        }
    }
}
