//! [`Cluster`]: a request in, an answer out.
//!
//! The way of a write: decoded by the schema, defaulted and prepared by the kind's rules, admitted, validated, put into
//! the state; then the controllers look at what changed. Nothing here waits for anything: what was written is on disk
//! when the store says so, and an answer names the version that it must have come to.

pub(crate) mod body;
mod create;
pub(crate) mod delete;
mod patch;
mod read;
mod subresources;
mod update;

use std::sync::Arc;

use crablet_api::validate::Errors;
use jiff::Timestamp;
use serde_json::Value;

use crate::access;
use crate::answer::{Answer, Document};
use crate::authentication::openid;
use crate::chance::Chance;
use crate::controllers::Controllers;
use crate::discovery;
use crate::request::{Query, Request, Target, Verb};
use crate::resources::BINDINGS;
use crate::rules::Context;
use crate::signing::{Signer, SimulatedSigner};
use crate::state::{Key, State};
use crate::status::Refusal;

/// The largest body that a request may have, as upstream.
pub const LARGEST_BODY: usize = 3 << 20;

pub struct Cluster {
    pub state: State,
    pub(crate) chance: Chance,
    pub(crate) controllers: Controllers,
    pub(crate) settings: Settings,
}

/// What a cluster is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What `/version` says.
    pub git_version: &'static str,
    /// The certificate that pods know the server by, in PEM.
    pub ca: String,
    /// Where clients find the server, as `/api` says: an address with a port.
    pub address: String,
    /// Who issues the tokens of service accounts, and whom they are for if nobody else is named.
    pub issuer: String,
    /// Who signs certificates and tokens.
    pub signer: Arc<dyn Signer>,
    /// The port that it is served on, which `default/kubernetes` leads to.
    pub secure_port: u16,
    /// Whether pods are bound, volumes attached, namespaces emptied and so on; or only what an API server does alone.
    pub controllers: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            git_version: "v1.36.4",
            ca: String::new(),
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            address: String::new(),
            signer: Arc::new(SimulatedSigner::default()),
            secure_port: 6443,
            controllers: true,
        }
    }
}

/// A request on its way, taken apart.
pub(crate) struct Call<'r> {
    pub(crate) request: &'r Request,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) verb: Verb,
    pub(crate) now: Timestamp,
    /// What the client is warned of.
    pub(crate) warnings: Vec<String>,
}

impl Call<'_> {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.target.resource, &self.target.namespace, &self.target.name)
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|value| value == "All")
    }
}

impl Cluster {
    pub fn new(state: State, settings: Settings, seed: u64) -> Cluster {
        Cluster { state, chance: Chance::new(seed), controllers: Controllers::default(), settings }
    }

    /// Answers a request of somebody who is known. What is asked of the node is handed back.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Answer {
        let mut warnings = Vec::new();
        let before = self.state.revision();
        let mut answer = match self.try_handle(request, now, &mut warnings) {
            Ok(answer) => answer,
            Err(refusal) => refusal.into(),
        };
        if self.state.revision() != before {
            crate::controllers::run(self, now);
        }
        if let Answer::Document(document) = &mut answer {
            document.warnings = warnings;
            document.revision = self.state.revision();
        }
        answer
    }

    /// Lets the controllers do what time has come for; when they want to be asked next.
    pub fn tick(&mut self, now: Timestamp) -> Option<Timestamp> {
        crate::controllers::run(self, now)
    }

    /// When [`Cluster::tick`] has something to do even if nothing is asked. A request can change it.
    pub fn next_tick(&self) -> Option<Timestamp> {
        self.controllers.next()
    }

    fn try_handle(
        &mut self,
        request: &Request,
        now: Timestamp,
        warnings: &mut Vec<String>,
    ) -> Result<Answer, Refusal> {
        let query = Query::parse(&request.query);
        access::check(self, request, &query)?;
        let Some(target) = Target::of(&request.path) else {
            if let Some(document) = openid::answer(&self.settings, &request.path) {
                return Ok(document.into());
            }
            return match discovery::answer(self, request, now)? {
                Some(document) => Ok(document.into()),
                None => Err(Refusal::no_such_path()),
            };
        };
        let verb = target.verb(&request.method, &query)?;
        let mut call = Call { request, target, query, verb, now, warnings: Vec::new() };
        let answer = self.answer(&mut call);
        *warnings = std::mem::take(&mut call.warnings);
        answer
    }

    fn answer(&mut self, call: &mut Call<'_>) -> Result<Answer, Refusal> {
        subresources::check_verb(call)?;
        if call.target.resource.is_usage() {
            return self.usage(call).map(Answer::Usage);
        }
        if self.is_for_the_node(call) {
            return self.proxy(call);
        }
        check_dry_run(call)?;
        if call.target.resource.is_review() {
            let review = access::reviews::answer(self, call)?;
            return Ok(Document::json(201, &review).into());
        }
        match (call.verb, call.target.subresource) {
            (Verb::Create, None) if call.target.resource.key() == BINDINGS.key() => {
                self.bind_pod(call).map(Answer::from)
            }
            (Verb::Get, _) => self.get(call).map(Answer::from),
            (Verb::List, _) => self.list(call).map(Answer::from),
            (Verb::Watch, _) => self.watch(call),
            (Verb::Create, None) => self.create(call).map(Answer::from),
            (Verb::Create, Some(_)) => self.create_subresource(call).map(Answer::from),
            (Verb::Update, _) => self.update(call).map(Answer::from),
            (Verb::Patch, _) => self.patch(call).map(Answer::from),
            (Verb::Delete, None) => self.delete(call).map(Answer::from),
            (Verb::DeleteCollection, _) => self.delete_collection(call).map(Answer::from),
            (Verb::Delete, Some(_)) => Err(Refusal::method_not_allowed(call.target.resource, "delete")),
        }
    }

    /// What the rules of a kind may look at.
    pub(crate) fn context<'c>(&'c self, call: &'c Call<'_>) -> Context<'c> {
        Context {
            resource: call.target.resource,
            state: &self.state,
            now: call.now,
            user: &call.request.user,
        }
    }

    /// An object, to the client, in the form that it asked for.
    pub(crate) fn show(&self, call: &Call<'_>, code: u16, object: Value) -> Result<Document, Refusal> {
        let form = read::form(call)?;
        Ok(Document::json(code, &form.show_one(call.target.resource, object, call.now, true)))
    }
}

fn check_dry_run(call: &Call<'_>) -> Result<(), Refusal> {
    let kind = match call.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        // Options of a deletion are looked at together, for they may be in its body.
        Verb::Delete | Verb::DeleteCollection | Verb::Get | Verb::List | Verb::Watch => return Ok(()),
    };
    let said: Vec<&str> = call.query.all("dryRun").filter(|value| !value.is_empty()).collect();
    if said.iter().all(|value| *value == "All") {
        return Ok(());
    }
    let mut errors = Errors::default();
    errors.not_supported("dryRun", &serde_json::json!(said), &["All"]);
    Err(Refusal::invalid_kind("meta.k8s.io", kind, "", &errors.into_list()))
}
