//! Writes one HTML page with the results of all experiments: claims, tables and charts.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::plan::{Failure, PLANS};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;\
padding:0 1rem;color:#222}table{border-collapse:collapse;margin:1rem 0;font-size:13px;\
display:block;overflow-x:auto}td,th{border:1px solid #ccc;padding:.15rem .5rem;text-align:right}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}\
.no{color:#b00;font-weight:600}.small{color:#666;font-size:13px}h2{margin-top:3rem}\
li{margin:.2rem 0}";

/// Writes `report.html` in `directory`, with every experiment that has a `data.json` below it.
pub(crate) fn write(directory: &Path) -> Result<(), Failure> {
    let mut sections = String::new();
    for plan in PLANS {
        let of_plan = directory.join(plan.id);
        let Ok(text) = fs::read_to_string(of_plan.join("data.json")) else { continue };
        let data: Value = serde_json::from_str(&text)?;
        section(&mut sections, &data, &pictures(&of_plan)?);
    }
    let page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>Experiments</title>\
         <style>{STYLE}</style><h1>The papers\u{2019} experiments</h1>\
         <p class=small>Written by lightwait-experiments; each section tells where it was run.</p>\
         {sections}</html>\n"
    );
    Ok(fs::write(directory.join("report.html"), page)?)
}

/// The charts of an experiment, by name.
fn pictures(of_plan: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(of_plan)?.collect::<Result<Vec<_>, _>>()?;
    let is_picture = |path: &PathBuf| path.extension().is_some_and(|end| end == "svg");
    let mut paths: Vec<PathBuf> =
        entries.iter().map(fs::DirEntry::path).filter(is_picture).collect();
    paths.sort();
    Ok(paths.iter().map(fs::read_to_string).collect::<Result<_, _>>()?)
}

fn section(page: &mut String, data: &Value, pictures: &[String]) {
    let text = |key: &str| escaped(data[key].as_str().unwrap_or_default());
    let (id, title, source) = (text("id"), text("title"), text("source"));
    let _ = write!(page, "<h2 id={id}>{id}: {title}</h2><p class=small>{source}<br>");
    let made_on = data["made_on"].as_object().into_iter().flatten();
    let facts = made_on.map(|(key, value)| format!("{} {}", escaped(key), shown(value)));
    let _ = write!(page, "{}<br>{}</p><ul>", facts.collect::<Vec<_>>().join(", "), seeds(data));
    for claim in data["claims"].as_array().into_iter().flatten() {
        let what = claim.get("claim").or(claim.get("observed")).unwrap_or(&Value::Null);
        let holds = claim.get("holds").or(claim.get("is_so")).unwrap_or(&Value::Null);
        let verdict = match (holds.as_bool(), claim.get("claim").is_some()) {
            (Some(true), true) => "holds",
            (Some(true), false) => "is so",
            (_, true) => "<span class=no>fails</span>",
            (_, false) => "<span class=no>not so</span>",
        };
        let _ = write!(page, "<li>{verdict}: {} ({})", shown(what), shown(&claim["found"]));
    }
    page.push_str("</ul>");
    for picture in pictures {
        page.push_str(picture);
    }
    for (name, columns) in data["columns"].as_object().into_iter().flatten() {
        table(page, name, columns, &data[name]);
    }
}

/// The seeds, or why there are none.
fn seeds(data: &Value) -> String {
    let seeds: Vec<u64> =
        data["seeds"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let is_row = seeds.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match &seeds[..] {
        [] => escaped(data["without_seeds"].as_str().unwrap_or_default()),
        [first, .., last] if is_row => format!("seeds {first} to {last}"),
        all => {
            let all: Vec<String> = all.iter().map(u64::to_string).collect();
            format!("seeds {}", all.join(", "))
        }
    }
}

fn table(page: &mut String, name: &str, columns: &Value, rows: &Value) {
    let columns: Vec<&str> =
        columns.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let _ = write!(page, "<h3>{}</h3><table><tr>", escaped(name));
    columns.iter().for_each(|column| _ = write!(page, "<th>{}", escaped(column)));
    for row in rows.as_array().into_iter().flatten() {
        page.push_str("<tr>");
        columns.iter().for_each(|column| _ = write!(page, "<td>{}", shown(&row[column])));
    }
    page.push_str("</table>");
}

/// A value as text. A whole number that was read as a float has no fraction.
fn shown(value: &Value) -> String {
    if let Some(number) = value.as_f64().filter(|number| number.fract() == 0.0) {
        return format!("{number:.0}");
    }
    value.as_str().map_or_else(|| escaped(&value.to_string()), escaped)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_section_tells_claims_tables_and_what_was_not_so() {
        let data = json!({
            "id": "x-fig1", "title": "a < b", "source": "nobody",
            "made_on": { "processor": "one" },
            "claims": [
                { "claim": "it is so", "holds": false, "found": "1 & 2" },
                { "observed": "it was", "is_so": true, "found": "3" },
            ],
            "rows": [{ "who": "a", "ms": 1.5 }],
            "columns": { "rows": ["who", "ms"] },
            "seeds": [1, 2, 3],
        });
        let mut page = String::new();
        section(&mut page, &data, &["<svg/>".to_owned()]);
        assert!(page.contains("x-fig1: a &lt; b") && page.contains("processor one"));
        assert!(page.contains("seeds 1 to 3"));
        assert!(page.contains("<span class=no>fails</span>: it is so (1 &amp; 2)"));
        assert!(page.contains("is so: it was (3)") && page.contains("<svg/>"));
        assert!(page.contains("<tr><th>who<th>ms<tr><td>a<td>1.5</table>"));
    }
}
