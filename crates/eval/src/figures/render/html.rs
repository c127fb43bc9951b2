//! The page: one file that loads nothing else.

use super::section::{section, table};
use super::style::{TEXTURES, drawings, themes};
use super::svg::escape;
use crate::figures::judge::{CLOSE, Distance, FAR, Summary};
use crate::figures::model::{Figure, Table};
use crate::figures::plan::Scale;
use crate::report::grouped;
use sherman_sim::nic::Params;

/// The style of the page.
const STYLE: &str = include_str!("page.css");

/// An introduction for new readers.
const ABOUT: &str = "Sherman is a B+Tree on disaggregated memory, published at SIGMOD 2022. The paper \
measures it on eight machines with 100 Gbit/s RDMA. This page repeats every experiment of the paper without \
the machines: the real index code runs on a model of the NICs, in virtual time. A model can show which \
technique helps, how much, and why. It cannot show how fast a given machine is. So each figure also shows \
the numbers that the paper states.";

/// The figure that was used to set parameters of the model.
const CALIBRATION: &str = "hocl";

/// Returns the page of these figures.
pub(crate) fn page(scale: &Scale, figures: &[Figure]) -> String {
    let mut body = String::new();
    body += &format!("<svg class=\"defs\" aria-hidden=\"true\">{TEXTURES}</svg>\n<header>\n");
    body += "<h1>Sherman’s evaluation, on a model of its machines</h1>\n";
    body += &format!("<p>{ABOUT}</p>\n{}{}</header>\n", tally(figures), how_to_read(scale));
    body += &contents(figures);
    body += "<main>\n";
    for figure in figures {
        body += &section(figure);
    }
    body += &parameters();
    body += "</main>\n<footer><p>In the folder of this page are <code>results.json</code> with every \
             number on it, <code>claims.md</code> with every claim, and an SVG of each figure. The same \
             program at the same scale makes the same bytes on any machine.</p></footer>\n";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>Sherman’s evaluation, on a model of its machines</title>\n\
         <style>\n{}{}{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        themes(),
        drawings()
    )
}

/// Returns the share of judged claims that are close, in large letters.
fn tally(figures: &[Figure]) -> String {
    let summary = Summary::of(figures);
    let Summary { judged, within_1_5, beyond_3 } = summary;
    if judged == 0 {
        return "<p class=\"faint\">The figures on this page have no claims that judge the model.</p>\n"
            .to_owned();
    }
    format!(
        "<dl class=\"tally\">\n\
         <div><dt>numbers of the paper that judge the model</dt><dd>{judged}</dd></div>\n\
         <div><dt>within a factor of {CLOSE}</dt><dd>{within_1_5} <small>{}&nbsp;%</small></dd></div>\n\
         <div><dt>beyond a factor of {FAR}</dt><dd>{beyond_3}</dd></div>\n</dl>\n{}",
        summary.percent(),
        without_calibration(figures)
    )
}

/// Returns the tally without the figure that was used to set parameters: its agreement is no evidence.
fn without_calibration(figures: &[Figure]) -> String {
    let others: Vec<Figure> = figures.iter().filter(|figure| figure.name != CALIBRATION).cloned().collect();
    if others.len() == figures.len() {
        return String::new();
    }
    let summary = Summary::of(&others);
    let Summary { judged, within_1_5, beyond_3 } = summary;
    let rest = match judged {
        0 => String::new(),
        _ => format!(
            " Without it, {judged} numbers are judged: {within_1_5} ({}&nbsp;%) are within {CLOSE}, \
             {beyond_3} beyond {FAR}.",
            summary.percent()
        ),
    };
    format!(
        "<p>Some parameters of the model were set with the paper’s \
         <a href=\"#{CALIBRATION}\">experiment on locks alone</a>. Its agreement is therefore no \
         evidence.{rest}</p>\n"
    )
}

fn how_to_read(scale: &Scale) -> String {
    let Scale { quick, keys, operations, runs, seed } = *scale;
    let size = if quick {
        "This is the quick scale, whose numbers show shapes rather than sizes"
    } else {
        "This is the full scale"
    };
    let times = if runs == 1 { "one run".to_owned() } else { format!("{runs} runs") };
    let whiskers = if runs == 1 { "" } else { " Whiskers show the lowest and the highest run." };
    format!(
        "<p class=\"faint\">{size}: {} keys, {} operations measured in each experiment, {times} of each, \
         first seed {seed}. The paper’s numbers are drawn hollow and dotted.{whiskers} A number is called \
         close if it is within a factor of {CLOSE} of the paper’s, apart if it is within {FAR}, and far \
         beyond that.</p>\n",
        grouped(keys),
        grouped(operations)
    )
}

fn contents(figures: &[Figure]) -> String {
    let mut list =
        String::from("<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Figures</h2>\n<ol>\n");
    for figure in figures {
        let judged = figure.claims.iter().filter(|claim| claim.judged);
        let close = judged.clone().filter(|claim| Distance::of(claim) == Distance::Close).count();
        let told = match judged.count() {
            0 => String::new(),
            judged => format!("<span>{close} of {judged} close</span>"),
        };
        list +=
            &format!("<li><a href=\"#{}\">{}</a>{told}</li>\n", escape(figure.name), escape(figure.title));
    }
    list + "<li><a href=\"#parameters\">The model’s parameters</a></li>\n</ol>\n</nav>\n"
}

/// Lists every parameter of the model.
fn parameters() -> String {
    let mut params = Params::PAPER;
    let rows = Params::FIELDS.map(|(name, field)| {
        let unit = match name.rsplit('_').next() {
            Some("nanos") => "ns",
            Some("picos") => "ps",
            Some("gbps") => "Gbit/s",
            Some("bytes") => "B",
            Some("bits") => "bits",
            _ => "",
        };
        vec![name.to_owned(), grouped(*field(&mut params)), unit.to_owned()]
    });
    let columns = ["parameter", "value", "unit"].map(str::to_owned).to_vec();
    let parameters =
        Table { title: "NICs and CPUs of the paper’s machines".to_owned(), columns, rows: rows.to_vec() };
    format!(
        "<section id=\"parameters\" aria-labelledby=\"parameters-h\">\n\
         <h2 id=\"parameters-h\">The model’s parameters</h2>\n\
         <p>They come from what the paper measures in isolation, mainly the experiment on locks alone, and \
         from public figures of the NIC and its bus. The code states the source of each parameter.</p>\n\
         {}</section>\n",
        table(&parameters)
    )
}
