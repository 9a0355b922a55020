//! The source of a figure: a reference to a stored result, or what is computed of several.
//!
//! ```text
//!   sum       = product { ("+" | "-") product }
//!   product   = factor { ("*" | "/") factor }
//!   factor    = number | "(" sum ")" | function "(" sum { "," sum } ")" | reference
//!   function  = "least" | "most" | "median"
//!   reference = [ file ] "[" [ step { " > " step } ] "]" [ place ] [ "*" ]
//! ```
//!
//! A reference without a file means the last one's; one without steps, the last one's line.

use super::document::Figure;
use super::stored::{Files, Reference};

/// A parsed source.
#[derive(Debug, PartialEq)]
pub(super) struct Formula(Term);

#[derive(Debug, PartialEq)]
enum Term {
    Number(f64),
    Stored(Reference),
    Pair(Box<Term>, char, Box<Term>),
    Of(Function, Vec<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Least,
    Most,
    Median,
}

impl Formula {
    /// Parses a source. One without a reference is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text.trim() };
        let term = parser.sum().map_err(|why| format!("`{text}`: {why}"))?;
        if !parser.rest.is_empty() {
            return Err(format!("`{text}`: cannot read `{}`", parser.rest));
        }
        if !term.refers() {
            return Err(format!("`{text}` names no stored result"));
        }
        Ok(Self(term))
    }

    /// Says why this source isn't the figure. `last` is the last reference of the passage.
    pub(super) fn is(
        &self,
        figure: &Figure,
        files: &Files,
        last: &mut Option<Reference>,
    ) -> Result<(), String> {
        let values = self.0.values(files, last)?;
        let [value] = values[..] else { return Err(format!("has {} values", values.len())) };
        if figure.shows(value) {
            return Ok(());
        }
        let file = last.as_ref().map_or("", |last| last.file.as_str());
        Err(format!("is {value} in `{file}`: correct the document, or name another source"))
    }
}

impl Term {
    fn refers(&self) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Stored(_) => true,
            Self::Pair(left, _, right) => left.refers() || right.refers(),
            Self::Of(_, terms) => terms.iter().any(Self::refers),
        }
    }

    fn values(&self, files: &Files, last: &mut Option<Reference>) -> Result<Vec<f64>, String> {
        match self {
            Self::Number(value) => Ok(vec![*value]),
            Self::Stored(reference) => {
                let reference = complete(reference, last.as_ref())?;
                let values = files.look_up(&reference)?;
                *last = Some(reference);
                Ok(values)
            }
            Self::Pair(left, sign, right) => {
                let (left, right) = (left.values(files, last)?, right.values(files, last)?);
                pairwise(&left, *sign, &right)
            }
            Self::Of(function, terms) => {
                let mut all = Vec::new();
                for term in terms {
                    all.extend(term.values(files, last)?);
                }
                all.sort_by(f64::total_cmp);
                let (Some(&least), Some(&most)) = (all.first(), all.last()) else {
                    return Err("a function of nothing".to_owned());
                };
                let (below, above) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
                Ok(vec![match function {
                    Function::Least => least,
                    Function::Most => most,
                    Function::Median => f64::midpoint(below, above),
                }])
            }
        }
    }
}

/// Computes value by value; a single value goes with each of the others.
fn pairwise(left: &[f64], sign: char, right: &[f64]) -> Result<Vec<f64>, String> {
    if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
        return Err(format!("{} values {sign} {} values", left.len(), right.len()));
    }
    let pairs = (0..left.len().max(right.len())).map(|i| {
        let (left, right) = (left[i.min(left.len() - 1)], right[i.min(right.len() - 1)]);
        match sign {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            _ => left / right,
        }
    });
    Ok(pairs.collect())
}

/// A reference with what it leaves out.
fn complete(reference: &Reference, last: Option<&Reference>) -> Result<Reference, String> {
    let mut whole = reference.clone();
    if whole.file.is_empty() {
        let last = last.ok_or("the first reference of a passage names a file")?;
        whole.file.clone_from(&last.file);
        if whole.path.is_empty() {
            whole.path.clone_from(&last.path);
        }
    }
    Ok(whole)
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Takes a character if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn chain(
        &mut self,
        signs: [char; 2],
        part: fn(&mut Self) -> Result<Term, String>,
    ) -> Result<Term, String> {
        let mut left = part(self)?;
        while let Some(sign) = signs.into_iter().find(|sign| self.take(*sign)) {
            left = Term::Pair(Box::new(left), sign, Box::new(part(self)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Term, String> {
        self.chain(['+', '-'], Self::product)
    }

    fn product(&mut self) -> Result<Term, String> {
        self.chain(['*', '/'], Self::factor)
    }

    fn factor(&mut self) -> Result<Term, String> {
        if self.take('(') {
            let sum = self.sum()?;
            return if self.take(')') { Ok(sum) } else { Err("`)` is missing".to_owned()) };
        }
        let text = self.rest.trim_start();
        let within = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let end = text.find(|c| !within(c)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        if self.take('[') {
            return self.reference(word);
        }
        if let Ok(value) = word.parse() {
            return Ok(Term::Number(value));
        }
        let function = match word {
            "least" => Function::Least,
            "most" => Function::Most,
            "median" => Function::Median,
            _ => return Err(format!("cannot read `{text}`")),
        };
        if !self.take('(') {
            return Err(format!("`(` is missing behind `{word}`"));
        }
        let mut terms = vec![self.sum()?];
        while self.take(',') {
            terms.push(self.sum()?);
        }
        if self.take(')') {
            Ok(Term::Of(function, terms))
        } else {
            Err("`)` is missing".to_owned())
        }
    }

    /// The rest of a reference, behind `file[`.
    fn reference(&mut self, file: &str) -> Result<Term, String> {
        let (path, rest) = self.rest.split_once(']').ok_or("`]` is missing")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let place = if end == 0 { Ok(1) } else { rest[..end].parse::<usize>() };
        let place = place.ok().filter(|place| *place > 0).ok_or("places count from 1")?;
        let all = rest[end..].starts_with('*');
        self.rest = &rest[end + usize::from(all)..];
        let path = path.split(" > ").filter(|step| !step.is_empty()).map(str::to_owned).collect();
        Ok(Term::Stored(Reference { file: file.to_owned(), path, place, all }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    fn value(text: &str) -> Result<Vec<f64>, String> {
        let files = BTreeMap::from([("golden".to_owned(), "../bench/golden.json".to_owned())]);
        let files = Files::new(Path::new(env!("CARGO_MANIFEST_DIR")), &files);
        Formula::parse(text)?.0.values(&files, &mut None)
    }

    #[test]
    fn sources_are_computed() {
        let one = "golden[lightwait: request, of 1 connections]";
        let stored = value(one).unwrap()[0];
        assert_eq!(
            value(&format!("({one} + 2) * 3 - []/2")),
            Ok(vec![(stored + 2.0) * 3.0 - stored / 2.0])
        );
        assert_eq!(value(&format!("least({one}, 7)")), Ok(vec![7.0]));
        assert_eq!(value(&format!("most({one}, 7)")), Ok(vec![stored]));
        assert_eq!(value(&format!("median({one}, 7, 9)")), Ok(vec![9.0]));
    }

    #[test]
    fn a_source_names_a_stored_result() {
        assert!(value("7").is_err());
        assert!(value("[x]").is_err());
        assert!(value("golden[no such field]").is_err());
        assert!(value("other[x]").is_err());
        assert!(value("golden[x").is_err());
        assert!(value("mean(golden[x])").is_err());
        assert!(value("golden[x]0").is_err());
        assert!(value("golden[x] and more").is_err());
    }
}
