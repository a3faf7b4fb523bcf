//! `crablet config`: what it prints, and how it can be used again.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use expect_test::expect;
use tempfile::TempDir;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A directory with files, and the program that is called in it.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new(files: &[(&str, &str)]) -> Files {
        let files_in = Files { directory: tempfile::tempdir().unwrap() };
        for (name, fields) in files {
            let path = files_in.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{HEAD}{fields}")).unwrap();
        }
        files_in
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `crablet config` with these arguments, in which `DIR` is the directory.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crablet"));
        command.arg("config").args(arguments.iter().map(|text| self.lengthen(text)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.parts(self.command(arguments).output().unwrap())
    }

    /// A text in which `DIR` is the directory again.
    fn lengthen(&self, text: &str) -> String {
        text.replace("DIR", self.directory.path().to_str().unwrap())
    }

    fn parts(&self, output: Output) -> (Option<i32>, String, String) {
        let directory = self.directory.path().to_str().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(directory, "DIR");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// The lines that say something of their values.
fn with_remarks(yaml: &str) -> String {
    let lines = yaml.lines().filter(|line| line.contains("  # "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The text without its remarks.
fn without_remarks(yaml: &str) -> String {
    let lines = yaml.lines().map(|line| line.split("  # ").next().unwrap_or_default());
    lines.map(|line| format!("{line}\n")).collect()
}

const LAYERED: &[(&str, &str)] = &[
    (
        "kubelet.yaml",
        "maxPods: 50\nhealthzPort: 0\nclusterDNS: [10.0.0.10]\nlogging:\n  verbosity: 2\nstaticPodPath: manifests\n",
    ),
    ("conf.d/10-pods.conf", "maxPods: 60\npodsPerCore: 4\n"),
    (
        "conf.d/20-eviction.conf",
        "evictionHard:\n  memory.available: 200Mi\nfeatureGates:\n  EventedPLEG: true\n",
    ),
    ("conf.d/ignored.yaml", "maxPods: 99\n"),
];

const LAYERS: &[&str] = &[
    "--config=DIR/kubelet.yaml",
    "--config-dir=DIR/conf.d",
    "--max-pods=70",
    "--cluster-dns=10.0.0.11,10.0.0.12",
    "--feature-gates=PodsAPI=true",
    "--hostname-override=here",
];

#[test]
fn the_configuration_is_printed_whole_with_where_each_value_is_from() {
    let files = Files::new(LAYERED);
    let (code, stdout, stderr) = files.run(LAYERS);
    assert_eq!(code, Some(0), "{stderr}");
    expect![[r#"
        address: 0.0.0.0
        apiVersion: kubelet.config.k8s.io/v1beta1
        authentication:
          anonymous:
            enabled: false
          webhook:
            cacheTTL: 2m0s
            enabled: true
          x509: {}
        authorization:
          mode: Webhook
          webhook:
            cacheAuthorizedTTL: 5m0s
            cacheUnauthorizedTTL: 30s
        cgroupDriver: cgroupfs
        cgroupsPerQOS: true
        clusterDNS:  # --cluster-dns
        - 10.0.0.11  # --cluster-dns
        - 10.0.0.12  # --cluster-dns
        configMapAndSecretChangeDetectionStrategy: Watch
        containerLogMaxFiles: 5
        containerLogMaxSize: 10Mi
        containerLogMaxWorkers: 1
        containerLogMonitorInterval: 10s
        containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
        contentType: application/vnd.kubernetes.protobuf
        cpuCFSQuota: true
        cpuCFSQuotaPeriod: 100ms
        cpuManagerPolicy: none
        cpuManagerReconcilePeriod: 10s
        crashLoopBackOff:
          maxContainerRestartPeriod: 5m0s
        enableControllerAttachDetach: true
        enableDebugFlagsHandler: true
        enableDebuggingHandlers: true
        enableProfilingHandler: true
        enableServer: true
        enableSystemLogHandler: true
        enableSystemLogQuery: false
        enforceNodeAllocatable:
        - pods
        eventBurst: 100
        eventRecordQPS: 50
        evictionHard:
          imagefs.available: 15%
          imagefs.inodesFree: 5%
          memory.available: 200Mi  # DIR/conf.d/20-eviction.conf:4
          nodefs.available: 10%
          nodefs.inodesFree: 5%
        evictionPressureTransitionPeriod: 5m0s
        failCgroupV1: true
        failSwapOn: true
        featureGates:
          EventedPLEG: true  # DIR/conf.d/20-eviction.conf:6
          PodsAPI: true  # --feature-gates
        fileCheckFrequency: 20s
        hairpinMode: promiscuous-bridge
        healthzBindAddress: 127.0.0.1
        healthzPort: 0  # DIR/kubelet.yaml:4
        httpCheckFrequency: 20s
        imageGCHighThresholdPercent: 85
        imageGCLowThresholdPercent: 80
        imageMaximumGCAge: 0s
        imageMinimumGCAge: 2m0s
        imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages
        iptablesDropBit: 15
        iptablesMasqueradeBit: 14
        kind: KubeletConfiguration
        kubeAPIBurst: 100
        kubeAPIQPS: 50
        localStorageCapacityIsolation: true
        logging:
          flushFrequency: 5s
          format: text
          options:
            json:
              infoBufferSize: "0"
            text:
              infoBufferSize: "0"
          verbosity: 2  # DIR/kubelet.yaml:7
        makeIPTablesUtilChains: true
        maxOpenFiles: 1000000
        maxParallelImagePulls: 5  # crablet's default; upstream's is not set
        maxPods: 70  # --max-pods
        memoryManagerPolicy: None
        memoryReservationPolicy: None
        memorySwap: {}
        memoryThrottlingFactor: 0.9
        mergeDefaultEvictionSettings: false
        nodeLeaseDurationSeconds: 40
        nodeStatusMaxImages: 50
        nodeStatusReportFrequency: 5m0s
        nodeStatusUpdateFrequency: 10s
        oomScoreAdj: -999
        podLogsDir: /var/log/pods
        podPidsLimit: -1
        podsPerCore: 4  # DIR/conf.d/10-pods.conf:4
        port: 10250
        readOnlyPort: 0
        registerNode: true
        registryBurst: 10
        registryPullQPS: 5
        resolvConf: /etc/resolv.conf
        runtimeRequestTimeout: 2m0s
        seccompDefault: false
        serializeImagePulls: false  # crablet's default; upstream's is true
        shutdownGracePeriod: 0s
        shutdownGracePeriodCriticalPods: 0s
        staticPodPath: DIR/manifests  # DIR/kubelet.yaml:8
        streamingConnectionIdleTimeout: 4h0m0s
        syncFrequency: 1m0s
        topologyManagerPolicy: none
        topologyManagerScope: container
        volumePluginDir: /usr/libexec/kubernetes/kubelet-plugins/volume/exec/
        volumeStatsAggPeriod: 1m0s
    "#]]
    .assert_eq(&stdout);
    expect![[r#"
        warning: --max-pods: is deprecated; set maxPods in the file of --config instead
        warning: --cluster-dns: is deprecated; set clusterDNS in the file of --config instead
        warning: --feature-gates: is deprecated; set featureGates in the file of --config instead
    "#]]
    .assert_eq(&stderr);
}

#[test]
fn without_files_and_flags_the_defaults_are_printed_with_how_they_differ_from_upstreams() {
    let files = Files::new(&[]);
    let (code, stdout, stderr) = files.run(&[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    expect![[r#"
            enabled: false  # crablet's default; upstream's is true
            enabled: true  # crablet's default; upstream's is false
          mode: Webhook  # crablet's default; upstream's is AlwaysAllow
        maxParallelImagePulls: 5  # crablet's default; upstream's is not set
        readOnlyPort: 0  # crablet's default; upstream's is 10255
        serializeImagePulls: false  # crablet's default; upstream's is true
    "#]]
    .assert_eq(&with_remarks(&stdout));
}

#[test]
fn what_is_printed_is_a_file_that_comes_to_the_same() {
    let files = Files::new(LAYERED);
    for arguments in [LAYERS, &[], &["--config=DIR/kubelet.yaml"]] {
        let (_, printed, _) = files.run(arguments);
        fs::write(files.path("printed.yaml"), files.lengthen(&printed)).unwrap();
        let (code, again, stderr) = files.run(&["--config=DIR/printed.yaml", "--strict"]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert_eq!(without_remarks(&again), without_remarks(&printed), "{arguments:?}");
    }
}

#[test]
fn what_is_printed_can_be_piped_into_it() {
    let files = Files::new(LAYERED);
    let (_, printed, _) = files.run(LAYERS);
    let mut command = files.command(&["--config=/dev/stdin", "--strict"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(files.lengthen(&printed).as_bytes()).unwrap();
    let (code, again, stderr) = files.parts(child.wait_with_output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(without_remarks(&again), without_remarks(&printed));
    assert!(again.contains("maxPods: 70  # /dev/stdin:"), "{again}");
}

#[test]
fn doubts_are_warnings_unless_the_check_is_strict() {
    let files = Files::new(&[
        ("good.yaml", "maxPods: 5\n"),
        ("doubtful.yaml", "maxPod: 5\nmaxPods: 6\nmaxPods: 7\nlogging: {colour: red}\n"),
    ]);
    let (code, stdout, stderr) = files.run(&["--config=DIR/good.yaml", "--strict"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("\nmaxPods: 5  # DIR/good.yaml:3"), "{stdout}");

    let (code, stdout, stderr) = files.run(&["--config=DIR/doubtful.yaml"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("\nmaxPods: 7  # DIR/doubtful.yaml:5"), "{stdout}");
    expect![[r#"
        warning: DIR/doubtful.yaml:5: maxPods: is set twice (first on line 4); the last one counts
        warning: DIR/doubtful.yaml:6: logging.colour: unknown field
        warning: DIR/doubtful.yaml:3: maxPod: unknown field
    "#]]
    .assert_eq(&stderr);

    let (code, stdout, stderr) = files.run(&["--config=DIR/doubtful.yaml", "--strict"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    expect![[r#"
        warning: DIR/doubtful.yaml:5: maxPods: is set twice (first on line 4); the last one counts
        warning: DIR/doubtful.yaml:6: logging.colour: unknown field
        warning: DIR/doubtful.yaml:3: maxPod: unknown field
        crablet: 3 doubtful things were found
    "#]]
    .assert_eq(&stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let files = Files::new(LAYERED);
    for arguments in [LAYERS, &["--help"]] {
        // More than a pipe holds is not needed: the other end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = files.command(arguments).stdout(writer.try_clone().unwrap()).output().unwrap();
        let (code, _, stderr) = files.parts(output);
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        // The same for what is said on standard error.
        let output = files.command(arguments).stderr(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }

    let mut child = Reaped(files.command(LAYERS).spawn().unwrap());
    let mut first = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "address: 0.0.0.0\n");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_could_not_be_written_is_a_failure() {
    let files = Files::new(LAYERED);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = files.command(&["--config=DIR/kubelet.yaml"]).stdout(full).output().unwrap();
    let (code, _, stderr) = files.parts(output);
    assert_eq!(code, Some(1));
    assert_eq!(stderr, "crablet: cannot write to standard output: No space left on device (os error 28)\n");
}

/// A process that is killed and waited for when its test ends, however it ends.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
