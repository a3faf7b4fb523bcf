//! `crablet csr`: the requests for certificates that wait for somebody to say yes or no.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_api::certificates::{
    CertificateSigningRequest, CertificateSigningRequestCondition, RequestConditionType,
};
use crablet_api::human_duration;
use crablet_api::meta::{ConditionStatus, List, Time};
use crablet_client::{Client, PatchType, Resource as _};
use crablet_host::clock::Clock;
use jiff::Timestamp;
use serde_json::json;

use crate::administrator::{self, WHICH_CLUSTER};
use crate::agent_client::block_on;
use crate::exit::{self, Failure};

const EXAMPLES: &str = "\
Examples:
  crablet csr list                            who asks for a certificate, and what became of it
  crablet csr approve csr-7vnhk               whoever signs such requests signs it now
  crablet csr deny csr-7vnhk csr-9xkq2        nobody will, ever
";

/// What is to be done, and where.
#[derive(Debug)]
pub(crate) struct Requests {
    kubeconfig: Option<PathBuf>,
    wanted: Wanted,
}

#[derive(Debug)]
enum Wanted {
    List,
    Say { word: Verdict, names: Vec<String> },
}

/// What somebody says to a request.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Approved,
    Denied,
}

impl Verdict {
    fn condition(self, now: Timestamp) -> CertificateSigningRequestCondition {
        let (kind, reason, message) = match self {
            Verdict::Approved => (
                RequestConditionType::Approved,
                "CrabletApprove",
                "This CSR was approved by crablet csr approve.",
            ),
            Verdict::Denied => {
                (RequestConditionType::Denied, "CrabletDeny", "This CSR was denied by crablet csr deny.")
            }
        };
        CertificateSigningRequestCondition {
            r#type: kind,
            status: ConditionStatus::True,
            reason: reason.into(),
            message: message.into(),
            last_update_time: Some(Time::from(now)),
            last_transition_time: None,
        }
    }

    fn past(self) -> &'static str {
        match self {
            Verdict::Approved => "approved",
            Verdict::Denied => "denied",
        }
    }
}

pub(crate) fn subcommand() -> Command {
    let names = || {
        Arg::new("name")
            .value_name("NAME")
            .required(true)
            .action(ArgAction::Append)
            .num_args(1..)
            .help("The names of the requests")
    };
    let approve = Command::new("approve").about("Say yes to requests").arg(names());
    let deny = Command::new("deny").about("Say no to requests").arg(names());
    Command::new("csr")
        .about("List, approve and deny requests for certificates, such as those of nodes that join")
        .after_help(format!("{EXAMPLES}\n{WHICH_CLUSTER}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("List the requests").arg(administrator::argument()))
        .subcommand(approve.arg(administrator::argument()))
        .subcommand(deny.arg(administrator::argument()))
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Requests, String> {
    let Some((command, matches)) = matches.subcommand() else {
        return Err("csr: one of list, approve and deny is expected".to_owned());
    };
    let say = |word| {
        let names = matches.get_many::<String>("name").unwrap_or_default().cloned().collect();
        Wanted::Say { word, names }
    };
    let wanted = match command {
        "approve" => say(Verdict::Approved),
        "deny" => say(Verdict::Denied),
        _ => Wanted::List,
    };
    Ok(Requests { kubeconfig: administrator::given(matches), wanted })
}

pub(crate) fn run(requests: &Requests) -> Result<(), Failure> {
    let now = Clock::system().now();
    block_on(async {
        let client = administrator::client(requests.kubeconfig.as_deref(), "crablet-csr")?;
        match &requests.wanted {
            Wanted::List => exit::print(&list(&client, now).await?)?,
            // Each is told when it is done: those after one that fails are not.
            Wanted::Say { word, names } => {
                for name in names {
                    say(&client, name, *word, now).await?;
                    let (name, done) = (exit::harmless(name), word.past());
                    exit::print(&format!("certificatesigningrequest.certificates.k8s.io/{name} {done}\n"))?;
                }
            }
        }
        Ok(())
    })
}

async fn list(client: &Client, now: Timestamp) -> anyhow::Result<String> {
    let path = CertificateSigningRequest::collection("");
    let requests: List<CertificateSigningRequest> =
        client.read(&path).await.context("cannot list the requests")?;
    if requests.items.is_empty() {
        return Ok("No requests found\n".to_owned());
    }
    let heads = ["NAME", "AGE", "SIGNERNAME", "REQUESTOR", "REQUESTEDDURATION", "CONDITION"];
    let rows = requests.items.iter().map(|request| row(request, now));
    let rows: Vec<[String; 6]> = [heads.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            // Writing to a string never fails.
            _ = write!(line, "{cell:<width$}   ", width = width(column));
        }
        text += line.trim_end();
        text.push('\n');
    }
    Ok(exit::harmless(&text))
}

/// A request as kubectl shows it.
fn row(request: &CertificateSigningRequest, now: Timestamp) -> [String; 6] {
    let created = request.metadata.creation_timestamp;
    let age = created.map(|created| now.as_second() - created.unix_seconds());
    let lasts = request.spec.expiration_seconds;
    [
        request.metadata.name.to_string(),
        age.map_or_else(|| "<unknown>".to_owned(), human_duration),
        request.spec.signer_name.to_string(),
        request.spec.username.to_string(),
        lasts.map_or_else(|| "<none>".to_owned(), |seconds| human_duration(i64::from(seconds))),
        condition(request),
    ]
}

fn condition(request: &CertificateSigningRequest) -> String {
    let is = |kind: &RequestConditionType| {
        request.status.conditions.iter().any(|condition| condition.r#type == *kind)
    };
    let mut text = match (is(&RequestConditionType::Denied), is(&RequestConditionType::Approved)) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if is(&RequestConditionType::Failed) {
        text += ",Failed";
    }
    if request.status.certificate.as_ref().is_some_and(|certificate| !certificate.is_empty()) {
        text += ",Issued";
    }
    text
}

async fn say(client: &Client, name: &str, word: Verdict, now: Timestamp) -> anyhow::Result<()> {
    // Of conditions there is one of each type: what others said stays.
    let patch = json!({"status": {"conditions": [word.condition(now)]}}).to_string().into_bytes();
    let kind = PatchType::StrategicMerge;
    match client.patch::<CertificateSigningRequest>("", name, "/approval", kind, patch).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => bail!("there is no request {name:?}"),
        Err(error) => Err(error).with_context(|| format!("the request {name} cannot be {}", word.past())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(arguments: &[&str]) -> Result<String, String> {
        let arguments = ["csr"].iter().chain(arguments);
        let matches = subcommand().try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        read(&matches).map(|requests| format!("{:?}", requests.wanted))
    }

    #[test]
    fn arguments_are_read_and_what_is_missing_is_said() {
        assert_eq!(read_all(&["list"]).unwrap(), "List");
        let expected = "Say { word: Approved, names: [\"a\", \"b\"] }";
        assert_eq!(read_all(&["approve", "a", "b", "--kubeconfig=k"]).unwrap(), expected);
        assert!(read_all(&["deny", "a"]).unwrap().contains("Denied"));
        assert!(read_all(&["deny"]).unwrap_err().contains("<NAME>"));
    }

    #[test]
    fn a_request_is_shown_as_kubectl_does() {
        use RequestConditionType::{Approved, Denied, Failed};
        for (said, certificate, expected) in [
            (&[][..], "", "Pending"),
            (&[Approved], "", "Approved"),
            (&[Approved], "pem", "Approved,Issued"),
            (&[Approved, Failed], "", "Approved,Failed"),
            (&[Denied], "", "Denied"),
        ] {
            let mut request = CertificateSigningRequest::default();
            let condition = |kind: &RequestConditionType| CertificateSigningRequestCondition {
                r#type: kind.clone(),
                ..Verdict::Approved.condition(Timestamp::UNIX_EPOCH)
            };
            request.status.conditions = said.iter().map(condition).collect();
            request.status.certificate = Some(certificate.into());
            assert_eq!(super::condition(&request), expected);
        }
        let mut request = CertificateSigningRequest::default();
        request.metadata.name = "csr-1".into();
        request.metadata.creation_timestamp = Some(Time::from_unix_seconds(0));
        request.spec.signer_name = "s".into();
        request.spec.username = "u".into();
        request.spec.expiration_seconds = Some(3600);
        let row = row(&request, Timestamp::from_second(90).unwrap());
        assert_eq!(row.join(" "), "csr-1 90s s u 60m Pending");
    }
}
