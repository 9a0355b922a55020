//! `#ifdef NAME`, `#ifndef NAME`, `#else` and `#endif`: scripts of other projects use them, and run
//! through a preprocessor first.

/// Blanks the parts of the text that do not apply; every line keeps its number.
pub(crate) fn preprocess(text: &str, defined: &[&str]) -> String {
    let mut stack: Vec<bool> = Vec::new();
    let mut output = String::with_capacity(text.len());
    for line in text.lines() {
        if let Some(directive) = line.strip_prefix('#') {
            let mut words = directive.split_whitespace();
            let word = words.next();
            let is_defined = words.next().is_some_and(|name| defined.contains(&name));
            match word {
                Some("ifdef") => stack.push(is_defined),
                Some("ifndef") => stack.push(!is_defined),
                Some("else") => {
                    if let Some(last) = stack.last_mut() {
                        *last = !*last;
                    }
                }
                Some("endif") => {
                    stack.pop();
                }
                _ => output += line,
            }
        } else if stack.iter().all(|is_read| *is_read) {
            output += line;
        }
        output.push('\n');
    }
    output
}
