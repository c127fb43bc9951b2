//! Renders a figure as a separate file: all its panels and tables, with their style.

use super::panel::{self, Drawn, WIDTH};
use super::style::{TEXTURES, drawings, themes};
use super::svg::{Anchor, Drawing, TEXT, at, escape, width, wrap};
use crate::figures::model::{Figure, Table};

/// The margin, and the gap between panels.
const GAP: f64 = 24.0;
/// The most panels side by side.
const COLUMNS: usize = 3;
/// The height of a table row.
const ROW: f64 = 18.0;

/// Returns the SVG of a figure.
pub(crate) fn svg(figure: &Figure) -> String {
    let columns = figure.panels.len().clamp(1, COLUMNS);
    let tables: Vec<(f64, &Table, Vec<f64>)> = figure
        .tables
        .iter()
        .map(|table| (columns_of(table).iter().sum(), table, columns_of(table)))
        .collect();
    let inner = tables.iter().map(|(wide, ..)| *wide).fold(columns as f64 * (WIDTH + GAP) - GAP, f64::max);
    let mut drawing = Drawing::default();
    let mut y = GAP + 14.0;
    for line in wrap(figure.title, 16.0, inner) {
        drawing.text((GAP, y), Anchor::Start, "big", &line);
        y += 20.0;
    }
    drawing.text((GAP, y - 2.0), Anchor::Start, "small", figure.paper);
    y += GAP - 6.0;
    for row in figure.panels.chunks(columns) {
        let mut height: f64 = 0.0;
        for (column, panel) in row.iter().enumerate() {
            let Drawn { markup, height: own } = panel::draw(panel);
            let x = GAP + column as f64 * (WIDTH + GAP);
            drawing.push(&format!("<g transform=\"translate({} {})\">{markup}</g>", at(x), at(y)));
            height = height.max(own);
        }
        y += height + GAP;
    }
    for (wide, table, columns) in &tables {
        y = draw_table(&mut drawing, table, columns, *wide, y) + GAP;
    }
    let (wide, high) = (at(inner + 2.0 * GAP), at(y));
    let described: Vec<String> = figure.panels.iter().map(panel::described).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" aria-labelledby=\"t d\" \
         width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\">\n\
         <title id=\"t\">{}</title>\n<desc id=\"d\">{} {}</desc>\n\
         <style>\n{}{}</style>\n{TEXTURES}\n\
         <rect class=\"sheet\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}\n</svg>\n",
        escape(figure.title),
        escape(&figure.about),
        escape(&described.join(" ")),
        themes(),
        drawings(),
        drawing.markup
    )
}

/// Returns the widths of a table's columns.
fn columns_of(table: &Table) -> Vec<f64> {
    let count = table.rows.iter().map(Vec::len).fold(table.columns.len(), usize::max);
    let cells = |column: usize| {
        let rows = table.rows.iter().filter_map(move |row| row.get(column));
        rows.chain(table.columns.get(column))
    };
    (0..count).map(|column| cells(column).map(|cell| width(cell, TEXT)).fold(20.0, f64::max) + 16.0).collect()
}

/// Draws a table below `top`, and returns its lower edge.
fn draw_table(drawing: &mut Drawing, table: &Table, columns: &[f64], wide: f64, top: f64) -> f64 {
    let mut y = top;
    if !table.title.is_empty() {
        drawing.text((GAP, y + 12.0), Anchor::Start, "heading", &table.title);
        y += ROW + 4.0;
    }
    let heads = std::iter::once((&table.columns, "small"));
    for (row, class) in heads.chain(table.rows.iter().map(|row| (row, ""))) {
        let mut x = GAP;
        for (cell, wide) in row.iter().zip(columns) {
            drawing.text((x, y + 12.0), Anchor::Start, class, cell);
            x += wide;
        }
        y += ROW;
        drawing.line((GAP, y), (GAP + wide, y), "grid");
    }
    y
}
