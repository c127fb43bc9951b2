//! The text format that Prometheus reads (version 0.0.4), written by hand: a few lines, no registry, no I/O.
//!
//! Names are the caller's and made of letters, digits and underscores; values of labels may be any text.

use std::fmt::{Display, Write};

/// What the text is served as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making: one family of samples after the other.
#[derive(Clone, Debug, Default)]
pub struct Text(String);

impl Text {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// A total that only grows, except when the process begins anew.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.sample(name, &[], value);
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, &[], value);
    }

    /// Totals of one kind, told apart by one label.
    pub fn counters<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help, "counter");
        for (value_of_label, value) in samples {
            self.sample(name, &[(label, value_of_label.as_ref())], value);
        }
    }

    /// What it is about, before the first sample of a family.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.line(format_args!("{name}"));
        for (number, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.line(format_args!("{}{label}=\"{text}\"", if number == 0 { '{' } else { ',' }));
        }
        self.line(format_args!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes all that is written to it.
        let _ = self.0.write_fmt(text);
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_prometheus_reads() {
        let mut text = Text::new();
        text.counter("verbs_total", "Verbs\nof all kinds", 7);
        text.gauge("uptime_seconds", "Since it began", 1.5);
        text.counters("refused_total", "By reason", "reason", [("bad_frame", 1), ("a \"b\" \\ c\n", 2)]);
        let expected = "# HELP verbs_total Verbs\\nof all kinds\n# TYPE verbs_total counter\nverbs_total 7\n\
            # HELP uptime_seconds Since it began\n# TYPE uptime_seconds gauge\nuptime_seconds 1.5\n\
            # HELP refused_total By reason\n# TYPE refused_total counter\nrefused_total{reason=\"bad_frame\"} 1\n\
            refused_total{reason=\"a \\\"b\\\" \\\\ c\\n\"} 2\n";
        assert_eq!(text.finish(), expected);
    }
}
