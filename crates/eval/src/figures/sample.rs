//! Made-up figures for tests: bars, lines, logarithmic axes, one point, no point, NaN and infinity, text that
//! must be escaped.

use super::model::{Axis, Claim, Figure, Panel, PanelKind, Point, Series, Table};

fn axis(label: &str, log: bool, categories: &[&str]) -> Axis {
    Axis {
        label: label.to_owned(),
        log,
        categories: categories.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn series(name: &str, paper: bool, points: &[(f64, f64)]) -> Series {
    let point = |&(x, y): &(f64, f64)| Point { x, y, least: y * 0.9, most: y * 1.1 };
    Series { name: name.to_owned(), paper, points: points.iter().map(point).collect() }
}

fn claim(key: &str, paper: f64, measured: f64, judged: bool) -> Claim {
    let what = "Sherman over FG+, <throughput> | ratio".to_owned();
    Claim { key: key.to_owned(), what, paper, measured, unit: if judged { "" } else { "µs" }, judged }
}

fn bars(log: bool) -> Panel {
    let mixes = ["write-only", "write-intensive", "read-intensive"];
    let of = |height: f64| [(0.0, height), (1.0, height * 1.7), (2.0, height * 40.0)];
    let names = ["fg+", "+combine", "+on-chip", "+hierarchical", "sherman", "ours"];
    let mut all: Vec<_> = names
        .iter()
        .zip([0.3, 0.9, 2.7, 6.1, 6.3, 7.0])
        .map(|(name, height)| series(name, false, &of(height)))
        .collect();
    all.push(series("sherman, paper", true, &[(0.0, 7.4), (1.0, 8.1)]));
    Panel {
        title: "Throughput".to_owned(),
        kind: PanelKind::Bars,
        x: axis("", false, &mixes),
        y: axis("Mops", log, &[]),
        series: all,
    }
}

fn lines(log_x: bool) -> Panel {
    let clients = [16.0, 40.0, 88.0, 176.0, 352.0, 528.0];
    let curve = |top: f64| clients.map(|x| (x, top * x / (x + 100.0)));
    let all = vec![
        series("fg+", false, &curve(30.0)),
        series("sherman", false, &curve(50.0)),
        series("ours", false, &curve(52.0)),
    ];
    let (x, y) = (axis("clients", log_x, &[]), axis("Mops", false, &[]));
    Panel { title: "Uniform, with \"quotes\" & <tags>".to_owned(), kind: PanelKind::Lines, x, y, series: all }
}

/// NaN and infinity, one point, and no point.
fn odd() -> Vec<Panel> {
    let nan = series(
        "broken",
        false,
        &[(0.0, f64::NAN), (f64::INFINITY, 1.0), (1.0, f64::NEG_INFINITY), (2.0, 0.0)],
    );
    let of = |kind, log, series| {
        let (x, y) = (axis("x", log, &[]), axis("y", log, &[]));
        Panel { title: "Odd".to_owned(), kind, x, y, series }
    };
    vec![
        of(PanelKind::Lines, true, vec![nan.clone()]),
        of(PanelKind::Bars, true, vec![nan.clone()]),
        of(PanelKind::Lines, false, vec![nan, series("one", false, &[(3.0, 3.0)])]),
        of(PanelKind::Lines, false, vec![]),
        of(PanelKind::Bars, false, vec![]),
        of(PanelKind::Lines, true, vec![series("one", false, &[(3.0, 3.0)])]),
    ]
}

/// Some figures.
pub(crate) fn figures() -> Vec<Figure> {
    let table = Table {
        title: "Latency".to_owned(),
        columns: ["mix", "paper", "measured"].map(str::to_owned).to_vec(),
        rows: vec![["read & write", "4.9", "<5.1>"].map(str::to_owned).to_vec()],
    };
    let figure = |name, panels, tables, claims| Figure {
        name,
        title: "A figure & more",
        paper: "Figure 10, §5.2",
        about: "What it is <about>.".to_owned(),
        panels,
        tables,
        claims,
    };
    vec![
        figure(
            "bars",
            vec![bars(false), bars(true)],
            vec![],
            vec![claim("a.b", 23.6, 20.1, true), claim("a.c", 2.0, 5.0, true)],
        ),
        figure("lines", vec![lines(false), lines(true)], vec![], vec![claim("l", 1.0, f64::NAN, true)]),
        figure("tables", vec![], vec![table], vec![claim("t", 4.9, 5.1, false)]),
        figure("odd", odd(), vec![], vec![]),
    ]
}
