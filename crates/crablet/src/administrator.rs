//! The cluster that a person looks after: whose kubeconfig it is, and a client by it.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Arg, ArgMatches};
use crablet_client::Client;

use crate::join;

/// Which cluster a command is about, for its help.
pub(crate) const WHICH_CLUSTER: &str = "\
The cluster is the one of --kubeconfig, else of $KUBECONFIG, else of /etc/kubernetes/admin.conf, else of \
/var/lib/crablet/apiserver/admin.conf.";

const USUAL: [&str; 2] = ["/etc/kubernetes/admin.conf", "/var/lib/crablet/apiserver/admin.conf"];

pub(crate) fn argument() -> Arg {
    Arg::new("kubeconfig")
        .long("kubeconfig")
        .value_name("FILE")
        .help("The kubeconfig of somebody who may do it")
}

/// What was said of it.
pub(crate) fn given(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one::<String>("kubeconfig").map(PathBuf::from)
}

pub(crate) fn client(given: Option<&Path>, user_agent: &str) -> anyhow::Result<Client> {
    let found = given.map(Path::to_owned).or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
    let found = found.or_else(|| USUAL.iter().map(PathBuf::from).find(|path| path.exists()));
    let found =
        found.ok_or_else(|| anyhow!("no cluster is known: name one with --kubeconfig, or in $KUBECONFIG"))?;
    join::client_of(&found, user_agent)
}
