//! The page that lists a directory: one table, no script, nothing fetched from elsewhere.

pub(crate) mod shelf;

use std::fmt::Write;
use std::time::SystemTime;

use crate::answer::escape;
use crate::date::Utc;
use crate::files::path::{RelativePath, encode};
use crate::files::source::{Entries, Entry, Kind};

const STYLE: &str = "\
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; color-scheme: light dark; }\n\
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }\n\
table { border-collapse: collapse; }\n\
th, td { padding: .15rem 1.5rem .15rem 0; text-align: left; }\n\
th { font-weight: 600; border-bottom: 1px solid; }\n\
.size { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }\n\
time { font-variant-numeric: tabular-nums; white-space: nowrap; }\n";

/// The page for `path`: directories first, then files, by name.
pub(crate) fn page(path: &RelativePath, listed: Entries) -> String {
    let title = escape(&format!("/{}", String::from_utf8_lossy(path.as_bytes())));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1><bdi>{title}</bdi></h1>\n<table>\n\
         <thead><tr><th scope=\"col\">Name</th><th scope=\"col\" class=\"size\">Size</th>\
         <th scope=\"col\">Modified (UTC)</th></tr></thead>\n<tbody>\n"
    );
    if !path.as_bytes().is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    let mut entries = listed.entries;
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    for entry in &entries {
        row(&mut page, entry);
    }
    page.push_str("</tbody>\n</table>\n");
    if !listed.complete {
        let _ = writeln!(page, "<p>The first {} entries; there are more.</p>", entries.len());
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn row(page: &mut String, entry: &Entry) {
    let (slash, size) = match entry.metadata.kind {
        Kind::Directory => ("/", String::new()),
        Kind::File => {
            let bytes = entry.metadata.len_bytes;
            let plural = if bytes == 1 { "" } else { "s" };
            ("", format!("<span title=\"{bytes} byte{plural}\">{}</span>", size(bytes)))
        }
    };
    // `./` first: a name with a colon would be read as a scheme. `bdi`: a name that is written from
    // right to left turns nothing round but itself.
    let (link, name) = (encode(&entry.name), escape(&String::from_utf8_lossy(&entry.name)));
    let _ = writeln!(
        page,
        "<tr><td><a href=\"./{link}{slash}\"><bdi>{name}</bdi>{slash}</a></td>\
         <td class=\"size\">{size}</td><td>{}</td></tr>",
        entry.metadata.modified.map_or(String::new(), time)
    );
}

/// A length for people: three digits and a binary unit.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            let digits = usize::from(value < 10.0 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0} PiB")
}

/// A time as `2001-09-09 01:46`, with the machine's form beside it.
fn time(modified: SystemTime) -> String {
    let utc = Utc::of(modified);
    let (date, clock) = (utc.date(), utc.clock());
    format!("<time datetime=\"{date}T{clock}Z\">{date} {clock}</time>", clock = &clock[..5])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::source::Metadata;
    use std::time::{Duration, UNIX_EPOCH};

    fn entry(name: &str, kind: Kind, len_bytes: u64) -> Entry {
        let modified = Some(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let metadata = Metadata { kind, len_bytes, modified, changed: None, identity: 0 };
        Entry { name: name.as_bytes().to_vec(), metadata }
    }

    fn whole() -> Entries {
        Entries { complete: true, ..Entries::default() }
    }

    #[test]
    fn directories_come_first_and_names_in_order() {
        let entries = [("b", Kind::File), ("a", Kind::File), ("z", Kind::Directory)]
            .map(|(n, k)| entry(n, k, 0));
        let page = page(&RelativePath::default(), Entries { entries: entries.into(), ..whole() });
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("./z/\"") < at("./a\"") && at("./a\"") < at("./b\""));
        assert!(!page.contains("../") && !page.contains("there are more"));
    }

    #[test]
    fn names_cannot_become_markup_or_leave_the_directory() {
        let names = ["<script>", "javascript:alert(1)", "a\"b", "%2e", "?q#f"];
        let entries = names.map(|name| entry(name, Kind::File, 1)).into();
        let path = RelativePath::default().join(b"<i>").unwrap();
        let page = page(&path, Entries { entries, complete: false, ..whole() });
        assert!(!page.contains("<script") && !page.contains("<i>") && page.contains("&lt;i&gt;"));
        for link in ["./javascript%3Aalert%281%29", "./a%22b", "./%252e", "./%3Fq%23f", "../"] {
            assert!(page.contains(&format!("<a href=\"{link}\">")), "{link} in {page}");
        }
        assert!(page.contains("The first 5 entries; there are more."));
    }

    #[test]
    fn a_name_turns_nothing_round() {
        let entries = [("photo\u{202e}gpj.exe", 1), ("שלום", 2)];
        let entries = entries.map(|(name, len)| entry(name, Kind::File, len)).into();
        let path = RelativePath::default().join("\u{2067}d".as_bytes()).unwrap();
        let page = page(&path, Entries { entries, ..whole() });
        assert!(!page.contains(['\u{202e}', '\u{2067}']), "{page}");
        for part in [
            "<title>/\u{fffd}d</title>",
            "<h1><bdi>/\u{fffd}d</bdi></h1>",
            "<a href=\"./photo%E2%80%AEgpj.exe\"><bdi>photo\u{fffd}gpj.exe</bdi></a>",
            "<bdi>שלום</bdi>",
            "title=\"1 byte\"",
            "title=\"2 bytes\"",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times_are_of_the_minute() {
        let told = time(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        assert_eq!(told, "<time datetime=\"2001-09-09T01:46Z\">2001-09-09 01:46</time>");
    }
}
