//! The result for people: a table per distribution, on a terminal or in Markdown.

use crate::peers::OURS;
use crate::report::{Cell, Entry, Report};
use crate::workload::{Distribution, Mix, RANGE};

/// Reasons up to this length appear in the table itself; longer ones below it.
const SHORT: usize = 10;

/// The format of rows and cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Terminal,
    Markdown,
}

/// Returns the tables for a terminal.
pub fn terminal(report: &Report) -> String {
    render(report, Form::Terminal)
}

/// Returns the tables for a README.
pub fn markdown(report: &Report) -> String {
    render(report, Form::Markdown)
}

fn render(report: &Report, form: Form) -> String {
    let mut text = String::new();
    for distribution in Distribution::ALL {
        let mixes = Mix::ALL.into_iter().filter(|&mix| {
            report.indexes.iter().any(|entry| report.cell(entry.name, mix, distribution).is_some())
        });
        let mixes: Vec<Mix> = mixes.collect();
        if mixes.is_empty() {
            continue;
        }
        text += &heading(distribution, form);
        text += &lay_out(&results(report, distribution, &mixes, form), &[0], form);
        text += &notes(report, distribution);
        text.push('\n');
    }
    text += &heading_of_loads(form);
    text += &lay_out(&loads(report), &[0, 1, 4], form);
    text.push('\n');
    text += &conditions(report);
    text
}

fn heading(distribution: Distribution, form: Form) -> String {
    let name = match distribution {
        Distribution::Uniform => "Uniform keys",
        Distribution::Zipf => "Skewed keys (Zipf 0.99, hot keys scattered)",
    };
    let unit = "Mop/s, half the spread of the runs, and ours divided by it";
    match form {
        Form::Terminal => format!("{name}: {unit}\n\n"),
        Form::Markdown => format!("**{name}**: {unit}\n\n"),
    }
}

fn heading_of_loads(form: Form) -> String {
    let text = "Loading by inserts in no order";
    if form == Form::Markdown { format!("**{text}**\n\n") } else { format!("{text}\n\n") }
}

fn results(report: &Report, distribution: Distribution, mixes: &[Mix], form: Form) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["index".to_owned()]];
    rows[0].extend(mixes.iter().map(|mix| mix.name().to_owned()));
    for entry in &report.indexes {
        let name = if form == Form::Markdown && entry.name == OURS { "**sherman**" } else { entry.name };
        let cell =
            |&mix: &Mix| report.cell(entry.name, mix, distribution).map_or(String::new(), |c| show(c, form));
        rows.push(std::iter::once(name.to_owned()).chain(mixes.iter().map(cell)).collect());
    }
    rows
}

fn show(cell: &Cell, form: Form) -> String {
    let Some(median) = cell.median_mops else {
        let reason = cell.unavailable.as_deref().unwrap_or("n/a");
        return if reason.len() <= SHORT { reason.to_owned() } else { "n/a".to_owned() };
    };
    let ratio = cell.ours_over_this.filter(|_| cell.index != OURS);
    match form {
        Form::Terminal => {
            let spread = cell.spread.map_or(String::new(), |spread| format!(" ±{:.0}%", 100.0 * spread));
            let ratio = ratio.map_or(String::new(), |ratio| format!(" {ratio:.2}x"));
            format!("{}{spread}{ratio:>6}", digits(median))
        }
        Form::Markdown => {
            let spread = cell.spread.map_or(String::new(), |spread| format!(" ±{:.0} %", 100.0 * spread));
            let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2}×)"));
            format!("{}{spread}{ratio}", digits(median))
        }
    }
}

/// Formats a number with three significant digits.
fn digits(number: f64) -> String {
    match number {
        ..0.9995 => format!("{number:.3}"),
        ..9.995 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

/// Explains empty cells whose reason did not fit, and gets that found nothing.
fn notes(report: &Report, distribution: Distribution) -> String {
    let note = |cell: &Cell| {
        let place = format!("{}, {}", cell.index, cell.mix.name());
        match &cell.unavailable {
            Some(reason) if reason.len() > SHORT => Some(format!("n/a: {place}: {reason}\n")),
            None if cell.misses > 0 => {
                let of: u64 = cell.operations.iter().sum();
                Some(format!(
                    "{place}: {} of {of} operations missed a key during its replacement\n",
                    cell.misses
                ))
            }
            _ => None,
        }
    };
    let cells = report.cells.iter().filter(|cell| cell.distribution == distribution);
    let text: String = cells.filter_map(note).collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn loads(report: &Report) -> Vec<Vec<String>> {
    let row = |entry: &Entry| {
        let number = |number: Option<f64>, digits: fn(f64) -> String| number.map_or("n/a".to_owned(), digits);
        vec![
            entry.name.to_owned(),
            format!("{} {}", entry.package, entry.version),
            number(entry.load_mops, digits),
            number(entry.bytes_per_key, |bytes| format!("{bytes:.0}")),
            entry.failed.clone().unwrap_or_else(|| entry.about.to_owned()),
        ]
    };
    let head = ["index", "crate", "Mop/s", "bytes/key", "what"].map(str::to_owned).to_vec();
    std::iter::once(head).chain(report.indexes.iter().map(row)).collect()
}

fn conditions(report: &Report) -> String {
    let settings = &report.settings;
    let length = match settings.operations {
        Some(operations) => format!("{operations} operations"),
        None => format!("about {} s", settings.seconds),
    };
    let runs = match settings.runs {
        1 => "one run".to_owned(),
        runs => format!("medians of {runs} runs"),
    };
    let processor = report.machine.processor.as_deref().unwrap_or("an unknown processor");
    format!(
        "{} keys of 8 bytes, values of 8 bytes, {} threads; {} of {length}, indexes in turn; a range reads \
         {RANGE} entries and is one operation; allocator {}; {processor}, {} cores; everything took \
         {:.0} s.\n",
        settings.keys,
        settings.threads,
        runs,
        settings.allocator,
        report.machine.cores,
        settings.seconds_taken
    )
}

/// Lays out rows of cells, as wide as necessary. The first row has the headings. Columns in `left` are text.
fn lay_out(rows: &[Vec<String>], left: &[usize], form: Form) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut text = String::new();
    for (nth, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match left.contains(&column) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let cells: Vec<String> = cells.collect();
        match form {
            Form::Terminal => text += &format!("{}\n", cells.join("  ").trim_end()),
            Form::Markdown => text += &format!("| {} |\n", cells.join(" | ")),
        }
        if nth == 0 && form == Form::Markdown {
            let ruler = |(column, _): (usize, &usize)| if left.contains(&column) { "---" } else { "---:" };
            text += &format!("|{}|\n", widths.iter().enumerate().map(ruler).collect::<Vec<_>>().join("|"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    fn sample() -> Report {
        report(&[
            ("sherman", Mix::Insert, Ok(3.0)),
            ("sherman", Mix::Range, Err("pending")),
            ("scc", Mix::Insert, Ok(2.0)),
            ("scc", Mix::Range, Err("lost the key that it was given")),
        ])
    }

    #[test]
    fn a_table_has_a_row_per_index_and_a_column_per_mix() {
        let text = markdown(&sample());
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = text.lines().filter(|line| line.starts_with('|')).map(cells).collect();
        assert_eq!(rows[0][1..4], ["index", "insert", "range"]);
        assert_eq!(rows[2][1..4], ["**sherman**", "3.00", "pending"]);
        assert_eq!(rows[3][1..4], ["scc", "2.00 (1.50×)", "n/a"]);
    }

    #[test]
    fn a_long_reason_stands_below_the_table() {
        let text = terminal(&sample());
        assert!(text.contains("n/a: scc, range: lost the key that it was given"), "{text}");
        assert!(!text.contains("n/a: sherman"), "{text}");
    }

    #[test]
    fn a_distribution_that_was_not_measured_has_no_table() {
        assert!(!terminal(&sample()).contains("Zipf"));
    }
}
