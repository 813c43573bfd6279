//! `bcd doctor`: the report as text.
//!
//! Room: `node`.
use super::text::{Style, count, printable};
use crate::doctor::{Level, Report};

/// A report as text: a line per finding, the remedy beneath it, a summary.
pub(crate) fn render(report: &Report, style: Style) -> String {
    let mut out = String::new();
    let width = report.findings.iter().map(|f| f.check.len()).max().unwrap_or_default();
    for finding in &report.findings {
        let (word, colour) = match finding.level {
            Level::Ok => ("ok  ", "32"),
            Level::Warn => ("warn", "33"),
            Level::Fail => ("FAIL", "31"),
        };
        let word = match style {
            Style::Plain => word.to_owned(),
            Style::Terminal => format!("\x1b[{colour}m{word}\x1b[0m"),
        };
        // One line each: no words in it, whoever chose them, can look like another finding or a remedy.
        let found = printable(&finding.found);
        out.push_str(&format!("{word}  {:<width$}  {found}\n", printable(&finding.check)));
        if let Some(remedy) = &finding.remedy {
            out.push_str(&format!("{}-> {}\n", " ".repeat(width + 8), printable(remedy)));
        }
    }
    let of = |level| report.findings.iter().filter(|f| f.level == level).count();
    let (failing, warnings) = (of(Level::Fail), of(Level::Warn));
    out.push_str(&match (failing, warnings) {
        (0, 0) => "this host can run instances\n".to_owned(),
        (0, warnings) => format!("this host can run instances; {}\n", count(warnings, "warning")),
        (failing, warnings) => format!("{failing} failing, {}\n", count(warnings, "warning")),
    });
    out
}
