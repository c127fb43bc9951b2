//! The output folder of figures: `index.html`, an SVG per figure, `results.json` and `claims.md`.

use super::error::FiguresError;
use super::model::Figure;
use super::plan::Scale;
use super::{render, results};
use std::path::{Path, PathBuf};

/// The folder of kept results, inside the folder of the figures.
const KEPT: &str = ".cache";

/// A folder that figures can be written to.
#[derive(Clone, Debug)]
pub struct Output {
    folder: PathBuf,
}

impl Output {
    /// Creates the folder if it does not exist, and checks that it can be written, before any experiment
    /// runs.
    pub fn open(folder: &Path) -> Result<Self, FiguresError> {
        let output = Self { folder: folder.to_owned() };
        let kept = output.kept();
        std::fs::create_dir_all(&kept)
            .map_err(|error| FiguresError::output(folder, reason(folder, &error)))?;
        for place in [folder, &kept] {
            let probe = place.join(format!(".probe.{}", std::process::id()));
            let probed = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
            probed.map_err(|error| FiguresError::output(place, error))?;
        }
        Ok(output)
    }

    /// Returns the folder of kept results.
    pub fn kept(&self) -> PathBuf {
        self.folder.join(KEPT)
    }

    /// Returns the path of the page.
    pub fn page(&self) -> PathBuf {
        self.folder.join("index.html")
    }

    /// Writes everything. The same figures give the same bytes.
    pub fn write(&self, scale: &Scale, figures: &[Figure]) -> Result<(), FiguresError> {
        let figures: Vec<Figure> = figures.iter().map(results::rounded).collect();
        let path = self.folder.join("results.json");
        let json = results::json(scale, &figures).map_err(|error| FiguresError::output(&path, error))?;
        write_whole(&path, &json)?;
        write_whole(&self.folder.join("claims.md"), &results::claims(&figures))?;
        for figure in &figures {
            write_whole(&self.folder.join(format!("{}.svg", figure.name)), &render::svg(figure))?;
        }
        write_whole(&self.page(), &render::page(scale, &figures))
    }
}

/// Returns the reason why a folder cannot be created. If a file has that name, the system's message would be
/// misleading.
fn reason(folder: &Path, error: &std::io::Error) -> String {
    let file = folder.ancestors().find(|place| place.is_file());
    file.map_or_else(|| error.to_string(), |file| format!("{} is a file", file.display()))
}

/// Writes a file so that it appears complete or not at all, even if this process is killed.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), FiguresError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| FiguresError::output(path, error))
}
