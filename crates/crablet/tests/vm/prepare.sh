#!/bin/sh
# Makes a node of a Debian that was just unpacked: what stays the same whatever is tested on it.
#
#   prepare.sh DIRECTORY
set -eu

cd "$1"
rm -rf var/cache/apt/*.bin var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc/* usr/share/man/* usr/share/locale/*
: >etc/machine-id

cat >etc/fstab <<'END'
/dev/vda / ext4 defaults 0 0
/dev/vdb /test ext4 ro 0 0
END
mkdir test

# What it is told on this disk, it does once it is up.
cat >etc/systemd/system/boot.service <<'END'
[Unit]
Description=What the machine is for
After=multi-user.target
RequiresMountsFor=/test

[Service]
ExecStart=/bin/bash /test/boot.sh
# It does not count among what is to be ended when memory runs short.
OOMScoreAdjust=-1000
END
mkdir -p etc/systemd/system/multi-user.target.wants
ln -s ../boot.service etc/systemd/system/multi-user.target.wants/boot.service
# Nobody logs in, nothing is tidied up meanwhile, and nothing is updated.
for unit in getty.target serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer systemd-networkd-wait-online.service; do
    ln -sf /dev/null "etc/systemd/system/$unit"
done

# Its own network: an address that nodes may have, and a way out that leads nowhere.
cat >etc/systemd/system/network.service <<'END'
[Unit]
DefaultDependencies=no
Before=network.target network-online.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/ip link add eth0 type bridge
ExecStart=/sbin/ip address add 10.0.0.1/24 dev eth0
ExecStart=/sbin/ip link set eth0 up
ExecStart=/sbin/ip route add default via 10.0.0.2
END
ln -s ../network.service etc/systemd/system/multi-user.target.wants/network.service

# As people are told to configure containerd for kubeadm, with an image that is there.
cat >etc/containerd/config.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "crablet.test/pause:1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
END
mkdir -p etc/cni/net.d
cat >etc/cni/net.d/10-bridge.conflist <<'END'
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "pods", "isGateway": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
END
