//! Writes shapes and text of a drawing.

use crate::figures::text::trimmed;

/// The size of most text, in units of the drawing. On a phone a unit is about a pixel.
pub(super) const TEXT: f64 = 11.0;
/// The size of the smallest text.
pub(super) const SMALL: f64 = 10.0;

/// Escapes markup. Omits characters that XML does not allow.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            other => escaped.push(other),
        }
    }
    escaped
}

/// Formats a coordinate, to a hundredth.
pub(super) fn at(value: f64) -> String {
    trimmed(format!("{value:.2}"))
}

/// Estimates the width of text. The reader's font is unknown, so the estimate is rather too wide than too
/// narrow.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let letters = text.chars().map(|letter| match letter {
        'i' | 'j' | 'l' | 't' | 'f' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '(' | ')' => 0.34,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
        'A'..='Z' | '+' | '×' | '=' | '<' | '>' => 0.72,
        '0'..='9' => 0.64,
        _ => 0.6,
    });
    letters.sum::<f64>() * size
}

/// Breaks text at spaces into lines no wider than `room`. Words that are wider break after hyphens. A part
/// that is still too wide stays whole.
pub(super) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let parts: Vec<&str> =
            if width(word, size) > room { word.split_inclusive('-').collect() } else { vec![word] };
        for (number, part) in parts.into_iter().enumerate() {
            let space = if number == 0 { " " } else { "" };
            match lines.last_mut() {
                Some(line) if width(line, size) + width(space, size) + width(part, size) <= room => {
                    line.push_str(space);
                    line.push_str(part);
                }
                _ => lines.push(part.to_owned()),
            }
        }
    }
    lines
}

/// Which part of a text is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A drawing under construction.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    /// Its markup.
    pub markup: String,
}

impl Drawing {
    /// Adds markup.
    pub(super) fn push(&mut self, markup: &str) {
        self.markup.push_str(markup);
    }

    /// Adds text.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        self.turned((x, y), 0.0, anchor, class, text);
    }

    /// Adds text, rotated by this many degrees.
    pub(super) fn turned(
        &mut self,
        (x, y): (f64, f64),
        degrees: f64,
        anchor: Anchor,
        class: &str,
        text: &str,
    ) {
        let (x, y) = (at(x), at(y));
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let turn = if degrees == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({} {x} {y})\"", at(degrees))
        };
        self.push(&format!("<text x=\"{x}\" y=\"{y}\"{anchor}{class}{turn}>{}</text>", escape(text)));
    }

    /// Adds a straight line.
    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(at);
        self.push(&format!("<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>"));
    }

    /// Adds a rectangle, with a texture if one is given. `title` is its tooltip.
    pub(super) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        class: &str,
        texture: Option<u8>,
        title: &str,
    ) {
        let place = format!("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", at(x), at(y), at(w), at(h));
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
        self.push(&format!("<rect class=\"{class}\" {place}>{title}</rect>"));
        if let Some(texture) = texture {
            self.push(&format!("<rect class=\"texture\" fill=\"url(#texture-{texture})\" {place}/>"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escape("a<b> & \"c\" 'd'\u{0}\n"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; ");
    }

    #[test]
    fn lines_break_at_spaces_and_where_they_must_at_hyphens() {
        assert_eq!(wrap("one two three", 10.0, 45.0), ["one two", "three"]);
        assert_eq!(wrap("read-intensive, uniform", 10.0, 60.0), ["read-", "intensive,", "uniform"]);
        assert_eq!(wrap("read-only mix", 10.0, 60.0), ["read-only", "mix"]);
        assert_eq!(wrap("incomprehensibilities", 10.0, 10.0), ["incomprehensibilities"]);
        assert!(wrap("", 10.0, 10.0).is_empty());
    }
}
