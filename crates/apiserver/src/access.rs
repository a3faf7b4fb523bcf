//! Who may do what.
//!
//! Admins may everything. A node may what [`node`] finds to be its own; everybody what [`rbac`] finds in the stored
//! roles and bindings. Whoever is told no is told so in upstream's words.

pub mod attributes;
pub(crate) mod defaults;
pub(crate) mod escalation;
pub mod impersonation;
mod node;
pub mod rbac;
pub(crate) mod references;
pub(crate) mod reviews;

use http::HeaderMap;

use crate::cluster::Cluster;
use crate::request::{Query, Request};
use crate::state::State;
use crate::status::Refusal;
use crate::who::{MASTERS, User};
use attributes::{About, Attributes};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Why, where that is known.
    pub reason: String,
}

impl Decision {
    fn yes(reason: impl Into<String>) -> Decision {
        Decision { allowed: true, reason: reason.into() }
    }

    fn no(reason: impl Into<String>) -> Decision {
        Decision { allowed: false, reason: reason.into() }
    }
}

/// Whether somebody may do something.
pub fn authorize(state: &State, attributes: &Attributes<'_>) -> Decision {
    let user = attributes.user.as_ref();
    if user.is_in(MASTERS) {
        return Decision::yes("");
    }
    let mut reasons = Vec::new();
    if let Some(node) = user.node() {
        let decision = node::authorize(state, node, attributes);
        if decision.allowed {
            return decision;
        }
        reasons.push(decision.reason);
    }
    let namespace = attributes.object().map(|object| object.namespace.as_str()).unwrap_or_default();
    match rbac::find_rule(state, user, namespace, |rule| rule.allows(attributes)) {
        Ok(source) => return Decision::yes(format!("RBAC: allowed by {source}")),
        Err(errors) if errors.is_empty() => {}
        Err(errors) => reasons.push(format!("RBAC: {}", aggregate(&errors))),
    }
    reasons.retain(|reason| !reason.is_empty());
    Decision::no(reasons.join("\n"))
}

/// Refuses what the sender of a request may not.
pub(crate) fn check(cluster: &Cluster, request: &Request, query: &Query) -> Result<(), Refusal> {
    let mut attributes = Attributes::of(request, query);
    require(&cluster.state, &attributes)?;
    // A stream that begins with GET does as much as one that begins with POST.
    if let About::Object(object) = &attributes.about
        && (object.group.as_str(), object.resource.as_str()) == ("", "pods")
        && matches!(object.subresource.as_str(), "attach" | "exec" | "portforward")
        && attributes.verb == "get"
    {
        "create".clone_into(&mut attributes.verb);
        require(&cluster.state, &attributes)?;
    }
    Ok(())
}

fn require(state: &State, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let decision = authorize(state, attributes);
    if decision.allowed { Ok(()) } else { Err(attributes.denial(&decision.reason)) }
}

impl Cluster {
    /// Who acts in a request whose headers ask to act as somebody else (`kubectl --as`), if its sender may; none if they
    /// do not ask.
    pub fn impersonate(&self, request: &Request, headers: &HeaderMap) -> Result<Option<User>, Refusal> {
        let Some(wanted) = impersonation::wanted(headers)? else { return Ok(None) };
        let attributes = Attributes::of(request, &Query::parse(&request.query));
        impersonation::impersonate(&self.state, &attributes, &wanted).map(Some)
    }
}

/// Several errors in one message, as upstream writes them.
fn aggregate(errors: &[Refusal]) -> String {
    let mut messages: Vec<&str> = Vec::new();
    for error in errors {
        if !messages.contains(&error.message.as_str()) {
            messages.push(&error.message);
        }
    }
    match messages.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}
