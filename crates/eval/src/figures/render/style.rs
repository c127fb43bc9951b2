//! Colours, textures, dashes and markers.
//!
//! A system looks the same in every figure. Colour is never the only distinction: bars have textures, and
//! lines have dashes and markers, so that a grey print is readable. The paper's values are hollow and dotted.

use crate::figures::model::{PanelKind, Series};
use std::fmt::Write;

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Its slot in the palette. Its class is `s` and this number.
    pub slot: usize,
    /// Whether it is the paper's.
    pub paper: bool,
}

/// A slot of the palette: name, colour on light, colour on dark, texture, dashes, marker.
struct PaletteSlot {
    name: &'static str,
    light: &'static str,
    dark: &'static str,
    texture: Option<u8>,
    dashes: &'static str,
    marker: Marker,
}

/// The shape at each point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// Round.
    Circle,
    /// A square on its side.
    Square,
    /// A square on its corner.
    Diamond,
    /// A triangle pointing up.
    Up,
    /// A triangle pointing down.
    Down,
    /// Two strokes.
    Cross,
}

const fn slot(
    name: &'static str,
    light: &'static str,
    dark: &'static str,
    texture: Option<u8>,
    dashes: &'static str,
    marker: Marker,
) -> PaletteSlot {
    PaletteSlot { name, light, dark, texture, dashes, marker }
}

const SLOTS: [PaletteSlot; 11] = [
    slot("fg", "#a7b0ba", "#6f7b88", Some(0), "1 3", Marker::Down),
    slot("fg+cache", "#93a0ad", "#7f8c99", Some(3), "7 3 1 3", Marker::Diamond),
    slot("fg+", "#8b97a4", "#94a2b1", None, "5 3", Marker::Square),
    slot("+combine", "#cf9a1b", "#dcb04a", Some(0), "2 2", Marker::Cross),
    slot("+on-chip", "#2f9488", "#4db8ab", Some(1), "8 3", Marker::Diamond),
    slot("+hierarchical", "#7c5fa8", "#a98bd6", Some(2), "7 3 2 3", Marker::Down),
    slot("sherman", "#20508c", "#6ea3e6", None, "", Marker::Circle),
    slot("ours", "#cc4f33", "#ef8066", Some(3), "10 3", Marker::Up),
    slot("", "#4f7a34", "#8dbd6d", Some(1), "3 2", Marker::Diamond),
    slot("", "#a2437f", "#d883b8", Some(2), "6 2 1 2", Marker::Cross),
    // The look of the paper's series if there is only one.
    slot("the paper", "#586573", "#a0acb9", None, "", Marker::Square),
];

/// The slots, in order, for series without the name of a system.
const OTHERS: [usize; 10] = [6, 7, 4, 3, 5, 8, 9, 2, 1, 0];

/// Returns the looks of a panel's series. The paper's series and the measured series of the same system share
/// a colour.
pub(super) fn looks(series: &[Series]) -> Vec<Look> {
    let own = |base: &str| match base {
        "" => Some(SLOTS.len() - 1),
        _ => SLOTS.iter().position(|slot| slot.name == base),
    };
    let mut bases: Vec<String> = Vec::new();
    for base in series.iter().map(|series| base(&series.name)) {
        if !bases.contains(&base) {
            bases.push(base);
        }
    }
    // Systems first, so that a series without its own look does not take theirs.
    let mut names: Vec<(String, usize)> =
        bases.iter().filter_map(|base| own(base).map(|slot| (base.clone(), slot))).collect();
    for base in bases.into_iter().filter(|base| own(base).is_none()) {
        let free = OTHERS.into_iter().find(|slot| names.iter().all(|(_, taken)| taken != slot));
        let slot = free.unwrap_or(names.len() % SLOTS.len());
        names.push((base, slot));
    }
    let slot = |name: &str| names.iter().find(|(known, _)| known == name).map_or(0, |(_, slot)| *slot);
    series.iter().map(|series| Look { slot: slot(&base(&series.name)), paper: series.paper }).collect()
}

/// Returns the name of a series without the words for "paper".
fn base(name: &str) -> String {
    let name = name.to_lowercase();
    let name =
        ["the paper's", "paper's", "(paper)", "paper"].iter().fold(name, |name, word| name.replace(word, ""));
    name.trim_matches([' ', ',', ':', '–', '-', '·']).to_owned()
}

impl Look {
    /// Returns its class.
    pub(super) fn class(self) -> String {
        format!("s{}", self.slot)
    }

    /// Returns its colour, for viewers that do not support CSS variables.
    pub(super) fn colour(self) -> &'static str {
        SLOTS[self.slot].light
    }

    /// Returns the texture of its bars.
    pub(super) fn texture(self) -> Option<u8> {
        if self.paper { None } else { SLOTS[self.slot].texture }
    }

    /// Returns the dashes of its line.
    pub(super) fn dashes(self) -> &'static str {
        if self.paper { "1 3" } else { SLOTS[self.slot].dashes }
    }

    /// Returns the marker of its points.
    pub(super) fn marker(self) -> Marker {
        SLOTS[self.slot].marker
    }

    /// Returns the style class of its marks.
    pub(super) fn mark(self, kind: PanelKind) -> &'static str {
        match (kind, self.paper) {
            (PanelKind::Bars, false) => "bar",
            (PanelKind::Bars, true) => "bar paper",
            (PanelKind::Lines, false) => "mark",
            (PanelKind::Lines, true) => "mark paper",
        }
    }
}

/// Textures that bars refer to. A document contains them once.
pub(super) const TEXTURES: &str = "<defs>\
<pattern id=\"texture-0\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\"><path d=\"M0 0V5\" class=\"weave\"/></pattern>\
<pattern id=\"texture-1\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(-45)\"><path d=\"M0 0V5\" class=\"weave\"/></pattern>\
<pattern id=\"texture-2\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<path d=\"M0 2.5H5\" class=\"weave\"/></pattern>\
<pattern id=\"texture-3\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<circle cx=\"2.5\" cy=\"2.5\" r=\"1\" class=\"dot\"/></pattern>\
</defs>";

/// Colours of everything except series, as name, light, dark.
const COLOURS: [(&str, &str, &str); 8] = [
    ("paper", "#ffffff", "#14181d"),
    ("card", "#f6f7f9", "#1b2027"),
    ("ink", "#1b232c", "#e4e8ed"),
    ("faint", "#586573", "#a0acb9"),
    ("rule", "#dde2e8", "#2d353f"),
    ("link", "#20508c", "#8cb8f0"),
    ("apart", "#8a5a00", "#e5b75a"),
    ("far", "#a92c1a", "#ff9480"),
];

/// Returns the variables of one theme.
fn variables(dark: bool) -> String {
    let mut css = format!("color-scheme:{};", if dark { "dark" } else { "light" });
    for (name, light, darker) in COLOURS {
        let _ = write!(css, "--{name}:{};", if dark { darker } else { light });
    }
    for (number, slot) in SLOTS.iter().enumerate() {
        let _ = write!(css, "--c{number}:{};", if dark { slot.dark } else { slot.light });
    }
    css
}

/// Returns both themes. The reader's preference chooses one; print uses the light one.
pub(super) fn themes() -> String {
    let (light, dark) = (variables(false), variables(true));
    format!(":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n")
}

/// Returns the style of drawings, for separate files and for the page.
pub(super) fn drawings() -> String {
    let mut css = String::from(
        "\
.chart text{font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;
fill:var(--ink,#1b232c);stroke:none}
.chart .small{font-size:10px;fill:var(--faint,#586573)}
.chart .heading{font-size:12px;font-weight:600}
.chart .big{font-size:16px;font-weight:600}
.chart .value{font-size:10px}
.chart .grid{stroke:var(--rule,#dde2e8);stroke-width:1;fill:none}
.chart .hair{stroke:var(--rule,#dde2e8);stroke-width:.5;fill:none}
.chart .axis{stroke:var(--faint,#586573);stroke-width:1;fill:none}
.chart .sheet{fill:var(--paper,#fff);stroke:none}
.chart .bar{fill:var(--c);stroke:var(--c);stroke-width:.8}
.chart .bar.paper{fill:none;stroke-width:1.2;stroke-dasharray:2.5 2}
.chart .texture{stroke:none;pointer-events:none}
.chart .curve{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round}
.chart .curve.paper{stroke-width:1.3}
.chart .mark{fill:var(--c);stroke:var(--paper,#fff);stroke-width:.8}
.chart .mark.paper{fill:var(--paper,#fff);stroke:var(--c);stroke-width:1.3}
.chart .whisker{fill:none;stroke:var(--ink,#1b232c);stroke-width:.9}
.weave{stroke:var(--paper,#fff);stroke-width:1.6;fill:none}
.dot{fill:var(--paper,#fff)}
",
    );
    for (number, slot) in SLOTS.iter().enumerate() {
        let _ = writeln!(css, ".s{number}{{--c:var(--c{number},{})}}", slot.light);
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, paper: bool) -> Series {
        Series { name: name.to_owned(), paper, points: Vec::new() }
    }

    #[test]
    fn a_system_looks_the_same_everywhere_and_the_paper_shares_its_colour() {
        let three = looks(&[series("fg+", false), series("Sherman", false), series("sherman (paper)", true)]);
        let two = looks(&[series("host", false), series("sherman", false)]);
        assert_eq!(three[1].slot, three[2].slot);
        assert_eq!(three[1].slot, two[1].slot);
        assert_ne!(two[0].slot, two[1].slot);
        assert!(three[2].paper && !three[1].paper);
    }

    #[test]
    fn others_differ_as_long_as_there_are_looks_left() {
        let names: Vec<_> = (0..14).map(|number| series(&format!("kind {number}"), false)).collect();
        let looks = looks(&names);
        let mut slots: Vec<_> = looks[..10].iter().map(|look| look.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 10);
    }
}
