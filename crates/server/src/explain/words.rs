//! What is to be said of pods, in words.

use std::fmt::Write;

use crablet_agent::images::Pull;
use crablet_agent::sources::Problem;
use crablet_agent::story::since;
use jiff::Timestamp;

use super::{Explanation, Overview, Unknown};
use crate::node::NodeHandles;

/// How many names are listed at most.
const MOST_NAMES: usize = 50;

pub(super) fn overview(overview: &Overview, node: &NodeHandles) -> String {
    let now = node.clock.now();
    let mut text = problems(&overview.problems);
    if let Some(awaited) = &overview.waits_for {
        line(&mut text, format_args!("No pod is started yet: the agent waits for {awaited}."));
    } else if overview.pods.is_empty() {
        line(&mut text, format_args!("There are no pods: nothing asks for one."));
    }
    for (summary, pulls) in &overview.pods {
        let pulls: String = pulls.iter().map(|pull| format!(" {}", pull_words(pull, now))).collect();
        line(&mut text, format_args!("{}{pulls}", summary.sentence(now)));
    }
    text
}

pub(super) fn told(told: &Explanation, now: Timestamp) -> String {
    let mut text = problems(&told.problems);
    for (place, (story, pulls)) in told.stories.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        let story = story.explain(now);
        // The answer comes first, then what it waits for, then how it came to that.
        let (sentence, rest) = story.split_once('\n').unwrap_or((&story, ""));
        line(&mut text, format_args!("{sentence}"));
        for pull in pulls {
            line(&mut text, format_args!("{}", pull_words(pull, now)));
        }
        text.push_str(rest);
    }
    text
}

pub(super) fn unknown(unknown: &Unknown) -> String {
    let mut text = String::new();
    match &unknown.waits_for {
        Some(awaited) => {
            line(&mut text, format_args!("no pod is started yet: the agent waits for {awaited}"));
        }
        None => line(
            &mut text,
            format_args!("no pod is called {:?}, and none of that name went lately", unknown.text),
        ),
    }
    text.push_str(problems(&unknown.problems).trim_end_matches('\n'));
    if !unknown.problems.is_empty() {
        text.push('\n');
    }
    if !unknown.similar.is_empty() {
        line(&mut text, format_args!("did you mean {}?", unknown.similar.join(" or ")));
    }
    match &unknown.known[..] {
        [] if unknown.waits_for.is_none() => line(&mut text, format_args!("there are no pods")),
        [] => {}
        few if few.len() <= MOST_NAMES => line(&mut text, format_args!("there are: {}", few.join(", "))),
        many => line(
            &mut text,
            format_args!("there are: {} and {} more", many[..MOST_NAMES].join(", "), many.len() - MOST_NAMES),
        ),
    }
    text
}

/// What is wrong with manifests: the file and line first, to go there.
fn problems(problems: &[Problem]) -> String {
    let mut text = String::new();
    if problems.is_empty() {
        return text;
    }
    line(&mut text, format_args!("Manifests that something is wrong with:"));
    for problem in problems {
        line(&mut text, format_args!("  {problem} ({})", problem.consequence.as_str()));
    }
    text.push('\n');
    text
}

fn pull_words(pull: &Pull, now: Timestamp) -> String {
    match pull.running_since {
        Some(began) => format!("Image {} is being pulled (for {}).", pull.image, since(began, now)),
        None => {
            format!("Image {} waits until other pulls are over (for {}).", pull.image, since(pull.since, now))
        }
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string never fails.
    _ = text.write_fmt(words);
    text.push('\n');
}
