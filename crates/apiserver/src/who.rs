//! Who asks.

use std::collections::BTreeMap;

/// Somebody whom authentication has found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Who may do everything.
pub const MASTERS: &str = "system:masters";
pub const NODES: &str = "system:nodes";
/// What the name of a node's user begins with.
pub const NODE_PREFIX: &str = "system:node:";

impl User {
    pub fn new(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    /// Who sent no credentials.
    pub fn anonymous() -> User {
        User::new("system:anonymous", &["system:unauthenticated"])
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node that it is, if it is one.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|_| self.is_in(NODES))
    }
}
