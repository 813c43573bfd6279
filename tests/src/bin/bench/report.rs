//! The figures, their bounds and the file they go to.
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// On which side of its bound a figure must lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    AtMost,
    AtLeast,
}

#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    bound: f64,
    direction: Direction,
    runs: usize,
}

/// Collects figures.
#[derive(Debug)]
pub(crate) struct Report {
    file: PathBuf,
    only: String,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(file: PathBuf, only: String) -> Self {
        Self { file, only, figures: Vec::new() }
    }

    /// Whether one of these was asked for.
    pub(crate) fn wants(&self, names: &[&str]) -> bool {
        names.iter().any(|name| name.contains(&self.only))
    }

    /// Keeps the median of `values` as a figure.
    pub(crate) fn figure(
        &mut self,
        name: &'static str,
        unit: &'static str,
        values: &[f64],
        direction: Direction,
        bound: f64,
    ) {
        let value = median(values);
        let ok = match direction {
            Direction::AtMost => value <= bound,
            Direction::AtLeast => value >= bound,
        };
        let sign = if direction == Direction::AtMost { "<=" } else { ">=" };
        println!(
            "{name:24} {value:12.3} {unit:14} {sign} {bound:<8} {} runs {}",
            values.len(),
            if ok { "ok" } else { "OUT OF BOUND" }
        );
        self.figures.push(Figure { name, value, unit, bound, direction, runs: values.len() });
    }

    /// Writes the file; the exit code tells whether every figure is within its bound.
    pub(crate) fn finish(self) -> ExitCode {
        if let Some(dir) = self.file.parent() {
            let _ = std::fs::create_dir_all(dir);
        }
        let text = serde_json::to_string_pretty(&self.figures).expect("figures are JSON");
        std::fs::write(&self.file, text + "\n").unwrap_or_else(|e| panic!("write {}: {e}", self.file.display()));
        let out = self.figures.iter().filter(|figure| match figure.direction {
            Direction::AtMost => figure.value > figure.bound,
            Direction::AtLeast => figure.value < figure.bound,
        });
        let (all, out) = (self.figures.len(), out.count());
        println!("{} passed, {out} failed", all - out);
        if out == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The middle of `values`.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
