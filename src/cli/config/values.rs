//! From the text of one value to its type. Each answer to a wrong text says what is allowed.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroUsize, time::Duration};

use jiff::SignedDuration;
use tracing_subscriber::EnvFilter;

use crate::{
    options::{EventVerbosity, OrphanPolicy},
    telemetry::logs::LogFormat,
};

/// No wait or limit is sensibly longer; sums of a few of them stay far from any overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) type Parsed<T> = Result<T, String>;

pub(super) fn text(text: &str) -> Parsed<String> {
    Ok(text.to_owned())
}

pub(super) fn duration(text: &str) -> Parsed<Duration> {
    let parsed: Option<SignedDuration> = text.trim().parse().ok();
    parsed
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "must be a time such as 15s, 2m30s or 100ms, with its unit, at most a year".into())
}

pub(super) fn switch(text: &str) -> Parsed<bool> {
    text.parse().map_err(|_| "must be true or false".into())
}

pub(super) fn threshold(text: &str) -> Parsed<u32> {
    text.parse().map_err(|_| format!("must be a whole number from 0 (for ever) to {}", u32::MAX))
}

pub(super) fn workers(text: &str) -> Parsed<NonZeroUsize> {
    const MOST: usize = 10_000;
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= MOST);
    count.ok_or_else(|| format!("must be a whole number from 1 to {MOST}"))
}

pub(super) fn digits(text: &str) -> Parsed<u8> {
    text.parse().map_err(|_| "must be a whole number from 1 to 32".into())
}

pub(super) fn event_verbosity(text: &str) -> Parsed<EventVerbosity> {
    match text {
        "normal" => Ok(EventVerbosity::Normal),
        "all" => Ok(EventVerbosity::All),
        _ => Err("must be normal or all".into()),
    }
}

pub(super) fn orphans(text: &str) -> Parsed<OrphanPolicy> {
    match text {
        "auto" => Ok(OrphanPolicy::Auto),
        "delete" => Ok(OrphanPolicy::Delete),
        "report" => Ok(OrphanPolicy::Report),
        _ => Err("must be auto, delete or report".into()),
    }
}

pub(super) fn log_format(text: &str) -> Parsed<LogFormat> {
    match text {
        "json" => Ok(LogFormat::Json),
        "human" => Ok(LogFormat::Human),
        _ => Err("must be json or human".into()),
    }
}

pub(super) fn log_level(text: &str) -> Parsed<String> {
    let rule = "must be a level (error, warn, info, debug, trace), or directives such as info,kube=debug";
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|error| format!("{rule}: {error}"))
}

pub(super) fn address(text: &str) -> Parsed<SocketAddr> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 0.0.0.0:8080 or [::]:8080".into())
}

pub(super) fn http_url(text: &str) -> Parsed<String> {
    let rule = || "must be a URL such as http://collector:4318".to_owned();
    let url: http::Uri = text.parse().map_err(|_| rule())?;
    let valid = matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
    valid.then(|| text.to_owned()).ok_or_else(rule)
}

/// Reads `key=value` pairs. A value may hold further `=`.
pub(super) fn pairs(texts: &[String]) -> Parsed<BTreeMap<String, String>> {
    texts.iter().map(|text| pair(text)).collect()
}

fn pair(text: &str) -> Parsed<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be of the form key=value".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (written, millis) in
            [("15s", 15_000), ("2m30s", 150_000), ("100ms", 100), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(duration(written), Ok(Duration::from_millis(millis)), "{written}");
        }
        for wrong in ["", "15", "-15s", "15 parsecs", "15s ago", "9000000h", "1e9s", "∞"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_refused_with_the_range() {
        assert!(workers("0").unwrap_err().contains("from 1 to"));
        assert!(workers("10001").is_err());
        assert!(threshold("-1").unwrap_err().contains("from 0"));
        assert!(threshold("4294967296").is_err());
        assert!(digits("256").is_err());
    }

    #[test]
    fn addresses_urls_and_levels_are_checked_before_they_are_used() {
        assert!(address("8080").is_err() && address("localhost:8080").is_err());
        assert!(address("[::]:0").is_ok());
        assert!(
            http_url("collector:4318").is_err() && http_url("grpc://x").is_err() && http_url("/x").is_err()
        );
        assert!(http_url("https://collector/v1").is_ok());
        assert!(log_level("info,kube=debug").is_ok());
        assert!(log_level("kube=loud").is_err());
    }

    #[test]
    fn pairs_split_at_the_first_equals_sign() {
        let read = pairs(&["a=b=c".into(), "d=".into()]).unwrap();
        assert_eq!(read, BTreeMap::from([("a".into(), "b=c".into()), ("d".into(), String::new())]));
        assert!(pairs(&["=x".into()]).is_err() && pairs(&["x".into()]).is_err());
    }
}
