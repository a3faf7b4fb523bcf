//! What the diff of a relist takes: the benchmark `relist` of `crates/cri` measures it, on the simulated runtime.

use std::path::Path;

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::promises::Figure;

pub(crate) async fn measure(workspace: &Path) -> anyhow::Result<Vec<Figure>> {
    let arguments = ["bench", "--quiet", "--package", "crablet-cri", "--bench", "relist"];
    let output = Command::new("cargo")
        .args(arguments)
        .current_dir(workspace)
        .output()
        .await
        .context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = figure(&text);
    // It fails when a promise is missed, and that is said with all the others.
    ensure!(figure.is_some(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(figure.into_iter().collect())
}

/// From lines of `name<TAB>value<TAB>limit`.
fn figure(text: &str) -> Option<Figure> {
    let value = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))?;
        line.split('\t').next()?.parse().ok()
    };
    let unchanged = value("relist_unchanged_milliseconds")?;
    let changed = value("relist_changed_milliseconds")?;
    let allocations = value("relist_unchanged_allocations")?;
    let for_changes = value("relist_changed_allocations")?;
    let beside = format!(
        "with 10 changes: {changed:.2}; allocations without a change: {allocations}, with 10: {for_changes}"
    );
    // One that allocates for what did not change keeps no promise.
    let runs = if allocations == 0.0 && for_changes <= 10.0 { vec![unchanged] } else { Vec::new() };
    Some(Figure { id: "relist-diff", runs, beside: Some(beside) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lines_of_the_benchmark_are_one_figure() {
        let text = "relist_unchanged_milliseconds\t2.900\t10\nrelist_changed_milliseconds\t3.000\t10\n\
                    relist_unchanged_allocations\t0.000\t0\nrelist_changed_allocations\t3.000\t10\n";
        let figure = super::figure(text).unwrap();
        assert_eq!((figure.id, figure.runs), ("relist-diff", vec![2.9]));
        assert_eq!(
            figure.beside.as_deref(),
            Some("with 10 changes: 3.00; allocations without a change: 0, with 10: 3")
        );
        assert!(super::figure("Compiling something").is_none());
        for (kept, missed) in [
            ("unchanged_allocations\t0.000", "unchanged_allocations\t1.000"),
            ("relist_changed_allocations\t3.000", "relist_changed_allocations\t11.000"),
        ] {
            assert!(super::figure(&text.replace(kept, missed)).unwrap().runs.is_empty(), "{missed}");
        }
    }
}
