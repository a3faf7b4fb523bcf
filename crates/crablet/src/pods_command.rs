//! `crablet pods`: the pods of the node, and how they are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_agent::sources::SourceKind;
use crablet_api::core::Pod;
use crablet_api::{PodRow, document, human_duration};
use crablet_host::clock::Clock;

use crate::agent_client::{ANY_LIST, Agent, PodList, block_on};
use crate::command_line;
use crate::exit::{self, Failure};
use crate::find_pod::find_pod;

const EXAMPLES: &str = "\
Examples:
  crablet pods                   all pods, a line each
  crablet pods --watch           and a line more for each change, until Ctrl-C
  crablet pods -n kube-system    those of one namespace
  crablet pods web -o yaml       all that is known of one
  crablet pods -o json | jq -r '.items[].status.podIP'

STATUS is what kubectl shows: Running, Completed, CrashLoopBackOff, Init:0/1, Terminating, and so on.
`crablet explain` says why.";

/// What is to be shown.
#[derive(Debug)]
pub(crate) struct Pods {
    root_dir: PathBuf,
    namespace: Option<String>,
    pod: Option<String>,
    form: Form,
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Wide,
    Json,
    Yaml,
}

/// The subcommand's arguments.
pub(crate) fn subcommand() -> Command {
    Command::new("pods")
        .about("List the pods of a running agent, with their status")
        .after_help(EXAMPLES)
        .arg(Arg::new("pod").value_name("POD").help("One pod alone: its name, NAMESPACE/NAME or UID"))
        .arg(command_line::namespace())
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORM")
                .help("Another form than the table: wide, json or yaml"),
        )
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on with a line for each change"),
        )
        .args(command_line::root_dir())
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Pods, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let form = match text("output").as_deref() {
        None => Form::Table,
        Some("wide") => Form::Wide,
        Some("json") => Form::Json,
        Some("yaml") => Form::Yaml,
        Some(other) => return Err(format!("--output: {other:?} is not known: expected wide, json or yaml")),
    };
    let watch = matches.get_flag("watch");
    if watch && matches!(form, Form::Json | Form::Yaml) {
        return Err("--watch: shows lines of a table: leave out --output, or make it wide".to_owned());
    }
    Ok(Pods {
        root_dir: command_line::read_root_dir(matches),
        namespace: text("namespace"),
        pod: text("pod"),
        form,
        watch,
    })
}

/// Shows the pods.
pub(crate) fn run(wanted: &Pods) -> Result<(), Failure> {
    block_on(show(wanted))
}

async fn show(wanted: &Pods) -> anyhow::Result<()> {
    let agent = Agent::at(&wanted.root_dir);
    let mut list = agent.pods().await?;
    let pods = select(&list, wanted)?;
    match wanted.form {
        Form::Json => exit::print(&(pretty(&pods, wanted)? + "\n"))?,
        Form::Yaml => exit::print(&yaml(&pretty(&pods, wanted)?)?)?,
        Form::Table | Form::Wide => {
            let mut table = Table::new(wanted);
            let rows = table.changes(&pods, now());
            if pods.is_empty() && !wanted.watch {
                exit::say(["there are no pods; `crablet apply FILE` makes one".to_owned()]);
                return Ok(());
            }
            let mut is_read = exit::print_while_read(&rows)?;
            while wanted.watch && is_read {
                list = agent.pods_after(&list.metadata.resource_version).await?;
                // One that was asked for and is gone is a change, not a mistake.
                let pods = select(&list, wanted).unwrap_or_default();
                is_read = exit::print_while_read(&table.changes(&pods, now()))?;
            }
        }
    }
    Ok(())
}

fn now() -> i64 {
    Clock::system().now().as_second()
}

fn select<'a>(list: &'a PodList, wanted: &Pods) -> anyhow::Result<Vec<&'a Pod>> {
    let namespace = wanted.namespace.as_deref();
    match &wanted.pod {
        Some(text) => Ok(vec![find_pod(&list.items, text, namespace)?]),
        None => {
            let is_wanted = |pod: &&Pod| namespace.is_none_or(|wanted| *pod.metadata.namespace == *wanted);
            Ok(list.items.iter().filter(is_wanted).collect())
        }
    }
}

fn pretty(pods: &[&Pod], wanted: &Pods) -> anyhow::Result<String> {
    let text = match (&wanted.pod, pods) {
        (Some(_), [pod]) => serde_json::to_string_pretty(pod),
        _ => {
            let items = pods.iter().map(|pod| (*pod).clone()).collect();
            let list = PodList { items, ..PodList::default() };
            serde_json::to_string_pretty(&list)
        }
    };
    text.context("cannot write JSON")
}

fn yaml(json: &str) -> anyhow::Result<String> {
    let (tree, _) = document::parse("the agent's answer", json, ANY_LIST)?;
    Ok(document::write_yaml(&tree, &|_| None))
}

/// A table that grows by a line for each pod that changed.
struct Table {
    has_namespaces: bool,
    is_wide: bool,
    widths: Vec<usize>,
    /// What was last shown of each pod, by UID.
    shown: BTreeMap<String, Shown>,
    has_begun: bool,
}

struct Shown {
    /// What does not change by itself, as the age does.
    what: (PodRow, String),
    cells: Vec<String>,
}

const LEAST_GAP: usize = 3;

impl Table {
    fn new(wanted: &Pods) -> Table {
        Table {
            has_namespaces: wanted.namespace.is_none(),
            is_wide: wanted.form == Form::Wide,
            widths: Vec::new(),
            shown: BTreeMap::new(),
            has_begun: false,
        }
    }

    /// The lines of the pods that are not as they were last shown, and of those that are gone.
    fn changes(&mut self, pods: &[&Pod], now: i64) -> String {
        let mut rows = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            rows.push(self.row([
                "NAMESPACE",
                "NAME",
                "READY",
                "STATUS",
                "RESTARTS",
                "AGE",
                "IP",
                "NODE",
                "SOURCE",
                "UID",
            ]));
        }
        let mut before = std::mem::take(&mut self.shown);
        for pod in pods {
            let row = PodRow::of(pod);
            let cells = self.cells(pod, &row, now);
            let what = (row, pod.status.pod_ip.to_string());
            let known = before.remove(&*pod.metadata.uid);
            if known.is_none_or(|known| known.what != what) {
                rows.push(cells.clone());
            }
            self.shown.insert(pod.metadata.uid.to_string(), Shown { what, cells });
        }
        for Shown { mut cells, .. } in before.into_values() {
            cells[usize::from(self.has_namespaces) + 2] = "Gone".to_owned();
            rows.push(cells);
        }
        self.write(&rows)
    }

    fn cells(&self, pod: &Pod, row: &PodRow, now: i64) -> Vec<String> {
        let born = pod.metadata.creation_timestamp.or(pod.status.start_time);
        let age =
            born.map_or_else(|| "<unknown>".to_owned(), |born| human_duration(now - born.unix_seconds()));
        let source = SourceKind::of(pod).map_or("<none>", SourceKind::as_str);
        let (ready, restarts) = (format!("{}/{}", row.ready, row.total), row.restarts(now));
        self.row([
            &*pod.metadata.namespace,
            &pod.metadata.name,
            &ready,
            &row.status,
            &restarts,
            &age,
            or_none(&pod.status.pod_ip),
            or_none(&pod.spec.node_name),
            source,
            &pod.metadata.uid,
        ])
    }

    fn row(&self, cells: [&str; 10]) -> Vec<String> {
        let first = usize::from(!self.has_namespaces);
        let last = if self.is_wide { cells.len() } else { cells.len() - 3 };
        cells[first..last].iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn write(&mut self, rows: &[Vec<String>]) -> String {
        for row in rows {
            self.widths.resize(row.len(), 0);
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in rows {
            let (last, others) = row.split_last().map_or(("", &[][..]), |(last, others)| (&**last, others));
            for (cell, width) in others.iter().zip(&self.widths) {
                // Writing to a string never fails.
                _ = write!(text, "{cell:width$}", width = width + LEAST_GAP);
            }
            text.push_str(last);
            text.push('\n');
        }
        exit::harmless(&text)
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::document::Limits;
    use expect_test::expect;

    fn pod(name: &str, phase: &str, ip: &str) -> Pod {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"default","uid":"u-{name}"}},
                "spec":{{"containers":[{{"name":"c"}}]}},
                "status":{{"phase":"{phase}","podIP":"{ip}","startTime":"2026-11-15T03:46:00Z"}}}}"#
        );
        crablet_api::from_json(json.as_bytes(), Limits::API).unwrap()
    }

    fn wanted(arguments: &[&str]) -> Result<Pods, String> {
        let words = std::iter::once("pods").chain(arguments.iter().copied());
        read(&subcommand().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn a_change_is_a_line_more() {
        let mut table = Table::new(&wanted(&[]).unwrap());
        let now = "2026-11-15T03:47:00Z".parse::<crablet_api::meta::Time>().unwrap().unix_seconds();
        let (pending, other) = (pod("web", "Pending", ""), pod("database", "Running", "10.88.0.7"));
        expect![[r#"
            NAMESPACE   NAME       READY   STATUS    RESTARTS   AGE   IP
            default     web        0/1     Pending   0          60s   <none>
            default     database   0/1     Running   0          60s   10.88.0.7
        "#]]
        .assert_eq(&table.changes(&[&pending, &other], now));
        assert_eq!(table.changes(&[&pending, &other], now + 5), "", "older is no change");
        expect![[r#"
            default     web        0/1     Pending   0          70s   10.88.0.8
        "#]]
        .assert_eq(&table.changes(&[&pod("web", "Pending", "10.88.0.8"), &other], now + 10));
        expect![[r#"
            default     web        0/1     Gone      0          70s   10.88.0.8
        "#]]
        .assert_eq(&table.changes(&[&other], now + 20));
    }

    #[test]
    fn one_namespace_needs_no_column_and_wide_has_more() {
        let mut table = Table::new(&wanted(&["-n", "default", "-o", "wide"]).unwrap());
        let mut pod = pod("web", "Running", "10.88.0.7");
        pod.metadata.annotations.insert("kubernetes.io/config.source", "push".into());
        pod.spec.node_name = "node-1".into();
        pod.status.start_time = None;
        expect![[r#"
            NAME   READY   STATUS    RESTARTS   AGE         IP          NODE     SOURCE   UID
            web    0/1     Running   0          <unknown>   10.88.0.7   node-1   push     u-web
        "#]]
        .assert_eq(&table.changes(&[&pod], 0));
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let error = wanted(&["-o", "xml"]).unwrap_err();
        assert_eq!(error, "--output: \"xml\" is not known: expected wide, json or yaml");
        assert!(wanted(&["-o", "yaml", "--watch"]).unwrap_err().starts_with("--watch: "));
    }

    #[test]
    fn yaml_is_as_kubectl_prints_it() {
        expect![[r#"
            apiVersion: v1
            items:
            - a: "1"
              b: {}
            kind: PodList
        "#]]
        .assert_eq(&yaml(r#"{"kind":"PodList","apiVersion":"v1","items":[{"a":"1","b":{}}]}"#).unwrap());
    }
}
