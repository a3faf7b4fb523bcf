//! The table of figures in `SPECIFICATION.md`.

use anyhow::Context;

use crate::promises::{Figure, PROMISES, Promise};

const BEGIN: &str = "<!-- figures: written by `make bench` -->\n";
const END: &str = "<!-- end of figures -->\n";
const HEAD: &str = "| promise | promised | measured | checked by |\n| --- | --- | --- | --- |\n";

/// The text with these figures in its table. What was not measured this time stays as it was.
pub(crate) fn with_figures(text: &str, figures: &[Figure]) -> anyhow::Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("the specification has no place for figures")?;
    let (table, after) =
        rest.split_once(END).context("the place for figures in the specification has no end")?;
    let rows: String = PROMISES.iter().map(|promise| row(promise, figures, table)).collect();
    Ok(format!("{before}{BEGIN}\n{HEAD}{rows}\n{END}{after}"))
}

fn row(promise: &Promise, figures: &[Figure], table: &str) -> String {
    let head = format!("| {} | {} | ", promise.text, promise.limit_in_words());
    let earlier =
        || table.lines().find_map(|row| Some(row.strip_prefix(&head)?.split_once(" |")?.0.to_owned()));
    let figure = figures.iter().find(|figure| figure.id == promise.id).map(Figure::in_words);
    let figure = figure.or_else(earlier).unwrap_or_else(|| "–".into());
    format!("{head}{figure} | `make bench` |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_lists_every_promise_and_a_figure_for_each() {
        let text = include_str!("../../../SPECIFICATION.md");
        for promise in PROMISES {
            let line = format!("| {} | {} | ", promise.text, promise.limit_in_words());
            let row = text.lines().find(|row| row.starts_with(&line));
            let row = row.unwrap_or_else(|| {
                panic!("SPECIFICATION.md has no row for {:?}: run make bench", promise.text)
            });
            assert!(!row.contains("| – |"), "{row}");
        }
    }

    #[test]
    fn figures_replace_the_table_and_nothing_else() {
        let text = format!("before\n{BEGIN}an older table\n{END}after\n");
        let figures = [Figure { id: "idle-rss", runs: vec![8.0, 9.0, 7.0], beside: None }];
        let written = with_figures(&text, &figures).unwrap();
        assert!(written.starts_with("before\n") && written.ends_with("after\n"), "{written}");
        assert!(written.contains("| 8.00 MiB (7.00 to 9.00 in 3 runs) | `make bench` |"), "{written}");
        assert!(!written.contains("an older table"), "{written}");
        assert_eq!(with_figures(&written, &figures).unwrap(), written);
        assert_eq!(with_figures(&written, &[]).unwrap(), written, "what was measured before stays");
    }
}
