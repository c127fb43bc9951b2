//! Figures drawn from made-up numbers.

use super::*;
use crate::figures::plan::Scale;
use crate::figures::sample;

/// Asserts that every tag that is opened is closed, in order.
fn is_well_formed(xml: &str) {
    let mut open = Vec::new();
    for tag in xml.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('&') || text.split('&').skip(1).all(|rest| rest.contains(';')), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !tag.starts_with(['!', '?']) {
            open.push(tag.split([' ', '\n']).next().expect("a name"));
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_same_figures_give_the_same_bytes() {
    for (one, other) in sample::figures().iter().zip(&sample::figures()) {
        assert_eq!(svg(one), svg(other));
    }
    let page = |seed| super::page(&Scale::full(seed), &sample::figures());
    assert_eq!(page(1), page(1));
}

#[test]
fn drawings_are_well_formed_whatever_is_in_them() {
    for figure in sample::figures() {
        is_well_formed(&svg(&figure));
    }
}

#[test]
fn numbers_that_are_none_are_left_out() {
    for figure in sample::figures() {
        let drawn = svg(&figure);
        for attribute in drawn.split('"').skip(1).step_by(2) {
            assert!(!attribute.contains("NaN") && !attribute.contains("inf"), "{}: {attribute}", figure.name);
        }
    }
}

#[test]
fn labels_are_escaped() {
    let page = page(&Scale::quick(1), &sample::figures());
    assert!(!page.contains("<tags>") && page.contains("&lt;tags&gt;"));
    assert!(!page.contains("<about>") && !page.contains("<throughput>") && !page.contains("<5.1>"));
}

#[test]
fn the_page_asks_for_nothing_and_shows_everything() {
    let figures = sample::figures();
    let page = page(&Scale::quick(1), &figures);
    for asking in ["http:", "https:", "<script", "src=", "@import", "url(h"] {
        assert!(!page.contains(asking), "{asking}");
    }
    for figure in &figures {
        assert!(page.contains(&format!("<section id=\"{}\"", figure.name)));
    }
    let panels: usize = figures.iter().map(|figure| figure.panels.len()).sum();
    assert_eq!(page.matches("<svg class=\"chart\" role=\"img\"").count(), panels);
    assert!(page.contains("lang=\"en\"") && page.contains("name=\"viewport\""));
}

#[test]
fn a_page_of_no_figures_is_a_page() {
    assert!(page(&Scale::quick(1), &[]).ends_with("</html>\n"));
}

#[test]
fn the_calibration_of_the_model_is_reported_separately() {
    let mut figures = sample::figures();
    assert!(!page(&Scale::quick(1), &figures).contains("no evidence"));
    figures[0].name = "hocl";
    let page = page(&Scale::quick(1), &figures);
    assert!(
        page.contains("<dd>3</dd>") && page.contains("Without it, 1 numbers are judged: 0 (0&nbsp;%)"),
        "{page}"
    );
}
