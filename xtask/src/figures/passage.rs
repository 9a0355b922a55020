//! A passage: the words of a document, with a source in braces where each figure stands. Figures
//! that a passage writes out are settings: the names of cases, which say what was measured.

use super::document::Document;
use super::formula::Formula;

/// A piece of a document.
#[derive(Debug)]
pub(super) struct Passage {
    /// The line of the list where it begins.
    pub(super) line: usize,
    /// Its words and holes, in turn.
    pieces: Vec<Piece>,
    /// Why figures that are written out are settings.
    setting: Option<String>,
}

#[derive(Debug)]
enum Piece {
    Words(String),
    Hole(Hole),
}

/// What stands in braces: the source of one figure.
#[derive(Debug, PartialEq)]
pub(super) enum Hole {
    /// What was set, asked for or wanted: no result. The passage writes it out.
    Setting,
    /// A figure of the papers, as it is written.
    Paper(String),
    /// A figure without a source yet: the key of its reason, and the figure as it is written.
    Unsourced(String, String),
    /// A figure of stored results.
    Stored(Formula),
}

impl Hole {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            Some(("paper", figure)) => Ok(Self::Paper(figure.to_owned())),
            Some(("unsourced", rest)) => match rest.split_once(' ') {
                Some((key, figure)) => Ok(Self::Unsourced(key.to_owned(), figure.to_owned())),
                None => Err(format!("`{text}` has no figure: `unsourced key figure`")),
            },
            _ => Formula::parse(text).map(Self::Stored),
        }
    }
}

impl Passage {
    /// Parses a passage. Figures that are not results need a reason of their own.
    pub(super) fn parse(
        line: usize,
        text: &str,
        setting: Option<&str>,
        paper: Option<&str>,
    ) -> Result<Self, String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        while let Some((words, behind)) = rest.split_once('{') {
            let (hole, behind) = behind.split_once('}').ok_or("`}` is missing")?;
            if !words.is_empty() {
                pieces.push(Piece::Words(words.to_owned()));
            }
            let hole = Hole::parse(hole)?;
            pieces.push(Piece::Hole(hole));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Words(rest.to_owned()));
        }
        if pieces.is_empty() {
            return Err("is empty".to_owned());
        }
        let is_papers = |piece: &Piece| matches!(piece, Piece::Hole(Hole::Paper(_)));
        match (paper, pieces.iter().any(is_papers)) {
            (None, true) => return Err("`paper` does not say which paper".to_owned()),
            (Some(_), false) => return Err("`paper` has no figure to speak of".to_owned()),
            _ => {}
        }
        Ok(Self { line, pieces, setting: setting.map(str::to_owned) })
    }

    /// Finds the passage. Returns the index and the source of each figure in it.
    pub(super) fn find(&self, document: &Document) -> Result<Vec<(usize, &Hole)>, String> {
        let starts: Vec<usize> = match &self.pieces[0] {
            Piece::Words(words) => {
                document.text.match_indices(words.as_str()).map(|m| m.0).collect()
            }
            Piece::Hole(_) => document.figures.iter().map(|figure| figure.span.0).collect(),
        };
        let mut found = starts.into_iter().filter_map(|start| self.at(document, start));
        let told = self.told();
        let Some(first) = found.next() else {
            return Err(format!("{} does not have: {told}", document.path));
        };
        if found.next().is_some() {
            return Err(format!("{} has it twice, say more of it: {told}", document.path));
        }
        match (&self.setting, first.iter().any(|(_, hole)| **hole == Hole::Setting)) {
            (None, true) => Err(format!("`setting` does not say why figures stand in: {told}")),
            (Some(_), false) => Err(format!("`setting` has no figure to speak of in: {told}")),
            _ => Ok(first),
        }
    }

    /// The figures of the passage if it begins at an offset of the document's text.
    fn at(&self, document: &Document, start: usize) -> Option<Vec<(usize, &Hole)>> {
        let (mut at, mut found) = (start, Vec::new());
        for piece in &self.pieces {
            match piece {
                Piece::Words(words) => {
                    let end = at + words.len();
                    if document.text.get(at..end)? != words {
                        return None;
                    }
                    for (index, figure) in document.figures.iter().enumerate() {
                        let (from, to) = figure.span;
                        if from < end && at < to {
                            // Half of a figure is another figure.
                            if from < at || end < to {
                                return None;
                            }
                            found.push((index, &Hole::Setting));
                        }
                    }
                    at = end;
                }
                Piece::Hole(hole) => {
                    let is_here = |figure: &super::document::Figure| figure.span.0 == at;
                    let index = document.figures.iter().position(is_here)?;
                    at = document.figures[index].span.1;
                    found.push((index, hole));
                }
            }
        }
        Some(found)
    }

    /// Its beginning, as far as it identifies the passage.
    fn told(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Words(words) => words.as_str(),
            Piece::Hole(_) => "{}",
        });
        pieces.collect::<String>().chars().take(120).collect()
    }
}
