//! The marks of a plot: bars, lines, and the whiskers of several runs.

use super::panel::{Frame, is_drawn};
use super::style::{Look, Marker};
use super::svg::{Anchor, Drawing, SMALL, at, escape, width};
use crate::figures::model::{Panel, PanelKind, Point, Series};
use crate::figures::text::{number, trimmed};

/// The most groups of bars: more than a person can read.
const GROUPS: f64 = 200.0;
/// The greatest width of a bar.
const WIDEST: f64 = 34.0;
/// The most markers on a line, approximately.
const MARKERS: usize = 16;
/// Half the size of a marker.
const HALF: f64 = 3.6;

/// Returns the group of a bar. Its x must be an index.
pub(super) fn group(x: f64) -> Option<usize> {
    ((0.0..GROUPS).contains(&x) && libm::floor(x) == x).then_some(x as usize)
}

/// Returns the number of groups of bars in a panel.
pub(super) fn groups(panel: &Panel) -> usize {
    let points = panel.series.iter().flat_map(|series| &series.points).filter(|point| is_drawn(panel, point));
    let used = points.filter_map(|point| group(point.x)).map(|group| group + 1).max().unwrap_or(0);
    used.max(panel.x.categories.len())
}

/// Returns the name of a group.
pub(super) fn group_name(panel: &Panel, group: usize) -> String {
    panel.x.categories.get(group).cloned().unwrap_or_else(|| group.to_string())
}

/// Returns the tooltip of a point.
fn title(panel: &Panel, series: &Series, point: &Point) -> String {
    let at = match group(point.x).and_then(|group| panel.x.categories.get(group)) {
        Some(name) => name.clone(),
        None if panel.kind == PanelKind::Bars => String::new(),
        None => format!("{} {}", panel.x.label, number(point.x)).trim().to_owned(),
    };
    let spread = if point.most > point.least {
        format!(" ({} to {})", number(point.least), number(point.most))
    } else {
        String::new()
    };
    let parts = [series.name.as_str(), at.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}: {} {}{spread}", parts.join(", "), number(point.y), panel.y.label)
}

fn open(drawing: &mut Drawing, look: Look) {
    drawing.push(&format!("<g class=\"{}\" fill=\"{1}\" stroke=\"{1}\">", look.class(), look.colour()));
}

/// Draws the spread of several runs, if it is large enough to see.
fn whisker(drawing: &mut Drawing, frame: &Frame, x: f64, half: f64, point: &Point) {
    let (Some(low), Some(high)) = (frame.y.place(point.least), frame.y.place(point.most)) else { return };
    if low - high < 1.0 {
        return;
    }
    let [left, right, x, low, high] = [x - half, x + half, x, low, high].map(at);
    drawing.push(&format!(
        "<path class=\"whisker\" d=\"M{left} {high}H{right}M{x} {high}V{low}M{left} {low}H{right}\"/>"
    ));
}

/// Draws groups of bars. Every group has room for the largest group's bars. Smaller groups are centred.
pub(super) fn bars(drawing: &mut Drawing, panel: &Panel, looks: &[Look], frame: &Frame) {
    let groups = groups(panel);
    let members = |wanted: usize| {
        let series = panel.series.iter().zip(looks);
        series.flat_map(move |(series, &look)| {
            let points = series.points.iter().filter(move |point| group(point.x) == Some(wanted));
            points.filter(|point| is_drawn(panel, point)).map(move |point| (series, look, point))
        })
    };
    let most = (0..groups).map(|group| members(group).count()).max().unwrap_or(0);
    let room = (frame.right - frame.left) / groups.max(1) as f64;
    let wide = (room * 0.84 / most.max(1) as f64).min(WIDEST);
    // Label all bars or none: partial labels would confuse.
    let labelled =
        (0..groups).flat_map(members).all(|(_, _, point)| width(&short(point.y), SMALL) <= wide + 1.0);
    for group in 0..groups {
        let count = members(group).count();
        let middle = frame.left + room * (group as f64 + 0.5);
        for (index, (series, look, point)) in members(group).enumerate() {
            let left = middle + (index as f64 - count as f64 / 2.0) * wide;
            let mark = Bar { left, wide, look, point, labelled };
            bar(drawing, frame, &mark, &title(panel, series, point));
        }
    }
}

struct Bar<'p> {
    left: f64,
    wide: f64,
    look: Look,
    point: &'p Point,
    /// Whether the number is written above the bar.
    labelled: bool,
}

fn bar(drawing: &mut Drawing, frame: &Frame, bar: &Bar<'_>, title: &str) {
    let &Bar { left, wide, look, point, labelled } = bar;
    let Some(y) = frame.y.place(point.y) else { return };
    let base = frame.y.base();
    let inner = (wide * 0.88).max(wide - 2.0).max(0.4);
    let (top, height) = (y.min(base), (y - base).abs().max(0.5));
    open(drawing, look);
    drawing.rect((left, top), (inner, height), look.mark(PanelKind::Bars), look.texture(), title);
    drawing.push("</g>");
    let middle = left + inner / 2.0;
    whisker(drawing, frame, middle, (inner / 4.0).min(4.0), point);
    if labelled {
        let above = frame.y.place(point.most).map_or(top, |most| most.min(top));
        drawing.text((middle, above - 3.0), Anchor::Middle, "value", &short(point.y));
    }
}

/// Formats a number for the small space above a bar: three digits.
fn short(value: f64) -> String {
    let (value, unit) = if value.abs() < 1e4 { (value, "") } else { (value / 1e3, "k") };
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ => 2,
    };
    if size == 0.0 || (0.01..1e4).contains(&size) {
        trimmed(format!("{value:.decimals$}")) + unit
    } else {
        number(value)
    }
}

/// Draws curves with markers. A point that cannot be drawn is skipped, and the line joins its neighbours.
pub(super) fn lines(drawing: &mut Drawing, panel: &Panel, looks: &[Look], frame: &Frame) {
    // The paper's curves lie below the measured ones.
    let order = panel.series.iter().zip(looks);
    let (paper, ours): (Vec<_>, Vec<_>) = order.partition(|(_, look)| look.paper);
    for (series, &look) in paper.into_iter().chain(ours) {
        let drawn = series.points.iter().filter(|point| is_drawn(panel, point));
        let places: Vec<_> = drawn
            .filter_map(|point| Some((frame.x.place(point.x)?, frame.y.place(point.y)?, point)))
            .collect();
        open(drawing, look);
        let path: Vec<String> = places.iter().map(|(x, y, _)| format!("{} {}", at(*x), at(*y))).collect();
        if path.len() > 1 {
            curve(drawing, look, &path.join("L"));
        }
        let every = places.len().div_ceil(MARKERS).max(1);
        for (number, (x, y, point)) in places.iter().enumerate() {
            if number % every != 0 && number + 1 != places.len() {
                continue;
            }
            whisker(drawing, frame, *x, 3.0, point);
            marker(drawing, look, (*x, *y), &title(panel, series, point));
        }
        drawing.push("</g>");
    }
}

fn curve(drawing: &mut Drawing, look: Look, path: &str) {
    let paper = if look.paper { " paper" } else { "" };
    let dashes = look.dashes();
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    drawing.push(&format!("<path class=\"curve{paper}\" fill=\"none\"{dashes} d=\"M{path}\"/>"));
}

fn marker(drawing: &mut Drawing, look: Look, (x, y): (f64, f64), title: &str) {
    let class = look.mark(PanelKind::Lines);
    let h = HALF;
    let corners = |corners: &[(f64, f64)]| {
        let corners: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{} {}", at(x + dx), at(y + dy))).collect();
        format!("path class=\"{class}\" d=\"M{}Z\"", corners.join("L"))
    };
    let (shape, name) = match look.marker() {
        Marker::Circle => {
            (format!("circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"", at(x), at(y), at(h)), "circle")
        }
        Marker::Square => {
            (corners(&[(-h, -h), (h, -h), (h, h), (-h, h)].map(|(a, b)| (a * 0.9, b * 0.9))), "path")
        }
        Marker::Diamond => {
            (corners(&[(0.0, -1.3 * h), (1.3 * h, 0.0), (0.0, 1.3 * h), (-1.3 * h, 0.0)]), "path")
        }
        Marker::Cross => {
            let (a, b) = (0.45 * h, 1.15 * h);
            let arm = [(0.0, -a), (b - a, -b), (b, a - b), (a, 0.0), (b, b - a), (b - a, b)];
            let other = [(0.0, a), (a - b, b), (-b, b - a), (-a, 0.0), (-b, a - b), (a - b, -b)];
            (corners(&[arm, other].concat()), "path")
        }
        Marker::Up => (corners(&[(0.0, -1.2 * h), (1.15 * h, 0.9 * h), (-1.15 * h, 0.9 * h)]), "path"),
        Marker::Down => (corners(&[(0.0, 1.2 * h), (1.15 * h, -0.9 * h), (-1.15 * h, -0.9 * h)]), "path"),
    };
    if title.is_empty() {
        drawing.push(&format!("<{shape}/>"));
    } else {
        drawing.push(&format!("<{shape}><title>{}</title></{name}>", escape(title)));
    }
}

/// Draws the look of a series for the legend, centred at the height `y`.
pub(super) fn swatch(drawing: &mut Drawing, kind: PanelKind, look: Look, (x, y): (f64, f64), wide: f64) {
    match kind {
        PanelKind::Bars => {
            drawing.rect((x + 0.5, y - 5.0), (wide - 1.0, 10.0), look.mark(kind), look.texture(), "")
        }
        PanelKind::Lines => {
            let [from, to, height] = [x, x + wide, y].map(at);
            curve(drawing, look, &format!("{from} {height}L{to} {height}"));
            marker(drawing, look, (x + wide / 2.0, y), "");
        }
    }
}
