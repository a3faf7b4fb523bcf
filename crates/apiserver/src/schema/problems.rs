//! What a strict decoder complains of: fields that are not known, or are there twice, with their paths.

use std::fmt::Write as _;

use super::go;

/// So many are told of, and the rest is not, as upstream.
const MOST: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<String>,
    /// Where the decoder is.
    path: String,
}

impl Problems {
    /// Goes into a field; what [`Problems::leave`] takes to come back.
    pub(crate) fn enter(&mut self, field: &str) -> usize {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push('.');
        }
        self.path.push_str(field);
        outer
    }

    pub(crate) fn enter_index(&mut self, index: usize) -> usize {
        let outer = self.path.len();
        // Writing into a string cannot fail.
        let _ = write!(self.path, "[{index}]");
        outer
    }

    pub(crate) fn leave(&mut self, outer: usize) {
        self.path.truncate(outer);
    }

    pub(crate) fn unknown(&mut self, field: &str) {
        self.add("unknown field", field);
    }

    pub(crate) fn duplicate(&mut self, field: &str) {
        self.add("duplicate field", field);
    }

    fn add(&mut self, what: &str, field: &str) {
        if self.found.len() >= MOST {
            return;
        }
        let outer = self.enter(field);
        let problem = format!("{what} {}", go::quote(&self.path));
        self.leave(outer);
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    pub(crate) fn into_found(self) -> Vec<String> {
        self.found
    }
}
