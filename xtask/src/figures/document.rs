//! A document as running text, and the figures in it.
//!
//! A figure is a number in prose or in a table, unless it is part of a name: of a version, a date,
//! a section, an RFC, a protocol. Headings, code and the targets of links hold no figures.

/// A document.
#[derive(Debug)]
pub(super) struct Document {
    /// Its path, from the repository's root.
    pub(super) path: String,
    /// Its text without headings and blocks of code, with one space for each run of white space.
    pub(super) text: String,
    /// Its figures, in order.
    pub(super) figures: Vec<Figure>,
}

/// A number that needs a source.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    /// Where it begins and ends in the document's text, with its sign.
    pub(super) span: (usize, usize),
    /// The line of the file, from 1.
    pub(super) line: usize,
    /// As it is written.
    pub(super) text: String,
    /// Its value.
    pub(super) value: f64,
    /// The value of the last digit that it shows.
    pub(super) unit: f64,
}

impl Figure {
    /// True if `value`, rounded as this figure is, is this figure.
    pub(super) fn shows(&self, value: f64) -> bool {
        // What is half way may be rounded either way.
        (self.value - value).abs() <= self.unit * 0.500_001
    }
}

/// What stands before a number that is a name.
const BEFORE: [&str; 13] = [
    "RFC",
    "§",
    "Fig.",
    "Figs.",
    "Figure",
    "Table",
    "Zen",
    "HTTP/",
    "processor",
    "Druschel",
    "Yue",
    "Cohen",
    "Mansley",
];
/// Versions of one point; what has two points is one.
const VERSIONS: [&str; 5] = ["smoltcp 0.14", "Linux 6.18", "nginx 1.22", "FreeBSD 2.2", "TLS 1.3"];
/// What stands behind a number that is a name.
const BEHIND: [&str; 8] = ["BSD", "-tuple", "·MSL", "th ", "th,", "th.", "th;", "th)"];

impl Document {
    /// Reads a document's Markdown.
    pub(super) fn read(path: &str, markdown: &str) -> Self {
        let (text, lines) = running_text(markdown);
        let hidden = hidden(&text);
        let mut figures = Vec::new();
        let mut at = 0;
        while let Some(begin) = text[at..].find(|c: char| c.is_ascii_digit()).map(|i| at + i) {
            let (end, groups) = number_end(&text, begin);
            at = end.max(word_end(&text, begin));
            if hidden.iter().any(|&(from, to)| from <= begin && begin < to)
                || is_name(&text, begin, end)
            {
                continue;
            }
            at = end;
            let line = lines.iter().rev().find(|(offset, _)| *offset <= begin);
            figures.push(figure(&text, (begin, end), groups, line.map_or(0, |(_, line)| *line)));
        }
        Self { path: path.to_owned(), text, figures }
    }
}

/// The text without headings and blocks of code, and the offset at which each line begins.
fn running_text(markdown: &str) -> (String, Vec<(usize, usize)>) {
    let (mut text, mut lines, mut in_code) = (String::new(), Vec::new(), false);
    for (index, line) in markdown.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        if in_code || fence || line.starts_with('#') {
            continue;
        }
        lines.push((text.len(), index + 1));
        for word in line.split_whitespace() {
            text.push_str(word);
            text.push(' ');
        }
    }
    (text, lines)
}

/// The spans of inline code, targets of links, addresses and links named by a decision's number.
fn hidden(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    for (open, close) in [("`", "`"), ("](", ")"), ("http://", " "), ("[00", "]")] {
        let mut at = 0;
        while let Some(begin) = text[at..].find(open).map(|i| at + i) {
            let inside = begin + open.len();
            let Some(end) = text[inside..].find(close).map(|i| inside + i) else { break };
            spans.push((begin, end));
            at = end + close.len();
        }
    }
    spans
}

/// The end of the number that begins at `begin`, and whether its thousands are set apart.
pub(super) fn number_end(text: &str, begin: usize) -> (usize, bool) {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let (mut end, mut groups) = (begin + digits(begin), false);
    let first = end - begin;
    while first <= 3
        && matches!(text.as_bytes().get(end), Some(b',' | b' '))
        && digits(end + 1) == 3
    {
        end += 4;
        groups = true;
    }
    if text.as_bytes().get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    (end, groups)
}

/// The end of the run of letters, digits and points that a name of digits is.
fn word_end(text: &str, begin: usize) -> usize {
    let within = |c: char| c.is_alphanumeric() || c == '_';
    let mut end = begin;
    for (offset, c) in text[begin..].char_indices() {
        let next = text[begin + offset + c.len_utf8()..].chars().next();
        // A point or a dash belongs to a version, an address or a date if a digit follows.
        let joins = matches!(c, '.' | '-') && next.is_some_and(|c| c.is_ascii_digit());
        if !within(c) && !joins {
            break;
        }
        end = begin + offset + c.len_utf8();
    }
    end
}

/// True if the number at `begin..end` is part of a name.
fn is_name(text: &str, begin: usize, end: usize) -> bool {
    let (before, behind) = (&text[..begin], &text[end..]);
    let last = before.chars().next_back();
    let sign_of_date = before.ends_with("and -");
    if last.is_some_and(|c| c.is_alphabetic() || c == '_') || sign_of_date {
        return true;
    }
    // A version or an address has two points, a date two dashes, a digest letters among digits.
    let word = &text[begin..word_end(text, begin)];
    if word.matches('.').count() > 1 || word.matches('-').count() == 2 {
        return true;
    }
    let suffix = behind.trim_start_matches(|c: char| c.is_alphabetic());
    let is_digest = suffix.len() < behind.len() && suffix.starts_with(|c: char| c.is_ascii_digit());
    let name = before.trim_end_matches(['*', ' ']);
    let is_version = |version: &str| {
        let product = version.strip_suffix(&text[begin..end]);
        product.is_some_and(|product| name.ends_with(product.trim_end()))
    };
    is_digest
        || (before.ends_with('-') && before[..begin - 1].ends_with(char::is_alphabetic))
        || VERSIONS.into_iter().any(is_version)
        || BEFORE.iter().any(|word| name.ends_with(word))
        || BEHIND.iter().any(|word| behind.starts_with(word))
        || is_in_a_row_of_numbered_figures(name)
}

/// True behind `Figs. 3 to` and `Figs. 3 and`.
fn is_in_a_row_of_numbered_figures(before: &str) -> bool {
    let Some(at) = before.rfind("Figs. ") else { return false };
    let mut words = before[at..].split(' ').skip(1);
    words.next().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()))
        && matches!(words.next(), Some("to" | "and"))
        && words.next().is_none()
}

fn figure(text: &str, (begin, end): (usize, usize), groups: bool, line: usize) -> Figure {
    let shown = &text[begin..end];
    let plain: String = shown.chars().filter(|c| !groups || !matches!(c, ',' | ' ')).collect();
    let unit = match plain.split_once('.') {
        Some((_, decimals)) => 0.1_f64.powi(i32::try_from(decimals.len()).unwrap_or(i32::MAX)),
        None => {
            // Zeros at the end may stand for digits not told, but two digits always count.
            let zeros = plain.len() - plain.trim_end_matches('0').len();
            10_f64.powi(i32::try_from(zeros.min(plain.len().saturating_sub(2))).unwrap_or(0))
        }
    };
    let before = &text[..begin];
    let sign = ["−", "-"].into_iter().find(|sign| {
        let apart = before.strip_suffix(sign).map(|rest| rest.chars().next_back());
        apart.is_some_and(|c| c.is_none_or(|c| matches!(c, ' ' | '(' | '|' | '[')))
    });
    let begin = begin - sign.map_or(0, str::len);
    let value: f64 = plain.parse().unwrap_or(f64::NAN);
    let value = if sign.is_some() { -value } else { value };
    Figure { span: (begin, end), line, text: text[begin..end].to_owned(), value, unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(markdown: &str) -> Vec<String> {
        let document = Document::read("a.md", markdown);
        document.figures.into_iter().map(|figure| figure.text).collect()
    }

    #[test]
    fn numbers_in_prose_and_tables_are_figures() {
        assert_eq!(
            figures("It takes 31 bytes, of 1,234.5, or 48 048."),
            ["31", "1,234.5", "48 048"]
        );
        assert_eq!(figures("| a | −0.2 | 5.8±0.1 | 12 k |"), ["−0.2", "5.8", "0.1", "12"]);
        assert_eq!(figures("50.2 to 149.8 ms, 15x, +54 %"), ["50.2", "149.8", "15", "54"]);
        assert_eq!(figures("of Linux 256, smoltcp 2.8 M"), ["256", "2.8"]);
        assert_eq!(figures("13.0, 37.2 and 0–5"), ["13.0", "37.2", "0", "5"]);
        assert_eq!(figures("1,\n2"), ["1", "2"]);
    }

    #[test]
    fn names_headings_code_and_links_are_none() {
        let names = "RFC 9293 §4.1 Fig. 8 Table 2, Figs. 3 to 9, smoltcp 0.14, lwIP 2.1.3, IPv4, \
                     HTTP/1.1, 2026-11-24, 2026-11-22 and -23, 4.4BSD, Druschel 1999, 99th \
                     percentile, 4-tuple, 61fea92a, be0fd35f, **smoltcp** 0.14, 2·MSL, k6, \
                     Apache-2.0";
        assert_eq!(figures(names), [""; 0]);
        let code = "# 5 things\n\n```\n7\n```\n`8 of 9` [a](b/1.md) [0038](c)";
        assert_eq!(figures(code), [""; 0]);
        assert_eq!(figures("```\n1\n```\n2"), ["2"]);
        assert_eq!(figures("Figs. 3 to 9 have 4"), ["4"]);
    }

    #[test]
    fn a_figure_knows_its_line_and_shows_its_digits() {
        let document = Document::read("a.md", "# A\n\none 72,900 two\nthree 1.50");
        let [first, second] = &document.figures[..] else { panic!("two figures") };
        assert_eq!((first.line, second.line), (3, 4));
        assert!(first.shows(72_850.0) && first.shows(72_949.0) && !first.shows(72_960.0));
        assert!(second.shows(1.496) && !second.shows(1.49));
        let forty = &Document::read("a.md", "40,000 and −7").figures;
        assert!(forty[0].shows(39_928.0) && !forty[0].shows(41_000.0));
        assert!(forty[1].shows(-7.2) && !forty[1].shows(7.0));
    }
}
