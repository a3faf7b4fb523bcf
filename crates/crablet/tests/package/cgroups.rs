//! The cgroups of pods where systemd makes them: its slices, with limits that it keeps.

use crablet_cri_api::CgroupDriver;
use crablet_cri_sim::Settings;
use crablet_testkit::eventually;

use crate::common::PATIENCE;
use crate::machine::Machine;

const CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                             failCgroupV1: false\nfailSwapOn: false\nevictionHard: {memory.available: 1Mi}\n\
                             imageGCHighThresholdPercent: 100\nmakeIPTablesUtilChains: false\n\
                             staticPodPath: /etc/kubernetes/manifests\npodPidsLimit: 100\n\
                             enforceNodeAllocatable: [pods, kube-reserved-compressible]\n\
                             kubeReserved: {cpu: 500m}\nkubeReservedCgroup: /kubelet.slice\nsystemReserved: {memory: 64Mi}\n";

const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    \
                        image: crablet.test/busybox:1\n    command: [sleep, infinity]\n    \
                        resources: {limits: {cpu: 125m, memory: 32Mi}, requests: {cpu: 100m, memory: 16Mi}}\n";

/// What the slices of pods are called, those that there are.
const SLICES: &str = "systemctl list-units --no-legend --plain 'kubepods*' | cut -d ' ' -f 1";

#[tokio::test(flavor = "multi_thread")]
async fn systemd_makes_the_slices_of_pods_and_keeps_their_limits() {
    let settings = Settings { cgroup_driver: CgroupDriver::Systemd, ..Settings::default() };
    let machine = Machine::boot_with(settings).await;
    machine.write("/var/lib/kubelet/config.yaml", CONFIGURATION);
    machine.write("/etc/kubernetes/manifests/web.yaml", MANIFEST);
    machine.run("systemd-run --quiet --slice=kubelet.slice sleep infinity").await;
    // In version 1 a slice is not in all trees by itself, and who is to be limited has to be.
    let trees = "for tree in $(awk '$3 == \"cgroup\" { print $2 }' /proc/mounts); do mkdir -p $tree/kubelet.slice; done";
    machine.run(trees).await;
    let unit =
        "systemd-run --quiet --unit=kubelet.service /test/crablet --config=/var/lib/kubelet/config.yaml";
    machine.run(unit).await;
    machine.containers().await;

    assert_eq!(
        machine.run("cd /proc/sys; grep -h . kernel/panic kernel/panic_on_oops vm/overcommit_memory").await,
        "10\n1\n1"
    );

    let slices = machine.run(SLICES).await;
    let slices: Vec<&str> = slices.lines().collect();
    let [best_effort, pod, burstable, all] = *slices else { panic!("{slices:?}") };
    assert_eq!(best_effort, "kubepods-besteffort.slice");
    assert_eq!((burstable, all), ("kubepods-burstable.slice", "kubepods.slice"));
    assert!(pod.starts_with("kubepods-burstable-pod") && pod.ends_with(".slice"), "{pod}");
    let show = async |slice: &str, property: &str| {
        machine.run(&format!("systemctl show --value --property={property} {slice}")).await
    };
    assert_eq!(show(pod, "Description").await, format!("libcontainer container {pod}"));
    assert_eq!(show(pod, "Wants").await, burstable);
    assert_eq!(show(pod, "TasksMax").await, "100");
    assert_eq!(show(pod, "CPUQuotaPerSecUSec").await, "130ms", "rounded up");

    // What systemd was told stays when it reads all units anew.
    for round in ["as it was made", "after a reload"] {
        if machine.ask("test -d /sys/fs/cgroup/memory").await.1 {
            let memory = async |slice: &str| {
                let file = format!("/sys/fs/cgroup/memory{slice}/memory.limit_in_bytes");
                machine.read(&file).trim().parse::<u64>().unwrap()
            };
            let total = machine.run("awk '/^MemTotal/ { print $2 }' /proc/meminfo").await;
            let total = total.parse::<u64>().unwrap() << 10;
            assert_eq!(memory("/kubepods.slice").await, total - (64 << 20), "{round}");
            let path = format!("/kubepods.slice/{burstable}/{pod}");
            assert_eq!(memory(&path).await, 32 << 20, "{round}");
            let cpu =
                |file: &str| machine.read(&format!("/sys/fs/cgroup/cpu{path}/{file}")).trim().to_owned();
            assert_eq!(cpu("cpu.cfs_quota_us"), "13000", "{round}");
            assert_eq!(cpu("cpu.shares"), "102", "{round}");
            let kubelet = machine.read("/sys/fs/cgroup/cpu/kubelet.slice/cpu.shares");
            assert_eq!(kubelet.trim(), "512", "{round}");
        }
        machine.run("systemctl daemon-reload").await;
    }

    machine.run("rm /etc/kubernetes/manifests/web.yaml").await;
    eventually("the pod's slice is gone", PATIENCE, || async {
        let slices = machine.run(SLICES).await;
        if slices.contains("-pod") { Err(format!("{slices}\n{}", machine.journal().await)) } else { Ok(()) }
    })
    .await
    .unwrap();
}
