//! Every figure and table of the paper's evaluation and motivation, with ours beside.
//!
//! A figure has a [`Source`]: which experiments it needs, and how it is drawn from them. [`run`] runs the experiments of several
//! figures and draws these; [`Output`] writes them.
//!
//! | module | what |
//! |---|---|
//! | `plan` | what a figure is made from |
//! | `model` | what a figure is |
//! | `engine`, `kept` | running experiments, and keeping what they gave |
//! | `judge` | how near the model comes to the paper |
//! | `results` | figures as numbers |
//! | `render` | figures as pictures |
//! | `output` | the folder they go to |

mod engine;
mod error;
mod judge;
mod kept;
mod model;
mod output;
mod plan;
mod render;
mod results;
#[cfg(test)]
mod sample;
mod text;

pub use engine::{Progress, run};
pub use error::FiguresError;
pub use judge::{Distance, Summary};
pub use model::{Axis, Claim, Figure, Kind, Panel, Point, Series, Table};
pub use output::Output;
pub use plan::{Outcomes, Scale, Source};

/// Every figure, in the paper's order, and then our own.
pub fn all() -> Vec<Source> {
    Vec::new()
}

/// Those of `sources` that have one of these names, in their own order; all of them if no name is given.
pub fn pick(sources: Vec<Source>, names: &[String]) -> Result<Vec<Source>, FiguresError> {
    if let Some(unknown) = names.iter().find(|name| sources.iter().all(|source| source.name != **name)) {
        let known = sources.iter().map(|source| source.name).collect();
        return Err(FiguresError::Unknown { name: unknown.clone(), known });
    }
    let wanted = |source: &Source| names.is_empty() || names.iter().any(|name| name == source.name);
    Ok(sources.into_iter().filter(wanted).collect())
}
