//! The header that says who one is, where a certificate does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crablet_api::meta::Time;
use crablet_host::clock::Clock;
use crablet_host::files::{ReadError, read_bounded};
use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::counted::Requests;
use crate::exec::ExecError;
use crate::kubeconfig::{Cluster, Exec, Kubeconfig, User};
use crate::secret::Secret;
use crate::tls::{Tls, TlsError};

/// How often a token's file is read.
const READS_EVERY: Duration = Duration::from_secs(60);
const LARGEST_TOKEN: usize = 1 << 20;

/// Why one cannot say who one is.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizationError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} has no token", path.display())]
    Empty { path: PathBuf },
    #[error("the token, or the user and the password, cannot stand in a header")]
    NoHeader,
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("the certificate of the credential plugin cannot be used: {0}")]
    Certificate(#[from] TlsError),
}

pub(crate) enum Authorization {
    /// The certificate says it, or nothing does.
    Nothing,
    Fixed(HeaderValue),
    File(TokenFile),
    Program(Box<Program>),
}

/// A header, and which one of those that came after each other it is.
pub(crate) struct Authorized {
    pub(crate) header: Option<HeaderValue>,
    serial: u64,
}

impl Authorization {
    pub(crate) fn new(config: &Kubeconfig, clock: Clock) -> Result<Authorization, AuthorizationError> {
        let User { client_certificate, token, token_file, basic, exec } = &config.user;
        if let Some(path) = token_file {
            let header = read(path)?;
            let held = Held { header, read: Some(Instant::now()), serial: 0 };
            return Ok(Authorization::File(TokenFile {
                path: path.as_path().into(),
                held: Mutex::new(held),
            }));
        }
        if let Some(token) = token {
            return Ok(Authorization::Fixed(bearer(token.expose())?));
        }
        if let Some(basic) = basic {
            let user = STANDARD.encode(format!("{}:{}", basic.username, basic.password.expose()));
            return Ok(Authorization::Fixed(sensitive(format!("Basic {user}"))?));
        }
        match exec {
            Some(exec) if client_certificate.is_none() => Ok(Authorization::Program(Box::new(Program {
                exec: exec.clone(),
                cluster: config.cluster.clone(),
                clock,
                held: Mutex::new(Answered::default()),
            }))),
            Some(_) | None => Ok(Authorization::Nothing),
        }
    }

    /// The header to send. A certificate that a program gives goes to `tls`.
    pub(crate) async fn header(
        &self,
        tls: Option<&Tls>,
        counted: Option<&Requests>,
    ) -> Result<Authorized, AuthorizationError> {
        match self {
            Authorization::Nothing => Ok(Authorized { header: None, serial: 0 }),
            Authorization::Fixed(header) => Ok(Authorized { header: Some(header.clone()), serial: 0 }),
            Authorization::File(file) => Ok(file.header().await),
            Authorization::Program(program) => program.header(tls, counted).await,
        }
    }

    /// A server does not know whom a header names: another one is got for the next request.
    pub(crate) async fn refused(&self, header: &Authorized) {
        match self {
            Authorization::Nothing | Authorization::Fixed(_) => {}
            Authorization::File(file) => {
                let mut held = file.held.lock().await;
                if held.serial == header.serial {
                    held.read = None;
                }
            }
            Authorization::Program(program) => {
                let mut held = program.held.lock().await;
                if held.serial == header.serial {
                    held.is_good = false;
                }
            }
        }
    }
}

pub(crate) struct TokenFile {
    path: Arc<Path>,
    held: Mutex<Held>,
}

struct Held {
    header: HeaderValue,
    /// When it was read; nothing if it is to be read again.
    read: Option<Instant>,
    serial: u64,
}

impl TokenFile {
    async fn header(&self) -> Authorized {
        let mut held = self.held.lock().await;
        if held.read.is_none_or(|read| read.elapsed() >= READS_EVERY) {
            let path = Arc::clone(&self.path);
            let read = tokio::task::spawn_blocking(move || read(&path)).await;
            held.serial += 1;
            held.read = Some(Instant::now());
            match read {
                Ok(Ok(header)) => held.header = header,
                Ok(Err(error)) => {
                    warn!(err = %error, "A token cannot be read; the one from before is used on");
                }
                Err(_) => {}
            }
        }
        Authorized { header: Some(held.header.clone()), serial: held.serial }
    }
}

/// A program that knows who one is, and what it said last.
pub(crate) struct Program {
    exec: Exec,
    cluster: Cluster,
    clock: Clock,
    held: Mutex<Answered>,
}

#[derive(Default)]
struct Answered {
    header: Option<HeaderValue>,
    certificate: Option<(Secret, Secret)>,
    expires: Option<Time>,
    is_good: bool,
    serial: u64,
}

impl Program {
    /// Only one asks at a time, and the others take what it gets.
    async fn header(
        &self,
        tls: Option<&Tls>,
        counted: Option<&Requests>,
    ) -> Result<Authorized, AuthorizationError> {
        let mut held = self.held.lock().await;
        let has_expired = held.expires.is_some_and(|at| self.clock.now().as_second() >= at.unix_seconds());
        if !held.is_good || has_expired {
            let said = self.exec.ask(&self.cluster).await;
            if let Some(counted) = counted {
                counted.ran_plugin(said.as_ref());
            }
            let said = said?;
            if let (Some((certificate, key)), Some(tls)) = (&said.certificate, tls)
                && said.certificate != held.certificate
            {
                tls.set_identity(certificate.expose().as_bytes(), key.expose().as_bytes())?;
            }
            let header = said.token.map(|token| bearer(token.expose())).transpose()?;
            let serial = held.serial + 1;
            let (certificate, expires) = (said.certificate, said.expires);
            *held = Answered { header, certificate, expires, is_good: true, serial };
        }
        Ok(Authorized { header: held.header.clone(), serial: held.serial })
    }
}

fn read(path: &Path) -> Result<HeaderValue, AuthorizationError> {
    let bytes = read_bounded(path, LARGEST_TOKEN)?;
    let token = String::from_utf8(bytes).map_err(|_| AuthorizationError::NoHeader)?;
    match token.trim() {
        "" => Err(AuthorizationError::Empty { path: path.to_owned() }),
        token => bearer(token),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, AuthorizationError> {
    sensitive(format!("Bearer {token}"))
}

fn sensitive(text: String) -> Result<HeaderValue, AuthorizationError> {
    let mut value = HeaderValue::try_from(text).map_err(|_| AuthorizationError::NoHeader)?;
    value.set_sensitive(true);
    Ok(value)
}
