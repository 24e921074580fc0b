//! One scrape of a replica's metrics: its samples, by name and labels.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::replica::Replica;

/// All samples of one scrape, by the whole text before the value.
#[derive(Clone, Debug)]
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// What `replica` tells now.
    ///
    /// # Errors
    /// If it does not answer, or with something else than metrics.
    pub async fn of(replica: &Replica) -> Result<Self> {
        let answer = replica.get("/metrics").await?;
        ensure!(answer.status == 200, "/metrics answered {}: {}", answer.status, answer.body);
        Self::parse(&answer.body)
    }

    fn parse(text: &str) -> Result<Self> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| line.rsplit_once(' '));
        let samples = samples.map(|(series, value)| {
            let value = value.parse().with_context(|| format!("{series} has the value {value:?}"))?;
            Ok((series.to_owned(), value))
        });
        Ok(Self(samples.collect::<Result<_>>()?))
    }

    /// The sum of all series of this name.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        self.sum_where(name, &[])
    }

    /// The sum of the series of this name that have all these labels.
    #[must_use]
    pub fn sum_where(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has =
            |series: &str| labels.iter().all(|(key, value)| series.contains(&format!("{key}=\"{value}\"")));
        let of_name = |series: &str| series.split('{').next() == Some(name);
        self.0.iter().filter(|(series, _)| of_name(series) && has(series)).map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_labels() {
        let text = "# HELP a_total A.\na_total{x=\"1\",y=\"z\"} 2\na_total{x=\"2\"} 0.5\na_total_b 7\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.sum("a_total"), 2.5);
        assert_eq!(scrape.sum_where("a_total", &[("x", "1"), ("y", "z")]), 2.0);
        assert_eq!(scrape.sum("b"), 0.0);
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        assert!(Scrape::parse("a_total many").is_err());
    }
}
