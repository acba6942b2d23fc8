//! Figures and drawing as a self-contained HTML page. Pure.

use super::analysis::Stream;
use super::chart::{self, escaped};
use super::figures::{notes, sections};

/// Renders the whole page.
pub(super) fn html(streams: &[Stream]) -> String {
    let all: Vec<&Stream> = streams.iter().collect();
    let names = cells("th", streams.iter().map(|stream| stream.name.as_str()));
    let mut table = format!("<tr><th></th>{names}</tr>\n");
    for section in sections(&all) {
        let columns = streams.len() + 1;
        let title = section.title;
        table += &format!("<tr><th class=\"section\" colspan=\"{columns}\">{title}</th></tr>\n");
        for row in section.rows {
            let cells = cells("td", row.cells.iter().map(String::as_str));
            table += &format!("<tr><th>{}</th>{cells}</tr>\n", escaped(&row.label));
        }
    }
    let notes: String = streams.iter().flat_map(noted).collect();
    let drawing = chart::svg(streams);
    format!("{HEAD}<table>\n{table}</table>\n{notes}{drawing}</body>\n</html>\n")
}

fn cells<'a>(tag: &str, texts: impl Iterator<Item = &'a str>) -> String {
    let cell = |text| format!("<{tag}>{}</{tag}>", escaped(text));
    texts.map(cell).collect()
}

fn noted(stream: &Stream) -> Vec<String> {
    let all = notes(stream).into_iter().chain(stream.errors.clone());
    let name = escaped(&stream.name);
    all.map(|note| format!("<p>{name}: {}</p>\n", escaped(&note)))
        .collect()
}

const HEAD: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<title>Burstiness</title>
<style>
body { font-family: sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse; margin-bottom: 2em }
th, td { text-align: left; padding: 0.15em 1.5em 0.15em 0; font-weight: normal }
td { font-variant-numeric: tabular-nums }
.section { padding-top: 1em; font-weight: bold }
svg { max-width: 100% }
</style>
</head>
<body>
<h1>Burstiness</h1>
";
