//! Pod by pod: where to look, and what the recording says is there.
//!
//! Words in angle brackets are filled in: what differs between pods and nodes.

/// What a pod shows.
pub(crate) enum Shows {
    /// What a script prints in a container that runs.
    Prints { container: &'static str, script: &'static str, prints: &'static str },
    /// That a container runs, which has nothing that could be run in it.
    Runs { container: &'static str },
    /// What a container wrote before it ended.
    Writes { container: &'static str, log: &'static str },
    /// What a port of the node answers, when the container serves it.
    Answers { port: u16, answer: &'static str },
    /// How a container ended.
    Ends { container: &'static str, code: i32, reason: &'static str, message: &'static str },
    /// Why it does not run: a reason in its status, and what an event says.
    Stuck { reason: &'static str, event: &'static str },
}

use Shows::{Answers, Ends, Runs, Stuck, Writes};

/// A script in the container that most of them have.
const fn inside(script: &'static str, prints: &'static str) -> Shows {
    Shows::Prints { container: "c", script, prints }
}

/// The share of the CPU, the time on it, the memory, and where it is in the tree.
const CGROUP: &str = "cd /sys/fs/cgroup; cat cpu/cpu.shares cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes
    sed -n 's|.*:memory:.*/\\(kubepods.*\\)/[^/]*$|\\1|p' /proc/self/cgroup";

/// Who it is, and what it may do.
const RIGHTS: &str = "grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status";

pub(crate) const TABLE: &[(&str, Shows)] = &[
    // Who it is.
    (
        "minimal",
        inside(
            RIGHTS,
            "Uid:\t0\t0\t0\t0\n\
             Gid:\t0\t0\t0\t0\n\
             Groups:\t0 \n\
             CapEff:\t00000000a80425fb\n\
             CapBnd:\t00000000a80425fb\n\
             NoNewPrivs:\t0\n\
             Seccomp:\t0",
        ),
    ),
    (
        "run-as",
        inside(
            RIGHTS,
            "Uid:\t1000\t1000\t1000\t1000\n\
             Gid:\t3000\t3000\t3000\t3000\n\
             Groups:\t2000 3000 4000 5000 \n\
             CapEff:\t0000000000000000\n\
             CapBnd:\t00000000a80425fb\n\
             NoNewPrivs:\t0\n\
             Seccomp:\t0",
        ),
    ),
    ("supp-groups-strict", inside("id -G", "0 60000")),
    // Its own, and NET_ADMIN and SYS_TIME, without CHOWN.
    ("caps", inside("grep CapEff /proc/self/status", "CapEff:\t00000000aa0435fa")),
    ("privileged", inside("grep CapEff /proc/self/status", "CapEff:\t<host's capabilities>")),
    ("proc-mount", inside("grep ' /proc/sys ' /proc/mounts | cut -d' ' -f3,4 | cut -d, -f1", "proc ro")),
    ("seccomp", inside("grep Seccomp: /proc/self/status", "Seccomp:\t2")),
    ("selinux", inside("hostname", "selinux")),
    ("readonly-root", inside("touch /x", "touch: /x: Read-only file system")),
    ("sysctls", inside("cat /proc/sys/kernel/shm_rmid_forced", "1")),
    // What it may use.
    ("guaranteed", inside(CGROUP, "102\n10000\n67108864\nkubepods/pod<uid>")),
    ("burstable", inside(CGROUP, "51\n25000\n134217728\nkubepods/burstable/pod<uid>")),
    // The kernel counts in pages.
    ("limits-only", inside(CGROUP, "1024\n100000\n99999744\nkubepods/pod<uid>")),
    ("ephemeral-storage", inside(CGROUP, "2\n-1\n9223372036854771712\nkubepods/besteffort/pod<uid>")),
    // What it is told.
    ("env-plain", inside("env | grep -E '^[A-E]=' | sort", "A=again\nB=1-2\nC=$(A)\nD=$(NOPE)\nE=")),
    (
        "env-fields",
        inside(
            "env | grep -E '^(NAME|NS|UID|NODE|SA|HOSTIP|PODIP|L|AN)=' | sort",
            "AN=y\nHOSTIP=<hostIP>\nL=env\nNAME=env-fields\nNODE=<node>\nNS=golden\nPODIP=<podIP>\nSA=default\nUID=<uid>",
        ),
    ),
    (
        "downward",
        inside(
            "cd /v; cat labels; echo; grep -E '^[qx]=' annotations; cat cpu; echo; cat name; echo; stat -Lc %a name labels",
            "a=\"1\"\nb=\"two\"\nq=\"say \\\"hi\\\"\"\nx=\"line1\\nline2\"\n<cpus>\ndownward\n400\n644",
        ),
    ),
    ("labels-annotations", inside("hostname; echo $HOSTNAME", "labels-annotations\nlabels-annotations")),
    // What it is called, and whom it knows.
    (
        "hostname-subdomain",
        inside("hostname; tail -n1 /etc/hosts", "web-0\n<podIP>\tweb-0.svc.golden.svc.cluster.local\tweb-0"),
    ),
    (
        "host-aliases",
        inside(
            "cat /etc/hosts",
            "# Kubernetes-managed hosts file.\n\
             127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\n\
             fe00::1\tip6-allnodes\n\
             fe00::2\tip6-allrouters\n\
             <podIP>\thost-aliases\n\n\
             # Entries added by HostAliases.\n\
             10.1.2.3\ta.example\tb.example\n\
             10.1.2.4\tc.example",
        ),
    ),
    ("dns-default", inside("cat /etc/resolv.conf", "nameserver 10.255.255.53")),
    (
        "dns-none",
        inside("cat /etc/resolv.conf", "search x.example\nnameserver 192.0.2.53\noptions ndots:2 edns0"),
    ),
    (
        "stop-signal-grace",
        inside(
            "cat /etc/resolv.conf",
            "search golden.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5",
        ),
    ),
    // What it shares with the node.
    (
        "host-network",
        inside(
            "hostname; readlink /proc/self/ns/net; head -n1 /etc/hosts; tail -n1 /etc/resolv.conf",
            "<host>\n<host's net>\n# Kubernetes-managed hosts file (host network).\noptions ndots:5",
        ),
    ),
    (
        "host-pid-ipc",
        inside("readlink /proc/self/ns/pid; readlink /proc/self/ns/ipc", "<host's pid>\n<host's ipc>"),
    ),
    ("share-process", inside("tr '\\0' ' ' < /proc/1/cmdline", "/pause")),
    ("host-port", Answers { port: 18080, answer: "hello" }),
    // Its volumes.
    ("empty-dir", inside("stat -c '%a %u %g' /v; echo x > /v/f; cat /v/f", "777 0 0\nx")),
    (
        "empty-dir-memory",
        inside(
            "stat -c %a /v; grep -oE '^tmpfs /v |size=16384k' /proc/mounts",
            "1777\ntmpfs /v \nsize=16384k",
        ),
    ),
    ("host-path", inside("stat -c '%F %a' /v; ls -d /v/crablet-node.* > /dev/null", "directory 1777")),
    ("host-path-create", inside("stat -c '%F %a' /v; touch /v/x; rm /v/x", "directory 755")),
    ("sub-path", inside("echo x > /a/f; cat /b/x/y/f; touch /b/g", "x\ntouch: /b/g: Read-only file system")),
    (
        "sub-path-expr",
        inside(
            "sed -n 's|.*/pods/\\([^ ]*\\) /v .*|\\1|p' /proc/self/mountinfo",
            "<uid>/volumes/kubernetes.io~empty-dir/v/sub-path-expr/data",
        ),
    ),
    // What the cluster has.
    (
        "configmap",
        inside("cd /v; cat one two dotted.key; od -An -tx1 bin; stat -Lc %a one", "1zweid 00 01 02\n644"),
    ),
    ("configmap-items", inside("cat /v/a/b/one.txt; stat -Lc ' %a' /v/a/b/one.txt; ls /v", "1 440\na")),
    (
        "secret",
        inside(
            "cd /v; cat user password; echo; grep -o '^tmpfs /v ' /proc/mounts; readlink user; touch x",
            "admins3cr3t\ntmpfs /v \n..data/user\ntouch: x: Read-only file system",
        ),
    ),
    (
        "projected",
        inside(
            "cd /v; ls; cat cm-one password ns token",
            "cm-one\nns\npassword\ntoken\nuser\n1s3cr3tgoldena token",
        ),
    ),
    (
        "with-token",
        inside(
            "cd /var/run/secrets/kubernetes.io/serviceaccount; ls; cat namespace token",
            "ca.crt\nnamespace\ntoken\ngoldena token",
        ),
    ),
    // The shell passes on no variable that it could not name itself.
    (
        "env-from",
        inside(
            "env | grep -E '^(P_|ONE=|PW=|OPT|user|password)' | sort",
            "ONE=1\nPW=s3cr3t\nP_one=1\nP_two=zwei\npassword=s3cr3t\nuser=admin",
        ),
    ),
    (
        "missing-configmap-env",
        Stuck { reason: "CreateContainerConfigError", event: "configmap \"nope\" not found" },
    ),
    (
        "service-links",
        inside(
            "echo $DB_SERVICE_PORT_ADMIN_UI $DB_PORT $KUBERNETES_SERVICE_HOST",
            "80 tcp://10.96.7.7:5432 10.96.0.1",
        ),
    ),
    // What it runs.
    ("no-command", Runs { container: "c" }),
    (
        "workdir-tty-stdin",
        inside("pwd; readlink /proc/1/cwd; readlink /proc/1/fd/0", "/tmp\n/tmp\n/dev/pts/0"),
    ),
    ("liveness-http", inside("until wget -qO- http://127.0.0.1:8080/ 2>/dev/null; do sleep 0.1; done", "ok")),
    ("readiness-exec", inside("tr '\\0' ' ' < /proc/1/cmdline", "sleep 3600")),
    ("readiness-gate", inside("hostname; hostname -i", "readiness-gate\n<podIP>")),
    ("init-then-main", Writes { container: "i2", log: "two" }),
    ("sidecar", Shows::Prints { container: "side", script: "hostname", prints: "sidecar" }),
    (
        "one-runs-one-done",
        Shows::Prints { container: "run", script: "hostname", prints: "one-runs-one-done" },
    ),
    ("poststart-prestop", inside("hostname", "poststart-prestop")),
    ("succeeds", Ends { container: "c", code: 0, reason: "Completed", message: "" }),
    ("fails", Ends { container: "c", code: 7, reason: "Error", message: "" }),
    ("restart-always-fail", Ends { container: "c", code: 1, reason: "Error", message: "" }),
    ("term-message", Ends { container: "c", code: 3, reason: "Error", message: "bye\n" }),
    ("term-message-file", Ends { container: "c", code: 0, reason: "Completed", message: "from-file" }),
    // Why it does not run.
    (
        "deadline",
        Stuck {
            reason: "DeadlineExceeded",
            event: "Pod was active on the node longer than the specified deadline",
        },
    ),
    (
        "bad-command",
        Stuck {
            reason: "StartError",
            event: "exec: \"/no/such/binary\": stat /no/such/binary: no such file or directory",
        },
    ),
    (
        "bad-image",
        Stuck {
            reason: "ErrImageNeverPull",
            event: "Container image \"docker.io/library/no-such-image:1\" is not present with pull policy of Never",
        },
    ),
    (
        "host-path-missing",
        Stuck {
            reason: "ContainerCreating",
            event: "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: /no/such/dir is not a directory",
        },
    ),
    (
        "huge-request",
        Stuck { reason: "OutOfcpu", event: "Node didn't have enough resource: cpu, requested: 5000000" },
    ),
    (
        "propagation",
        Stuck {
            reason: "CreateContainerError",
            event: "path \"/tmp\" is mounted on \"/\" but it is not a shared or slave mount",
        },
    ),
];
