//! Figures as numbers: `results.json` for programs, `claims.md` for people.
//!
//! The files contain no time, place or duration of the run: the same experiments give the same bytes.

use super::judge::{Distance, Summary};
use super::model::{Claim, Figure, Panel, Point, Series};
use super::plan::Scale;
use super::text::{factor, number};
use serde::Serialize;
use sherman_sim::nic::Params;
use std::fmt::Write;

/// The version of the format of `results.json`.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Results<'f> {
    schema: u32,
    scale: &'f Scale,
    params: Params,
    summary: Summary,
    figures: &'f [Figure],
}

/// Returns `results.json`. NaN and infinity become `null`.
pub(super) fn json(scale: &Scale, figures: &[Figure]) -> serde_json::Result<String> {
    let summary = Summary::of(figures);
    let results = Results { schema: SCHEMA, scale, params: Params::PAPER, summary, figures };
    Ok(serde_json::to_string_pretty(&results)? + "\n")
}

/// Rounds to six significant digits: more would add no information and be hard to read.
fn round(value: f64) -> f64 {
    // Formatting and parsing are exact to the last bit on every platform. Multiplying by powers of ten is
    // not.
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Rounds all numbers of a figure to six significant digits.
pub(super) fn rounded(figure: &Figure) -> Figure {
    let point = |point: &Point| Point {
        x: round(point.x),
        y: round(point.y),
        least: round(point.least),
        most: round(point.most),
    };
    let series =
        |series: &Series| Series { points: series.points.iter().map(point).collect(), ..series.clone() };
    let panel = |panel: &Panel| Panel { series: panel.series.iter().map(series).collect(), ..panel.clone() };
    let claim =
        |claim: &Claim| Claim { paper: round(claim.paper), measured: round(claim.measured), ..claim.clone() };
    Figure {
        panels: figure.panels.iter().map(panel).collect(),
        claims: figure.claims.iter().map(claim).collect(),
        ..figure.clone()
    }
}

/// Returns `claims.md`: every claim of every figure, and how many of the judged ones are close.
pub(super) fn claims(figures: &[Figure]) -> String {
    let mut text = format!("{}\n\n", Summary::of(figures));
    text += "| key | what | paper | measured | factor | judged |\n|---|---|--:|--:|--:|---|\n";
    for claim in figures.iter().flat_map(|figure| &figure.claims) {
        let judged = if claim.judged { Distance::of(claim).word() } else { "" };
        let unit = if claim.unit.is_empty() { String::new() } else { format!(" {}", claim.unit) };
        let (paper, measured) = (number(claim.paper), number(claim.measured));
        let (key, what, by) = (cell(&claim.key), cell(&claim.what), factor(claim.factor()));
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{key}` | {what} | {paper}{unit} | {measured}{unit} | {by} | {judged} |");
    }
    text
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample;

    #[test]
    fn six_digits_are_left() {
        for (value, expected) in [
            (0.0, 0.0),
            (1.0 / 3.0, 0.333333),
            (123_456_789.0, 123_457_000.0),
            (-2.0e-9 / 3.0, -6.66667e-10),
            (9.999_999_9, 10.0),
        ] {
            assert_eq!(round(value), expected);
        }
        assert!(round(f64::NAN).is_nan() && round(f64::INFINITY).is_infinite());
    }

    #[test]
    fn the_same_figures_give_the_same_bytes_and_odd_numbers_no_bad_json() {
        let figures = sample::figures();
        let text = json(&Scale::quick(1), &figures).expect("JSON");
        assert_eq!(text, json(&Scale::quick(1), &sample::figures()).expect("JSON"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["schema"], 1);
        assert_eq!(value["figures"].as_array().map(Vec::len), Some(figures.len()));
        assert_eq!(value["params"]["link_gbps"], 100);
        assert!(
            text.find("\"schema\"") < text.find("\"scale\"")
                && text.find("\"scale\"") < text.find("\"params\"")
        );
    }

    #[test]
    fn claims_are_a_table_with_a_summary() {
        let text = claims(&sample::figures());
        assert!(text.starts_with("judged 3, within 1.5: 1 (33 %), beyond 3: 1\n\n| key |"), "{text}");
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert!(lines.iter().all(|line| line.replace("\\|", "").matches('|').count() == 7), "{text}");
    }
}
