//! The section of the page about one figure.

use super::panel::{self, is_drawn};
use super::svg::escape;
use crate::figures::judge::Distance;
use crate::figures::model::{Claim, Figure, Panel, Table};
use crate::figures::text::{factor, number};

/// Returns the section of a figure.
pub(super) fn section(figure: &Figure) -> String {
    let name = escape(figure.name);
    let mut html = format!(
        "<section id=\"{name}\" aria-labelledby=\"{name}-h\">\n<p class=\"where\">{}</p>\n\
         <h2 id=\"{name}-h\">{}</h2>\n\
         <p class=\"about\">{}</p>\n",
        escape(figure.paper),
        escape(figure.title),
        escape(&figure.about)
    );
    if !figure.panels.is_empty() {
        html += "<div class=\"panels\">\n";
        for (index, panel) in figure.panels.iter().enumerate() {
            html += &format!(
                "<figure class=\"panel\">{}</figure>\n",
                panel::element(panel, &format!("{name}-{index}"))
            );
        }
        html += "</div>\n<details>\n<summary>The same data as numbers</summary>\n";
        html += &figure.panels.iter().map(|panel| table(&numbers(panel))).collect::<String>();
        html += "</details>\n";
    }
    html += &figure.tables.iter().map(table).collect::<String>();
    html += &claims(&figure.claims);
    html + "</section>\n"
}

/// Returns a table in a box that scrolls if it is too wide. Its first column names the rows.
pub(super) fn table(table: &Table) -> String {
    let count = table.rows.iter().map(Vec::len).fold(table.columns.len(), usize::max);
    // A column is numeric if every cell that is not empty begins like a number.
    let numeric: Vec<bool> = (0..count)
        .map(|column| {
            let mut cells = table
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .filter(|cell| !cell.is_empty())
                .peekable();
            column > 0 && cells.peek().is_some() && cells.all(|cell| is_number(cell))
        })
        .collect();
    let class = |column: usize| if numeric.get(column) == Some(&true) { " class=\"n\"" } else { "" };
    let mut html = opening(&table.title);
    for (column, name) in table.columns.iter().enumerate() {
        html += &format!("<th scope=\"col\"{}>{}</th>", class(column), escape(name));
    }
    html += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            html += &match column {
                0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
                _ => format!("<td{}>{}</td>", class(column), escape(cell)),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table></div>\n"
}

/// Returns the beginning of a table up to its first heading. A scrollable box is reachable by keyboard.
fn opening(title: &str) -> String {
    let label = escape(title);
    let caption = if label.is_empty() { String::new() } else { format!("<caption>{label}</caption>") };
    let label = if label.is_empty() { "table".to_owned() } else { label };
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\"><table>{caption}\n\
         <thead><tr>"
    )
}

fn is_number(cell: &str) -> bool {
    let cell = cell.trim_start_matches(['+', '-', '−', '–', '×', '<', '>', '≥', '≤', '~', ' ', '±']);
    cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit() || first == '∞')
}

/// Returns a panel as a table: a row per position, a column per series.
fn numbers(panel: &Panel) -> Table {
    let mut places: Vec<f64> = panel::points(panel).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let place_name = |x: f64| {
        let category = panel.x.categories.iter().enumerate().find(|(index, _)| *index as f64 == x);
        category.map_or_else(|| number(x), |(_, name)| name.clone())
    };
    let columns =
        std::iter::once(panel.x.label.clone()).chain(panel.series.iter().map(|series| series.name.clone()));
    let row = |x: f64| {
        let values = panel.series.iter().map(|series| {
            let point = series.points.iter().find(|point| point.x == x && is_drawn(panel, point));
            point.map_or_else(String::new, |point| number(point.y))
        });
        std::iter::once(place_name(x)).chain(values).collect()
    };
    let title = format!("{}, {}", panel.title, panel.y.label);
    Table { title, columns: columns.collect(), rows: places.into_iter().map(row).collect() }
}

/// Returns the paper's numbers against the measured ones. A word, a shape and the font weight show the
/// distance, not colour alone.
fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    // On a phone a row has two lines. The roles keep it one row for screen readers.
    let mut html = String::from(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Against the paper\">\
         <table class=\"claims\" role=\"table\">\
         <caption>Against the paper</caption>\n<thead role=\"rowgroup\"><tr role=\"row\">",
    );
    for (name, class) in
        [("claim", ""), ("paper", "n"), ("measured", "n"), ("factor", "n"), ("verdict", "verdict")]
    {
        html += &format!("<th scope=\"col\" role=\"columnheader\" class=\"{class}\">{name}</th>");
    }
    html += "</tr></thead>\n<tbody role=\"rowgroup\">\n";
    for claim in claims {
        html += &row(claim);
    }
    html += "</tbody>\n</table></div>\n";
    if claims.iter().any(|claim| !claim.judged) {
        html += "<p class=\"where\">A hollow sign marks a claim that is shown for completeness: the model \
                 is not judged by it.</p>\n";
    }
    html
}

fn row(claim: &Claim) -> String {
    let distance = Distance::of(claim);
    let sign = match (distance, claim.judged) {
        (Distance::Close, true) => "●",
        (Distance::Close, false) => "○",
        (Distance::Apart, true) => "◆",
        (Distance::Apart, false) => "◇",
        (Distance::Far, true) => "▲",
        (Distance::Far, false) => "△",
    };
    let unit = if claim.unit.is_empty() { String::new() } else { format!(" {}", escape(claim.unit)) };
    let word = distance.word();
    // Claims that are not judged are not emphasized.
    let class = if claim.judged { word } else { "faint" };
    format!(
        "<tr role=\"row\"><th scope=\"row\" role=\"rowheader\">{}<code>{}</code></th>\
         <td role=\"cell\" class=\"n\">{}{unit}</td><td role=\"cell\" class=\"n\">{}{unit}</td>\
         <td role=\"cell\" class=\"n {class}\">{}</td><td role=\"cell\" class=\"verdict {class}\">\
         <span aria-hidden=\"true\">{sign}</span> {word}</td></tr>\n",
        escape(&claim.what),
        escape(&claim.key),
        number(claim.paper),
        number(claim.measured),
        factor(claim.factor())
    )
}
