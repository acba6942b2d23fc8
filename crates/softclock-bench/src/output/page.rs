//! All results on one HTML page, which contains its styles and pictures.

use std::fmt::Write;

use crate::measure::environment::Environment;
use crate::output::report::{Report, Row};
use crate::output::svg::{self, escape};
use crate::output::table::{metrics, number};

/// The outcome of one experiment.
pub struct Outcome {
    /// The experiment's name.
    pub name: &'static str,
    /// The description of the experiment, as in `list`.
    pub about: &'static str,
    /// The report, or the error's text.
    pub result: Result<Report, String>,
    /// The duration of the experiment.
    pub seconds: f64,
}

/// Returns the page. With `smoke`, it says that the numbers mean nothing.
pub fn document(environment: &Environment, outcomes: &[Outcome], smoke: bool) -> String {
    let mut body = String::from("<h1>softclock: what was measured</h1>\n");
    if smoke {
        body.push_str(
            "<p class=\"failed\">The smallest sizes were run: these numbers mean nothing.</p>\n",
        );
    }
    body.push_str(INTRODUCTION);
    body.push_str(&environment_table(environment));
    body.push_str(&contents(outcomes));
    outcomes
        .iter()
        .for_each(|outcome| body.push_str(&section(outcome)));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>softclock: what was measured</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    )
}

fn environment_table(environment: &Environment) -> String {
    let lines = environment.lines().into_iter().map(|(name, value)| {
        format!(
            "<tr><th>{}</th><td>{}</td></tr>\n",
            escape(name),
            escape(&value)
        )
    });
    format!(
        "<table class=\"environment\">\n{}</table>\n",
        lines.collect::<String>()
    )
}

fn contents(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().map(|outcome| {
        let failed = if outcome.result.is_err() {
            " <strong class=\"failed\">failed</strong>"
        } else {
            ""
        };
        format!(
            "<li><a href=\"#{id}\">{name}</a>: {about}{failed}</li>\n",
            id = id(outcome.name),
            name = escape(outcome.name),
            about = escape(outcome.about),
        )
    });
    format!("<ul>\n{}</ul>\n", lines.collect::<String>())
}

fn section(outcome: &Outcome) -> String {
    let mut out = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}. <small>{:.0} s</small></p>\n",
        id(outcome.name),
        escape(outcome.name),
        escape(outcome.about),
        outcome.seconds
    );
    match &outcome.result {
        Ok(report) => {
            out.push_str(&table(report));
            out.push_str(&notes(&report.notes));
            let picture = svg::document(&[(outcome.name, report)]);
            let _ = write!(out, "<div class=\"picture\">\n{picture}</div>\n");
        }
        Err(error) => {
            let _ = writeln!(out, "<p class=\"failed\">It failed: {}</p>", escape(error));
        }
    }
    out.push_str("</section>\n");
    out
}

fn table(report: &Report) -> String {
    let mut out = format!("<table>\n<caption>{}</caption>\n", escape(report.title));
    let by_paper = report.rows.iter().any(|row| row.paper.is_some());
    for metric in metrics(&report.rows) {
        let paper = if by_paper { "<th>paper</th>" } else { "" };
        let _ = write!(
            out,
            "<tbody>\n<tr><th scope=\"rowgroup\">{}</th>{paper}<th>here</th>\
             <th>10 % .. 90 %</th><th></th></tr>\n",
            escape(metric)
        );
        let rows = report.rows.iter().filter(|row| row.metric == metric);
        rows.for_each(|row| out.push_str(&line(row, by_paper)));
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n");
    out
}

fn line(row: &Row, by_paper: bool) -> String {
    let paper = row.paper.map_or_else(|| "-".to_owned(), number);
    let paper = match by_paper {
        true => format!("<td>{paper}</td>"),
        false => String::new(),
    };
    format!(
        "<tr><td>{}</td>{paper}<td><strong>{}</strong></td><td>{} .. {}</td><td>{}</td></tr>\n",
        escape(&row.variant),
        number(row.value),
        number(row.low),
        number(row.high),
        escape(row.unit)
    )
}

fn notes(notes: &[String]) -> String {
    let lines = notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", escape(note)));
    format!("<ul class=\"notes\">\n{}</ul>\n", lines.collect::<String>())
}

/// Returns an anchor for a name.
fn id(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

const INTRODUCTION: &str = "<p>The tables and figures of the papers, on the machine below. \
    <em>paper</em> is the paper's number, <em>here</em> the median of what was measured, between its 10th and 90th \
    percentile unless the line says otherwise.</p>\n";

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem; margin: 2rem auto; \
padding: 0 1rem; }
h1 { font-size: 1.7rem; }
h2 { font-size: 1.25rem; margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding: .3rem 0; }
tr > * { padding: .15rem .6rem; text-align: right; vertical-align: top; }
tr > :not(:first-child) { white-space: nowrap; }
tr > :first-child, tr > :last-child, .environment tr > * { text-align: left; }
tbody th { border-bottom: 1px solid #999; padding-top: .9rem; font-weight: 600; }
td { border-bottom: 1px solid #eee; }
.environment { width: auto; }
.environment th { border: 0; padding-top: .15rem; font-weight: normal; color: #666; white-space: nowrap; }
.environment td { border: 0; white-space: normal; }
.notes { font-size: .85rem; color: #444; }
.picture { overflow-x: auto; }
.failed { color: #b00020; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_and_text_is_escaped() {
        let report = Report {
            title: "a title",
            notes: vec!["a < b".to_owned()],
            rows: vec![Row::of_samples("one", "cost", "us", &[1.0]).paper(2.0)],
            charts: Vec::new(),
        };
        let outcome = |name, result| Outcome {
            name,
            about: "something & more",
            result,
            seconds: 1.0,
        };
        let outcomes = [
            outcome("group/good", Ok(report)),
            outcome("group/bad", Err("no <luck>".to_owned())),
        ];
        let page = document(&Environment::detect(), &outcomes, false);
        assert!(page.contains("<h2>group/good</h2>") && page.contains("<td>2.00</td>"));
        assert!(page.contains("a &lt; b") && page.contains("something &amp; more"));
        assert!(page.contains("It failed: no &lt;luck&gt;"));
        assert!(page.contains("href=\"#group-bad\""));
        assert!(!page.contains("mean nothing"));
        assert!(document(&Environment::detect(), &[], true).contains("mean nothing"));
    }
}
