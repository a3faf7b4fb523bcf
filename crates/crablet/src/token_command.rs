//! `crablet token`: the tokens that nodes join a cluster with.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command};
use crablet_api::core::{Secret, SecretType};
use crablet_api::meta::{DeleteOptions, List};
use crablet_api::{GoDuration, human_duration};
use crablet_client::Client;
use crablet_host::clock::Clock;
use jiff::{SignedDuration, Timestamp};

use crate::administrator::{self, WHICH_CLUSTER};
use crate::agent_client::block_on;
use crate::exit::{self, Failure};

const EXAMPLES: &str = "\
Examples:
  crablet token create                        print a token that a node can join with for a day
  crablet token create --ttl 0                one that does not end
  crablet token list
  crablet token delete abcdef

A node joins with the token in the file of --bootstrap-kubeconfig.
";

const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Whoever joins with a token is of this group, which kubeadm gives the right to ask for a node's certificate.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// What is to be done, and where.
#[derive(Debug)]
pub(crate) struct Tokens {
    kubeconfig: Option<PathBuf>,
    wanted: Wanted,
}

#[derive(Debug)]
enum Wanted {
    Create { ttl: Option<SignedDuration>, description: String },
    List,
    Delete { id: String },
}

pub(crate) fn subcommand() -> Command {
    let create = Command::new("create")
        .about("Make a token, and print it")
        .arg(
            Arg::new("ttl")
                .long("ttl")
                .value_name("DURATION")
                .default_value("24h0m0s")
                .help("How long it can be used; 0 for ever"),
        )
        .arg(
            Arg::new("description")
                .long("description")
                .value_name("TEXT")
                .default_value("")
                .help("What people are told of it"),
        );
    let delete = Command::new("delete")
        .about("Make a token useless")
        .arg(Arg::new("id").value_name("ID").required(true).help("The token, or what is before its dot"));
    Command::new("token")
        .about("Make, list and delete the tokens that nodes join a cluster with")
        .after_help(format!("{EXAMPLES}\n{WHICH_CLUSTER}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create.arg(administrator::argument()))
        .subcommand(Command::new("list").about("List the tokens").arg(administrator::argument()))
        .subcommand(delete.arg(administrator::argument()))
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn read(matches: &ArgMatches) -> Result<Tokens, String> {
    let Some((command, matches)) = matches.subcommand() else {
        return Err("token: one of create, list and delete is expected".to_owned());
    };
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let wanted = match command {
        "create" => {
            let ttl: GoDuration = text("ttl")
                .parse()
                .map_err(|_| format!("--ttl: {:?} is not a duration such as 24h", text("ttl")))?;
            let ttl = SignedDuration::from_nanos(ttl.as_nanos());
            if ttl.is_negative() {
                return Err("--ttl: it must not be negative".to_owned());
            }
            Wanted::Create { ttl: Some(ttl).filter(|ttl| !ttl.is_zero()), description: text("description") }
        }
        "list" => Wanted::List,
        _ => {
            let id = text("id");
            let id = id.split('.').next().unwrap_or_default().to_owned();
            if !is_of(&id, ID_LENGTH) {
                return Err(format!("{id:?} is not a token, or what is before its dot"));
            }
            Wanted::Delete { id }
        }
    };
    Ok(Tokens { kubeconfig: administrator::given(matches), wanted })
}

pub(crate) fn run(tokens: &Tokens) -> Result<(), Failure> {
    let text = block_on(async {
        let client = administrator::client(tokens.kubeconfig.as_deref(), "crablet-token")?;
        match &tokens.wanted {
            Wanted::Create { ttl, description } => create(&client, *ttl, description).await,
            Wanted::List => list(&client).await,
            Wanted::Delete { id } => delete(&client, id).await,
        }
    })?;
    exit::print(&text)
}

async fn create(client: &Client, ttl: Option<SignedDuration>, description: &str) -> anyhow::Result<String> {
    let (id, secret) = (letters(ID_LENGTH)?, letters(SECRET_LENGTH)?);
    let mut object = Secret { r#type: Some(SecretType::Other(TYPE.into())), ..Secret::default() };
    object.metadata.name = format!("{PREFIX}{id}").into();
    object.metadata.namespace = NAMESPACE.into();
    let mut put = |key: &str, value: &str| drop(object.data.insert(key, value.into()));
    put("token-id", &id);
    put("token-secret", &secret);
    put("usage-bootstrap-authentication", "true");
    put("usage-bootstrap-signing", "true");
    put("auth-extra-groups", GROUP);
    if !description.is_empty() {
        put("description", description);
    }
    if let Some(ttl) = ttl {
        let ends =
            Clock::system().now().checked_add(ttl).context("--ttl: so late a time cannot be written")?;
        put("expiration", &format!("{ends:.0}"));
    }
    client.create(&object).await.context("cannot make the token")?;
    Ok(format!("{id}.{secret}\n"))
}

async fn list(client: &Client) -> anyhow::Result<String> {
    let path =
        format!("/api/v1/namespaces/{NAMESPACE}/secrets?fieldSelector=type%3D{}", TYPE.replace('/', "%2F"));
    let secrets: List<Secret> = client.read(&path).await.context("cannot list the tokens")?;
    let now = Clock::system().now();
    let mut text = format!("{:<8}{:<12}{:<22}{}\n", "ID", "TTL", "EXPIRES", "DESCRIPTION");
    for secret in &secrets.items {
        let value = |key: &str| {
            secret.data.get(key).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
        };
        let expires = value("expiration");
        let left = match expires.parse::<Timestamp>() {
            Ok(ends) if ends <= now => "<ended>".to_owned(),
            Ok(ends) => human_duration(ends.duration_since(now).as_secs()),
            Err(_) => "<forever>".to_owned(),
        };
        let expires = if expires.is_empty() { "<never>".to_owned() } else { expires };
        // Writing to a string never fails.
        _ = writeln!(text, "{:<8}{left:<12}{expires:<22}{}", value("token-id"), value("description"));
    }
    Ok(text)
}

async fn delete(client: &Client, id: &str) -> anyhow::Result<String> {
    let name = format!("{PREFIX}{id}");
    match client.delete::<Secret>(NAMESPACE, &name, &DeleteOptions::default()).await {
        Ok(()) => Ok(format!("token {id} deleted\n")),
        Err(error) if error.is_not_found() => bail!("there is no token {id}"),
        Err(error) => Err(error).context("cannot delete the token"),
    }
}

fn is_of(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Small letters and digits that nobody can guess.
fn letters(count: usize) -> anyhow::Result<String> {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut chance = std::fs::File::open("/dev/urandom").context("cannot read /dev/urandom")?;
    let mut text = String::new();
    while text.len() < count {
        let mut byte = [0];
        chance.read_exact(&mut byte).context("cannot read /dev/urandom")?;
        // Each letter as often as any other: 252 is 7 times 36.
        if byte[0] < 252 {
            text.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(arguments: &[&str]) -> Result<String, String> {
        let arguments = ["token"].iter().chain(arguments);
        let matches = subcommand().try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        read(&matches).map(|tokens| format!("{:?}", tokens.wanted))
    }

    #[test]
    fn arguments_are_read_and_what_makes_no_sense_is_said() {
        assert_eq!(read_all(&["list"]).unwrap(), "List");
        assert_eq!(read_all(&["delete", "abc123.0123456789abcdef"]).unwrap(), "Delete { id: \"abc123\" }");
        assert!(read_all(&["create", "--ttl", "0"]).unwrap().contains("ttl: None"));
        assert!(read_all(&["create"]).unwrap().contains("24h"));
        assert_eq!(
            read_all(&["create", "--ttl=soon"]).unwrap_err(),
            "--ttl: \"soon\" is not a duration such as 24h"
        );
        assert_eq!(read_all(&["create", "--ttl=-1h"]).unwrap_err(), "--ttl: it must not be negative");
        let bad = read_all(&["delete", "UPPER1"]).unwrap_err();
        assert_eq!(bad, "\"UPPER1\" is not a token, or what is before its dot");
    }

    #[test]
    fn a_token_has_the_form_that_servers_take() {
        let (one, other) = (letters(SECRET_LENGTH).unwrap(), letters(SECRET_LENGTH).unwrap());
        assert!(is_of(&one, SECRET_LENGTH) && one != other, "{one} {other}");
    }
}
