//! What one decoded pod costs, beside `k8s-openapi`'s: the benchmark `lean` of `crates/api` measures it.

use std::path::Path;

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::promises::Figure;

/// Lines of the benchmark, the promise that each is about, and how many of its units make one of ours.
const LINES: &[(&str, &str, f64)] = &[
    ("pod_heap_bytes", "pod-heap", 1000.0),
    ("pod_decode_microseconds", "pod-decode", 1.0),
    ("500_pods_rss_bytes", "pods-rss", 1_000_000.0),
];

pub(crate) async fn measure(workspace: &Path) -> anyhow::Result<Vec<Figure>> {
    let arguments = ["bench", "--quiet", "--package", "crablet-api", "--bench", "lean"];
    let output = Command::new("cargo")
        .args(arguments)
        .current_dir(workspace)
        .output()
        .await
        .context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<Figure> = text.lines().filter_map(figure).collect();
    // It fails when a promise is missed, and that is said with all the others.
    ensure!(figures.len() == LINES.len(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(figures)
}

/// `name<TAB>ours<TAB>theirs<TAB>limit`.
fn figure(line: &str) -> Option<Figure> {
    let mut columns = line.split('\t');
    let (name, ours, theirs) = (columns.next()?, columns.next()?, columns.next()?);
    let (_, id, scale) = LINES.iter().find(|(known, ..)| *known == name)?;
    let ours: f64 = ours.parse().ok()?;
    let theirs: f64 = theirs.parse().ok()?;
    let beside = Some(format!("k8s-openapi: {:.2}", theirs / scale));
    Some(Figure { id, runs: vec![ours / scale], beside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_benchmark_is_a_figure_in_the_promises_unit() {
        let figure = figure("pod_heap_bytes\t9300.0\t42600.0\t10000").unwrap();
        assert_eq!(
            (figure.id, figure.runs, figure.beside.as_deref()),
            ("pod-heap", vec![9.3], Some("k8s-openapi: 42.60"))
        );
        assert!(super::figure("Compiling something").is_none());
    }
}
