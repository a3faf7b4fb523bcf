//! How a container is asked whether it is well, and what runs at the turns of its life.

use crate::IntOrString;
use crate::core::{
    ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, OSName, PodOS, Probe, ProbeHandler, Signal,
    SleepAction, TCPSocketAction, URIScheme,
};
use crate::one_of::OneOf;

use super::error::{Errors, Json, Word};
use super::path::Path;
use super::text;

pub(super) fn check_liveness_probe(errors: &mut Errors, path: &Path<'_>, probe: Option<&Probe>) {
    let Some(probe) = probe else { return };
    check_probe(errors, path, probe);
    check_succeeds_at_once(errors, path, probe);
}

pub(super) fn check_startup_probe(errors: &mut Errors, path: &Path<'_>, probe: Option<&Probe>) {
    check_liveness_probe(errors, path, probe);
}

pub(super) fn check_readiness_probe(errors: &mut Errors, path: &Path<'_>, probe: Option<&Probe>) {
    let Some(probe) = probe else { return };
    check_probe(errors, path, probe);
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let detail = "must not be set for readinessProbes";
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, detail);
    }
}

fn check_succeeds_at_once(errors: &mut Errors, path: &Path<'_>, probe: &Probe) {
    if probe.success_threshold != 1 {
        errors.invalid(&path.child("successThreshold"), probe.success_threshold, "must be 1");
    }
}

fn check_probe(errors: &mut Errors, path: &Path<'_>, probe: &Probe) {
    let handlers = probe.handler.as_slice().iter().map(|handler| match handler {
        ProbeHandler::Exec(exec) => Handler::Exec(exec),
        ProbeHandler::HttpGet(get) => Handler::HttpGet(get),
        ProbeHandler::TcpSocket(socket) => Handler::TcpSocket(socket),
        ProbeHandler::Grpc(call) => Handler::Grpc(call.port),
    });
    check_handlers(errors, path, handlers.collect(), None);
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        text::check_not_negative(errors, &path.child(field), value.into());
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

pub(super) fn check_lifecycle(
    errors: &mut Errors,
    path: &Path<'_>,
    lifecycle: &Lifecycle,
    grace_period: Option<i64>,
    operating_system: Option<&PodOS>,
) {
    for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(hook) = hook {
            check_hook(errors, &path.child(field), hook, grace_period);
        }
    }
    if let Some(signal) = &lifecycle.stop_signal {
        check_stop_signal(errors, &path.child("stopSignal"), signal, operating_system);
    }
}

fn check_hook(
    errors: &mut Errors,
    path: &Path<'_>,
    hook: &OneOf<LifecycleHandler>,
    grace_period: Option<i64>,
) {
    let handlers = hook.as_slice().iter().map(|handler| match handler {
        LifecycleHandler::Exec(exec) => Handler::Exec(exec),
        LifecycleHandler::HttpGet(get) => Handler::HttpGet(get),
        LifecycleHandler::TcpSocket(socket) => Handler::TcpSocket(socket),
        LifecycleHandler::Sleep(sleep) => Handler::Sleep(sleep),
    });
    check_handlers(errors, path, handlers.collect(), grace_period);
}

fn check_stop_signal(
    errors: &mut Errors,
    path: &Path<'_>,
    signal: &Signal,
    operating_system: Option<&PodOS>,
) {
    let mut supported = match operating_system.map(|os| &os.name) {
        None => {
            return errors.forbidden(path, "may not be set for containers with empty `spec.os.name`");
        }
        Some(OSName::Windows) => vec!["SIGKILL", "SIGTERM"],
        Some(OSName::Linux) => Signal::WORDS.to_vec(),
        Some(OSName::Other(_)) => return,
    };
    if !supported.contains(&signal.as_str()) {
        supported.sort_unstable();
        errors.not_supported(path, Word(signal.as_str()), &supported);
    }
}

/// What a probe or a hook can do, in the order in which upstream looks for it.
enum Handler<'a> {
    Exec(&'a ExecAction),
    HttpGet(&'a HTTPGetAction),
    TcpSocket(&'a TCPSocketAction),
    Grpc(i32),
    Sleep(&'a SleepAction),
}

impl Handler<'_> {
    fn field(&self) -> (u8, &'static str) {
        match self {
            Handler::Exec(_) => (0, "exec"),
            Handler::HttpGet(_) => (1, "httpGet"),
            Handler::TcpSocket(_) => (2, "tcpSocket"),
            Handler::Grpc(_) => (3, "grpc"),
            Handler::Sleep(_) => (4, "sleep"),
        }
    }
}

fn check_handlers(
    errors: &mut Errors,
    path: &Path<'_>,
    mut handlers: Vec<Handler<'_>>,
    grace_period: Option<i64>,
) {
    handlers.sort_by_key(Handler::field);
    let Some((first, others)) = handlers.split_first() else {
        return errors.required(path, "must specify a handler type");
    };
    let field = path.child(first.field().1);
    match first {
        Handler::Exec(exec) => {
            if exec.command.is_empty() {
                errors.required(&field.child("command"), "");
            }
        }
        Handler::HttpGet(get) => check_get(errors, &field, get),
        Handler::TcpSocket(socket) => check_port(errors, &field.child("port"), &socket.port),
        Handler::Grpc(port) => check_port(errors, &field.child("port"), &IntOrString::Int(*port)),
        Handler::Sleep(sleep) => check_sleep(errors, &field, sleep, grace_period),
    }
    for other in others {
        errors.forbidden(&path.child(other.field().1), "may not specify more than 1 handler type");
    }
}

fn check_get(errors: &mut Errors, path: &Path<'_>, get: &HTTPGetAction) {
    if get.path.is_empty() {
        errors.required(&path.child("path"), "");
    }
    check_port(errors, &path.child("port"), &get.port);
    let scheme = get.scheme.as_ref().map_or("", URIScheme::as_str);
    if !URIScheme::WORDS.contains(&scheme) {
        errors.not_supported(&path.child("scheme"), Word(scheme), URIScheme::WORDS);
    }
    for header in &get.http_headers {
        let problems = text::http_header_name_errors(&header.name);
        errors.invalid_each(&path.child("httpHeaders"), &header.name, problems);
    }
}

fn check_port(errors: &mut Errors, path: &Path<'_>, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => {
            for problem in text::port_number_errors(*number) {
                errors.invalid(path, Json(number.to_string()), problem);
            }
        }
        IntOrString::String(name) => errors.invalid_each(path, name, text::port_name_errors(name)),
    }
}

fn check_sleep(errors: &mut Errors, path: &Path<'_>, sleep: &SleepAction, grace_period: Option<i64>) {
    if let Some(limit) = grace_period
        && !(0..=limit).contains(&sleep.seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({limit})");
        errors.invalid(path, sleep.seconds, detail);
    }
}
