//! A plot: heading, legend, axes, and the frame for its marks.
//!
//! A plot is as wide as a phone's page, so that its text need not shrink there. A wide page shows several
//! plots side by side.

use super::marks;
use super::scale::{Scale, Tick};
use super::style::{Look, looks};
use super::svg::{Anchor, Drawing, SMALL, TEXT, at, width, wrap};
use crate::figures::model::{Panel, PanelKind, Point};
use crate::figures::text::{number, short};

/// The width of a panel.
pub(super) const WIDTH: f64 = 352.0;
/// The height of its plot.
const PLOT: f64 = 176.0;
/// The height of a line of text.
const LINE: f64 = 14.0;
/// With more x values than this, lines do not name every value.
const NAMED: usize = 12;

/// Text from bottom to top: its angle in degrees, with sine and cosine.
const UPRIGHT: (f64, f64, f64) = (90.0, 1.0, 0.0);
/// The possible slants of names that are too long, the flattest first.
const SLANTS: [(f64, f64, f64); 3] = [(35.0, 0.574, 0.819), (50.0, 0.766, 0.643), UPRIGHT];

/// A drawn panel.
pub(super) struct Drawn {
    /// The markup inside `<svg>` or `<g>`.
    pub markup: String,
    /// Its height.
    pub height: f64,
}

/// The area of a panel's marks.
pub(super) struct Frame {
    /// From left to right.
    pub x: Scale,
    /// From bottom to top.
    pub y: Scale,
    /// The left edge.
    pub left: f64,
    /// The right edge.
    pub right: f64,
    /// The upper edge.
    pub top: f64,
    /// The lower edge.
    pub bottom: f64,
}

/// Draws a panel.
pub(super) fn draw(panel: &Panel) -> Drawn {
    let looks = looks(&panel.series);
    let mut drawing = Drawing::default();
    let mut top = heading(&mut drawing, panel);
    top = legend(&mut drawing, panel, &looks, top);
    top += LINE;
    drawing.text((0.0, top - 3.0), Anchor::Start, "small", &panel.y.label);
    // Room for numbers above the highest bars.
    top += LINE;
    let y = y_scale(panel);
    let ticks = y.ticks();
    let labels = ticks.iter().map(|tick| width(&tick.label, SMALL));
    let left = labels.fold(12.0, f64::max) + 6.0;
    let (right, bottom) = (WIDTH - 6.0, top + PLOT);
    let inset = if panel.x.categories.is_empty() { 8.0 } else { 24.0 };
    let x = x_scale(panel).between(left + inset, right - inset);
    let frame = Frame { x, y: y.between(bottom, top), left, right, top, bottom };
    y_axis(&mut drawing, &frame, &ticks);
    let mut height = match panel.kind {
        PanelKind::Bars => group_names(&mut drawing, panel, &frame),
        PanelKind::Lines => x_axis(&mut drawing, panel, &frame),
    };
    match panel.kind {
        PanelKind::Bars => marks::bars(&mut drawing, panel, &looks, &frame),
        PanelKind::Lines => marks::lines(&mut drawing, panel, &looks, &frame),
    }
    if points(panel).next().is_none() {
        let middle = (f64::midpoint(frame.left, frame.right), f64::midpoint(frame.top, frame.bottom));
        drawing.text(middle, Anchor::Middle, "small", "nothing was measured");
    }
    if !panel.x.label.is_empty() {
        height += LINE;
        drawing.text((f64::midpoint(left, right), height - 2.0), Anchor::Middle, "small", &panel.x.label);
    }
    Drawn { markup: drawing.markup, height: height + 4.0 }
}

/// Returns every point that can be drawn.
pub(super) fn points(panel: &Panel) -> impl Iterator<Item = &Point> {
    let all = panel.series.iter().flat_map(|series| &series.points);
    all.filter(|point| is_drawn(panel, point))
}

/// Returns whether a point can be drawn: its coordinates are numbers, and have logarithms where the axis
/// needs them.
pub(super) fn is_drawn(panel: &Panel, point: &Point) -> bool {
    let fits = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
    let group = panel.kind == PanelKind::Lines || marks::group(point.x).is_some();
    group && fits(point.x, panel.kind == PanelKind::Lines && panel.x.log) && fits(point.y, panel.y.log)
}

fn y_scale(panel: &Panel) -> Scale {
    let values = || points(panel).flat_map(|point| [point.y, point.least, point.most]);
    // A curve near its maximum gets a zoomed axis. An axis of bars starts at zero, because the length of a
    // bar must be true.
    let (least, most) = values()
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, 0.0), |(least, most), value| (f64::min(least, value), f64::max(most, value)));
    let near = panel.kind == PanelKind::Lines && least > 0.8 * most && least < most;
    Scale::round(values(), panel.y.log, !near)
}

fn x_scale(panel: &Panel) -> Scale {
    let named = panel.x.categories.len();
    if named > 0 {
        return Scale::tight([0.0, (named - 1) as f64].into_iter(), false);
    }
    Scale::tight(points(panel).map(|point| point.x), panel.x.log)
}

fn heading(drawing: &mut Drawing, panel: &Panel) -> f64 {
    let lines = wrap(&panel.title, 12.0, WIDTH);
    for (number, line) in lines.iter().enumerate() {
        drawing.text((0.0, 12.0 + number as f64 * LINE), Anchor::Start, "heading", line);
    }
    lines.len() as f64 * LINE + 4.0
}

/// Draws the legend below `top`, in as many lines as it needs, and returns its lower edge.
fn legend(drawing: &mut Drawing, panel: &Panel, looks: &[Look], top: f64) -> f64 {
    let (swatch, gap) = (if panel.kind == PanelKind::Lines { 24.0 } else { 11.0 }, 12.0);
    let (mut x, mut y, mut any) = (0.0, top, false);
    for (series, &look) in panel.series.iter().zip(looks).filter(|(series, _)| !series.name.is_empty()) {
        let wide = swatch + 5.0 + width(&series.name, TEXT);
        if x > 0.0 && x + wide > WIDTH {
            (x, y) = (0.0, y + LINE + 1.0);
        }
        drawing.push(&format!("<g class=\"{}\" fill=\"{1}\" stroke=\"{1}\">", look.class(), look.colour()));
        marks::swatch(drawing, panel.kind, look, (x, y + 6.0), swatch);
        drawing.push("</g>");
        drawing.text((x + swatch + 5.0, y + 10.0), Anchor::Start, "", &series.name);
        x += wide + gap;
        any = true;
    }
    if any { y + LINE + 2.0 } else { top }
}

fn y_axis(drawing: &mut Drawing, frame: &Frame, ticks: &[Tick]) {
    for tick in ticks {
        let Some(y) = frame.y.place(tick.value) else { continue };
        let class = if tick.label.is_empty() { "hair" } else { "grid" };
        drawing.line((frame.left, y), (frame.right, y), class);
        if !tick.label.is_empty() {
            drawing.text((frame.left - 5.0, y + 3.5), Anchor::End, "small", &tick.label);
        }
    }
    drawing.line((frame.left, frame.y.base()), (frame.right, frame.y.base()), "axis");
}

/// Draws the names of groups of bars, and returns their lower edge.
fn group_names(drawing: &mut Drawing, panel: &Panel, frame: &Frame) -> f64 {
    let groups = marks::groups(panel);
    let room = (frame.right - frame.left) / groups.max(1) as f64;
    let names: Vec<(f64, String)> = (0..groups)
        .map(|group| (frame.left + room * (group as f64 + 0.5), marks::group_name(panel, group)))
        .collect();
    name_places(drawing, frame, &names, room - 6.0)
}

/// Draws names below the plot, each in `room`. The names are horizontal in a few lines if they fit, otherwise
/// slanted. Returns their lower edge.
fn name_places(drawing: &mut Drawing, frame: &Frame, names: &[(f64, String)], room: f64) -> f64 {
    let wrapped: Vec<Vec<String>> = names.iter().map(|(_, name)| wrap(name, TEXT, room)).collect();
    let fits = wrapped
        .iter()
        .all(|lines| lines.len() <= 3 && lines.iter().all(|line| width(line, TEXT) <= room + 4.0));
    if fits {
        for ((x, _), lines) in names.iter().zip(&wrapped) {
            for (number, line) in lines.iter().enumerate() {
                drawing.text((*x, frame.bottom + 14.0 + number as f64 * 12.5), Anchor::Middle, "", line);
            }
        }
        return frame.bottom + 6.0 + wrapped.iter().map(Vec::len).max().unwrap_or(0) as f64 * 12.5;
    }
    let longest = names.iter().map(|(_, name)| width(name, TEXT)).fold(0.0, f64::max);
    let fits =
        |&(_, _, cosine): &(f64, f64, f64)| names.iter().all(|(x, name)| width(name, TEXT) * cosine <= *x);
    let (degrees, sine, _) = SLANTS.into_iter().find(fits).unwrap_or(UPRIGHT);
    for (x, name) in names {
        drawing.turned((x + 4.0, frame.bottom + 13.0), -degrees, Anchor::End, "", name);
    }
    frame.bottom + 16.0 + longest * sine
}

/// Draws the values or categories of the x axis, and returns their lower edge.
fn x_axis(drawing: &mut Drawing, panel: &Panel, frame: &Frame) -> f64 {
    let named = panel.x.categories.len();
    if named > 0 {
        let place = |(group, name): (usize, &String)| Some((frame.x.place(group as f64)?, name.clone()));
        let names: Vec<_> = panel.x.categories.iter().enumerate().filter_map(place).collect();
        let room = (frame.right - frame.left) / named as f64 - 6.0;
        return name_places(drawing, frame, &names, room);
    }
    for tick in x_ticks(panel, frame) {
        let Some(x) = frame.x.place(tick.value) else { continue };
        drawing.line((x, frame.bottom), (x, frame.bottom + 4.0), "axis");
        drawing.text((x, frame.bottom + 15.0), Anchor::Middle, "small", &tick.label);
    }
    frame.bottom + 18.0
}

/// Returns the measured values if they are few, otherwise round values. Omits labels that would overlap.
fn x_ticks(panel: &Panel, frame: &Frame) -> Vec<Tick> {
    let mut values: Vec<f64> = points(panel).map(|point| point.x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let all = if values.len() <= NAMED {
        values.into_iter().map(|value| Tick { value, label: short(value) }).collect()
    } else {
        frame.x.ticks()
    };
    let named = all.into_iter().filter(|tick| !tick.label.is_empty());
    let ends = |tick: &Tick| {
        let half = width(&tick.label, SMALL) / 2.0 + 3.0;
        frame.x.place(tick.value).map(|x| (x - half, x + half))
    };
    let named: Vec<Tick> = named.filter(|tick| ends(tick).is_some()).collect();
    let last = named.last().and_then(ends);
    let mut kept: Vec<Tick> = Vec::new();
    for (number, tick) in named.iter().enumerate() {
        let Some((left, right)) = ends(tick) else { continue };
        let clear = kept.last().and_then(ends).is_none_or(|(_, end)| end <= left);
        let is_last = number + 1 == named.len();
        if clear && (is_last || last.is_none_or(|(begin, _)| right <= begin)) {
            kept.push(tick.clone());
        }
    }
    kept
}

/// Describes a panel for readers who cannot see it.
pub(super) fn described(panel: &Panel) -> String {
    let kind = match panel.kind {
        PanelKind::Bars => "Bars",
        PanelKind::Lines => "Lines",
    };
    let log = if panel.y.log { ", logarithmic" } else { "" };
    let over = if panel.x.label.is_empty() { String::new() } else { format!(" by {}", panel.x.label) };
    let series = panel.series.iter().map(|series| {
        let drawn = series.points.iter().filter(|point| is_drawn(panel, point));
        let values: Vec<String> = drawn.map(|point| number(point.y)).collect();
        match values.as_slice() {
            [] => format!("{}: nothing", series.name),
            [first, .., last] if values.len() > NAMED => format!("{}: from {first} to {last}", series.name),
            some => format!("{}: {}", series.name, some.join(", ")),
        }
    });
    format!("{kind} of {}{log}{over}. {}.", panel.y.label, series.collect::<Vec<_>>().join("; "))
}

/// Returns a panel as an `<svg>` element of a page. `id` is the prefix of its parts' ids.
pub(super) fn element(panel: &Panel, id: &str) -> String {
    let Drawn { markup, height } = draw(panel);
    let (title, about) = (super::svg::escape(&panel.title), super::svg::escape(&described(panel)));
    format!(
        "<svg class=\"chart\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {} {}\">\
         <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{about}</desc>{markup}</svg>\n",
        at(WIDTH),
        at(height)
    )
}
