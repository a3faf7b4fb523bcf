//! The chains of iptables that others look for: `KUBE-IPTABLES-HINT`, by which programs in containers tell which of the
//! kernel's two kinds of rules the machine uses; and `KUBE-FIREWALL`, which keeps others from what listens on loopback
//! alone. Nothing here needs them.
//!
//! Upstream makes a third, by which it notices once a minute that somebody has removed all rules. Here it is looked for
//! the hint itself, and less often: what looks is a process of its own.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";
/// How often it is looked whether they are still there.
const LOOKS_EVERY: Duration = Duration::from_secs(300);
/// How long a program may take. It waits for others for five seconds by itself.
const DEADLINE: Duration = Duration::from_secs(30);
/// How much is kept of what a program complains about.
const LONGEST_COMPLAINT: u64 = 1 << 10;
/// Drops what comes from elsewhere for loopback, unless it was sent there on purpose: kube-proxy may let it in.
const LOCALNET_RULE: [&str; 16] = [
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

/// The rules of a family of addresses, and the program that changes them.
#[derive(Debug, Clone)]
pub struct Iptables {
    /// The program, and what stands before what it is asked for.
    program: Vec<String>,
    is_ipv6: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    #[error("cannot run {program}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} {asked} ended with {code}: {complaint}")]
    Failed { program: String, asked: String, code: String, complaint: String },
    #[error("{program} {asked} took longer than {} s", DEADLINE.as_secs())]
    Late { program: String, asked: String },
}

/// Keeps the chains of both families, where there is iptables, for ever.
pub async fn keep_util_chains() {
    let ipv4 = Iptables::new(&["iptables"], false);
    let ipv6 = Iptables::new(&["ip6tables"], true);
    tokio::join!(ipv4.keep(), ipv6.keep());
}

impl Iptables {
    fn new(program: &[&str], is_ipv6: bool) -> Iptables {
        Iptables { program: program.iter().map(ToString::to_string).collect(), is_ipv6 }
    }

    async fn keep(self) {
        let family = if self.is_ipv6 { "IPv6" } else { "IPv4" };
        if let Err(error) = self.ask("-S", "POSTROUTING", "nat", &[]).await {
            info!(family, %error, "There is no iptables here; the {HINT} chain is not made");
            return;
        }
        let mut is_told = false;
        loop {
            match self.ensure().await {
                Ok(true) => {
                    info!(family, "Initialized iptables rules");
                    is_told = false;
                }
                Ok(false) => {}
                Err(error) if !is_told => {
                    warn!(family, %error, "Failed to initialize iptables rules; it is tried again");
                    is_told = true;
                }
                Err(_) => {}
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Makes what is missing, and says whether anything was. Where the hint is there, so is the rest.
    pub async fn ensure(&self) -> Result<bool, IptablesError> {
        if self.holds("-S", HINT, "mangle", &[]).await? {
            return Ok(false);
        }
        if !self.is_ipv6 {
            self.ensure_chain(FIREWALL, "filter").await?;
            for chain in ["OUTPUT", "INPUT"] {
                self.ensure_rule("-I", chain, "filter", &["-j", FIREWALL]).await?;
            }
            self.ensure_rule("-A", FIREWALL, "filter", &LOCALNET_RULE).await?;
        }
        // Last: what was cut short is begun anew.
        self.ensure_chain(HINT, "mangle").await?;
        Ok(true)
    }

    async fn ensure_chain(&self, chain: &str, table: &str) -> Result<(), IptablesError> {
        // One that is there already is no failure of another kind.
        self.holds("-N", chain, table, &[]).await.map(drop)
    }

    async fn ensure_rule(
        &self,
        how: &str,
        chain: &str,
        table: &str,
        rule: &[&str],
    ) -> Result<(), IptablesError> {
        match self.holds("-C", chain, table, rule).await? {
            true => Ok(()),
            false => self.ask(how, chain, table, rule).await,
        }
    }

    /// Whether the program says yes. That it says no is how it ends with 1.
    async fn holds(
        &self,
        operation: &str,
        chain: &str,
        table: &str,
        rule: &[&str],
    ) -> Result<bool, IptablesError> {
        match self.ask(operation, chain, table, rule).await {
            Ok(()) => Ok(true),
            Err(IptablesError::Failed { code, .. }) if code == "1" => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        operation: &str,
        chain: &str,
        table: &str,
        rule: &[&str],
    ) -> Result<(), IptablesError> {
        let (program, before) =
            self.program.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut asked = vec!["-w", "5", operation, chain, "-t", table];
        asked.extend(rule);
        let started = Command::new(program)
            .args(before)
            .args(&asked)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let program = program.to_owned();
        let mut child =
            started.map_err(|source| IptablesError::Start { program: program.clone(), source })?;
        let complaints = child.stderr.take();
        let ended = timeout(DEADLINE, async { tokio::join!(first_of(complaints), child.wait()) }).await;
        let asked = asked.join(" ");
        let (complaint, status) =
            ended.map_err(|_| IptablesError::Late { program: program.clone(), asked: asked.clone() })?;
        let status = status.map_err(|source| IptablesError::Start { program: program.clone(), source })?;
        if status.success() {
            return Ok(());
        }
        let code = status.code().map_or_else(|| status.to_string(), |code| code.to_string());
        Err(IptablesError::Failed { program, asked, code, complaint })
    }
}

/// The beginning of what somebody says; all of it is read, so that nobody waits to say it.
async fn first_of(source: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut source) = source else { return String::new() };
    let mut first = Vec::new();
    let _ = (&mut source).take(LONGEST_COMPLAINT).read_to_end(&mut first).await;
    let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&first).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A network of its own, as a new machine has it.
    struct Namespace(String);

    impl Namespace {
        async fn new(name: &str) -> Namespace {
            let name = format!("crablet-{name}-{}", std::process::id());
            let made = Command::new("ip").args(["netns", "add", &name]).status().await.unwrap();
            assert!(made.success());
            Namespace(name)
        }

        fn iptables(&self, program: &str, is_ipv6: bool) -> Iptables {
            Iptables::new(&["ip", "netns", "exec", &self.0, program], is_ipv6)
        }

        async fn run(&self, program: &[&str]) -> String {
            let words = ["netns", "exec", &self.0].into_iter().chain(program.iter().copied());
            let output = Command::new("ip").args(words).output().await.unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = std::process::Command::new("ip").args(["netns", "delete", &self.0]).status();
        }
    }

    #[tokio::test]
    async fn chains_are_made_once_and_again_when_somebody_removed_them() {
        let namespace = Namespace::new("chains").await;
        let (ipv4, ipv6) = (namespace.iptables("iptables", false), namespace.iptables("ip6tables", true));
        // Somebody has rules of their own.
        namespace.run(&["iptables", "-A", "INPUT", "-i", "lo", "-j", "ACCEPT"]).await;
        let expected = "\
-P INPUT ACCEPT
-P FORWARD ACCEPT
-P OUTPUT ACCEPT
-N KUBE-FIREWALL
-A INPUT -j KUBE-FIREWALL
-A INPUT -i lo -j ACCEPT
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
";
        assert!(ipv4.ensure().await.unwrap() && ipv6.ensure().await.unwrap());
        assert!(!ipv4.ensure().await.unwrap(), "all is there");
        assert_eq!(namespace.run(&["iptables", "-S"]).await, expected);
        for program in ["iptables", "ip6tables"] {
            assert!(
                namespace.run(&[program, "-t", "mangle", "-S"]).await.contains("-N KUBE-IPTABLES-HINT\n")
            );
        }
        assert!(!namespace.run(&["ip6tables", "-S"]).await.contains("KUBE"), "it is IPv4's trouble");
        // Some of it is gone, and what is left is not made twice.
        namespace.run(&["iptables", "-t", "mangle", "-X", HINT]).await;
        namespace.run(&["iptables", "-D", "OUTPUT", "-j", FIREWALL]).await;
        assert!(ipv4.ensure().await.unwrap());
        assert_eq!(namespace.run(&["iptables", "-S"]).await, expected);
    }

    /// A program in the place of iptables, which does this.
    fn script(directory: &tempfile::TempDir, text: &str) -> Iptables {
        let path = directory.path().join("iptables");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Iptables::new(&[&path.display().to_string()], false)
    }

    #[tokio::test]
    async fn a_program_that_is_missing_or_fails_is_an_error_that_says_so() {
        let missing = Iptables::new(&["/nowhere/iptables"], false);
        let error = missing.ensure().await.unwrap_err();
        assert!(matches!(error, IptablesError::Start { .. }), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let fails = script(&directory, "echo 'Permission denied (you must be root)' >&2; exit 4");
        let text = fails.ensure().await.unwrap_err().to_string();
        assert!(text.ends_with("ended with 4: Permission denied (you must be root)"), "{text}");
        // Without iptables nothing is done at all.
        missing.keep().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let hangs = script(&directory, "exec sleep 600");
        let error = hangs.ensure().await.unwrap_err();
        assert!(matches!(error, IptablesError::Late { .. }), "{error}");
    }
}
