//! How a container is asked whether it is well, and what runs when it starts and stops.

use crate::IntOrString;
use crate::object::{object, words};
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

object! {
    /// How, when and how often a container is asked.
    pub struct Probe {
        initial_delay_seconds: i32 = "initialDelaySeconds",
        timeout_seconds: i32 = "timeoutSeconds",
        period_seconds: i32 = "periodSeconds",
        success_threshold: i32 = "successThreshold",
        failure_threshold: i32 = "failureThreshold",
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        .. handler: OneOf<ProbeHandler>,
    }
}

one_of! {
    /// How a container is asked.
    pub enum ProbeHandler {
        Exec(ExecAction) = "exec",
        HttpGet(HTTPGetAction) = "httpGet",
        TcpSocket(TCPSocketAction) = "tcpSocket",
        Grpc(GRPCAction) = "grpc",
    }
}

object! {
    /// What runs when a container has started and before it is stopped.
    pub struct Lifecycle {
        post_start: Option<OneOf<LifecycleHandler>> = "postStart",
        pre_stop: Option<OneOf<LifecycleHandler>> = "preStop",
        stop_signal: Option<Signal> = "stopSignal",
    }
}

one_of! {
    /// What runs at a turn of a container's life.
    pub enum LifecycleHandler {
        Exec(ExecAction) = "exec",
        HttpGet(HTTPGetAction) = "httpGet",
        TcpSocket(TCPSocketAction) = "tcpSocket",
        Sleep(SleepAction) = "sleep",
    }
}

object! {
    /// A command in the container.
    pub struct ExecAction {
        command: Box<[Text]> = "command",
    }
}

object! {
    /// A GET request.
    pub struct HTTPGetAction {
        path: Text = "path",
        port: IntOrString = "port",
        host: Text = "host",
        scheme: Option<URIScheme> = "scheme" word,
        http_headers: Box<[HTTPHeader]> = "httpHeaders",
    }
}

object! {
    /// A header of a request.
    pub struct HTTPHeader {
        name: Text = "name" always,
        value: Text = "value" always,
    }
}

object! {
    /// A connection that must open.
    pub struct TCPSocketAction {
        port: IntOrString = "port",
        host: Text = "host",
    }
}

object! {
    /// A call of the gRPC health service.
    pub struct GRPCAction {
        port: i32 = "port" always,
        service: Option<Text> = "service" always,
    }
}

object! {
    /// A wait.
    pub struct SleepAction {
        seconds: i64 = "seconds" always,
    }
}

words! {
    /// The scheme of a URL.
    pub enum URIScheme {
        Http = "HTTP",
        Https = "HTTPS",
    }
}

words! {
    /// The signal that stops a container.
    pub enum Signal {
        Abrt = "SIGABRT",
        Alrm = "SIGALRM",
        Bus = "SIGBUS",
        Chld = "SIGCHLD",
        Cld = "SIGCLD",
        Cont = "SIGCONT",
        Fpe = "SIGFPE",
        Hup = "SIGHUP",
        Ill = "SIGILL",
        Int = "SIGINT",
        Io = "SIGIO",
        Iot = "SIGIOT",
        Kill = "SIGKILL",
        Pipe = "SIGPIPE",
        Poll = "SIGPOLL",
        Prof = "SIGPROF",
        Pwr = "SIGPWR",
        Quit = "SIGQUIT",
        Segv = "SIGSEGV",
        Stkflt = "SIGSTKFLT",
        Stop = "SIGSTOP",
        Sys = "SIGSYS",
        Term = "SIGTERM",
        Trap = "SIGTRAP",
        Tstp = "SIGTSTP",
        Ttin = "SIGTTIN",
        Ttou = "SIGTTOU",
        Urg = "SIGURG",
        Usr1 = "SIGUSR1",
        Usr2 = "SIGUSR2",
        Vtalrm = "SIGVTALRM",
        Winch = "SIGWINCH",
        Xcpu = "SIGXCPU",
        Xfsz = "SIGXFSZ",
        RtMin = "SIGRTMIN",
        RtMinPlus1 = "SIGRTMIN+1",
        RtMinPlus2 = "SIGRTMIN+2",
        RtMinPlus3 = "SIGRTMIN+3",
        RtMinPlus4 = "SIGRTMIN+4",
        RtMinPlus5 = "SIGRTMIN+5",
        RtMinPlus6 = "SIGRTMIN+6",
        RtMinPlus7 = "SIGRTMIN+7",
        RtMinPlus8 = "SIGRTMIN+8",
        RtMinPlus9 = "SIGRTMIN+9",
        RtMinPlus10 = "SIGRTMIN+10",
        RtMinPlus11 = "SIGRTMIN+11",
        RtMinPlus12 = "SIGRTMIN+12",
        RtMinPlus13 = "SIGRTMIN+13",
        RtMinPlus14 = "SIGRTMIN+14",
        RtMinPlus15 = "SIGRTMIN+15",
        RtMaxMinus14 = "SIGRTMAX-14",
        RtMaxMinus13 = "SIGRTMAX-13",
        RtMaxMinus12 = "SIGRTMAX-12",
        RtMaxMinus11 = "SIGRTMAX-11",
        RtMaxMinus10 = "SIGRTMAX-10",
        RtMaxMinus9 = "SIGRTMAX-9",
        RtMaxMinus8 = "SIGRTMAX-8",
        RtMaxMinus7 = "SIGRTMAX-7",
        RtMaxMinus6 = "SIGRTMAX-6",
        RtMaxMinus5 = "SIGRTMAX-5",
        RtMaxMinus4 = "SIGRTMAX-4",
        RtMaxMinus3 = "SIGRTMAX-3",
        RtMaxMinus2 = "SIGRTMAX-2",
        RtMaxMinus1 = "SIGRTMAX-1",
        RtMax = "SIGRTMAX",
    }
}
