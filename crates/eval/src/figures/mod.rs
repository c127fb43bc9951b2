//! Every figure and table of the paper's evaluation and motivation, with the measured results next to the
//! paper's.
//!
//! Each figure has its own file. The file draws the figure from the results of its experiments, and compares
//! it with the paper's numbers. Those numbers are all in [`paper`]. [`run`] runs the experiments of several
//! figures, each once, and draws the figures; [`Output`] writes them.
//!
//! Besides the figures:
//!
//! | module | what |
//! |---|---|
//! | `plan` | the inputs of a figure |
//! | `parts` | what figures share |
//! | `model` | what a figure is |
//! | `engine`, `kept` | running experiments, and keeping their results |
//! | `judge` | how close the model comes to the paper |
//! | `results`, `text` | figures as numbers |
//! | `render` | figures as pictures |
//! | `output` | the output folder |

mod ablation;
mod ablation_skewed;
mod ablation_uniform;
mod cache_size;
mod engine;
mod error;
mod hocl;
mod hot_keys;
mod internals;
mod judge;
mod kept;
mod key_size;
mod lock_collapse;
mod model;
mod output;
pub mod paper;
mod parts;
mod plan;
mod range;
mod render;
mod replicas;
mod results;
mod retries;
mod round_trips;
#[cfg(test)]
mod sample;
mod scalability;
mod sensitivity;
mod steps;
mod table_1;
mod table_2;
#[cfg(test)]
mod tests;
mod text;
mod write_bytes;
mod write_size;

pub use engine::{Progress, run};
pub use error::FiguresError;
pub use judge::{Distance, Summary};
pub use model::{Axis, Claim, Figure, Panel, PanelKind, Point, Series, Table};
pub use output::Output;
pub use plan::{Outcomes, Scale, Source};

/// Returns every figure, in the paper's order, and then those of this project.
pub fn all() -> Vec<Source> {
    vec![
        table_1::SOURCE,
        table_2::SOURCE,
        lock_collapse::SOURCE,
        write_size::SOURCE,
        ablation_skewed::SOURCE,
        ablation_uniform::SOURCE,
        range::SOURCE,
        scalability::SOURCE,
        retries::SOURCE,
        round_trips::SOURCE,
        write_bytes::SOURCE,
        key_size::SOURCE,
        cache_size::SOURCE,
        hocl::SOURCE,
        hot_keys::SOURCE,
        steps::SOURCE,
        replicas::SOURCE,
        sensitivity::SOURCE,
    ]
}

/// Returns the `sources` that have one of these names, in their own order; all of them if no name is given.
pub fn pick(sources: Vec<Source>, names: &[String]) -> Result<Vec<Source>, FiguresError> {
    if let Some(unknown) = names.iter().find(|name| sources.iter().all(|source| source.name != **name)) {
        let known = sources.iter().map(|source| source.name).collect();
        return Err(FiguresError::Unknown { name: unknown.clone(), known });
    }
    let wanted = |source: &Source| names.is_empty() || names.iter().any(|name| name == source.name);
    Ok(sources.into_iter().filter(wanted).collect())
}
