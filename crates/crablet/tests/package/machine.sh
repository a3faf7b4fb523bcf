#!/bin/sh
# A machine of its own, made of this one's files: systemd is its first process, and what is changed on it is in memory
# alone. It has its own processes, network, mounts and cgroups, and ends with this process.
#
#   machine.sh DIRECTORY PROGRAM
#
# On the machine, /test is DIRECTORY/shared, /test/crablet is PROGRAM, and /run/differs has the files that differ from here.
set -eu

directory=$1
program=$2

# The mount point, kind and options of each hierarchy of cgroups.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2, $3, $4 }' /proc/mounts; }

if [ "${3:-}" != within ]; then
    cgroup=$(basename "$directory")
    for hierarchy in $(hierarchies | cut -d ' ' -f 1); do
        own=$hierarchy/$cgroup
        mkdir "$own"
        # In version 1 it has no processor and no memory unless it is told which.
        for which in cpuset.cpus cpuset.mems; do
            if [ -e "$hierarchy/tasks" ] && [ -e "$own/$which" ]; then
                cat "$hierarchy/$which" >"$own/$which"
            fi
        done
        echo $$ >"$own/cgroup.procs"
    done
    exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child sh "$0" "$directory" "$program" within
fi

layers=$directory/layers
root=$layers/root
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$layers"
mkdir "$layers/upper" "$layers/work" "$root"
# No kubelet has been on it, nothing is mounted or started by itself, and nobody keeps packages from starting what they bring.
# What is not to be seen of the files beneath is a device 0, 0.
for path in etc/default/kubelet etc/fstab etc/kubernetes etc/systemd/system usr/sbin/policy-rc.d var/lib/kubelet; do
    mkdir -p "$(dirname "$layers/upper/$path")"
    mknod "$layers/upper/$path" c 0 0
done
mount -t overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" overlay "$root"

mount -t proc proc "$root/proc"
# How the kernel is set is this machine's affair: what is set on the other one are copies.
for setting in kernel/keys/root_maxbytes kernel/keys/root_maxkeys kernel/panic kernel/panic_on_oops vm/overcommit_memory \
    vm/panic_on_oom; do
    copy=$layers/settings/$setting
    mkdir -p "$(dirname "$copy")"
    cat "/proc/sys/$setting" >"$copy"
    mount --bind "$copy" "$root/proc/sys/$setting"
done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# Devices of its own: systemd makes some.
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t sysfs sysfs "$root/sys"
hierarchies >"$layers/hierarchies"
if grep --quiet ' cgroup ' "$layers/hierarchies"; then
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
fi
while read -r path kind options; do
    mkdir -p "$root$path"
    case $kind in
        # Which hierarchy it is, is among its options.
        cgroup)
            which=$(echo "$options" | tr ',' '\n' | grep --invert-match -E '^(rw|no[a-z]+|relatime|seclabel)$' | paste -s -d ,)
            mount -t cgroup -o "$which" cgroup "$root$path"
            ;;
        cgroup2) mount -t cgroup2 cgroup2 "$root$path" ;;
    esac
done <"$layers/hierarchies"

echo node-1 >"$root/etc/hostname"
ip link set lo up
ip link add eth0 type bridge
ip address add 10.0.0.1/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.0.2

# It runs nothing but systemd and its journal.
find "$root"/usr/lib/systemd/system/*.target.wants "$root"/usr/lib/systemd/system-generators -mindepth 1 \
    ! -name 'systemd-journald*' -delete
mkdir "$root/etc/systemd/system"
# Installing a manual page would have all of them indexed.
rm -f "$root/var/lib/dpkg/triggers/File"

mkdir -p "$root/test" "$root/run/containerd" "$root/run/differs"
mount --bind "$layers/upper" "$root/run/differs"
mount --bind "$directory/shared" "$root/test"
mount --bind "$directory/shared/containerd" "$root/run/containerd"
touch "$root/test/crablet"
mount --bind "$program" "$root/test/crablet"

mkdir -p "$root/mnt/old"
cd "$root"
pivot_root . mnt/old
umount --lazy /mnt/old
exec env --ignore-environment container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no
