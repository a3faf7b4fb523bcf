#!/bin/bash
# What the virtual machine does once it is up: it runs the tests one after the other and goes off.
#
# What they print goes to the port `output`, a line for each to the port `results`, and the journal to `journal`. A test that
# has the machine start anew writes `goes-down` first, and is run again afterwards.
set -u

ports=/dev/virtio-ports
state=/var/lib/crablet-vm
# Longer than any test waits for anything.
limit=1200
exec >"$ports/output" 2>&1 3>"$ports/results"
journalctl --follow --lines=all --output=short-precise >"$ports/journal" 3>&- &
journal=$!

main() {
    local binary name came_back=
    if [[ ! -e $state ]]; then
        set_up
    elif [[ -e $state/goes-down ]]; then
        rm "$state/goes-down"
        came_back=yes
    else
        read -r binary name <"$state/tests"
        echo "the machine went down in $name; console.log tells why"
        printf '%s\tthe machine went down\t-\n' "$name" >&3
        return
    fi
    prepare
    while read -r binary name <"$state/tests"; do
        run "$binary" "$name" ${came_back:+CRABLET_VM_CAME_BACK=yes}
        came_back=
        sed -i 1d "$state/tests"
        sync "$state/tests"
    done
    echo end >&3
}

# What is done once, and stays.
set_up() {
    mkdir "$state"
    echo "$(uname -r), $(systemctl --version | head -n 1 | cut -d ' ' -f 1-2), $(containerd --version | cut -d ' ' -f 1,3)," \
        "$(stat --file-system --format %T /sys/fs/cgroup), $(nproc) processors," \
        "$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MiB, up after $(cut -d ' ' -f 1 /proc/uptime) s"
    dpkg --install /test/crablet.deb >/run/dpkg.log 2>&1 || cat /run/dpkg.log
    {
        all vm
        # The same on the released program with a containerd of its own, and cgroups that it makes by itself.
        all pods_on_containerd | grep ' resize::'
    } >"$state/tests"
    sync
}

# What is in memory.
prepare() {
    local program
    mkdir -p /run/crablet-test
    cp /test/pause-* /run/crablet-test
    # Where tests look for the program that they start.
    program=$(cat /test/program)
    mkdir -p "$(dirname "$program")"
    ln -sf /usr/bin/crablet "$program"
}

# The tests of a binary, those that are wanted.
all() {
    local name
    "/test/tests/$1" --list --include-ignored | sed -n 's/: test$//p' | while read -r name; do
        if [[ ! -e /test/words ]] || grep --quiet --fixed-strings --file=/test/words <<<"$name"; then
            echo "$1 $name"
        fi
    done
}

# One of a binary, in a process of its own, with further variables.
run() {
    local binary=$1 name=$2 variables=("${@:3}") code=0 began=$SECONDS result=passed
    echo
    echo "---- $name"
    timeout --kill-after 10 "$limit" env "${variables[@]}" "/test/tests/$binary" --include-ignored --exact "$name" --nocapture \
        </dev/null >/run/test.log 2>&1 3>&- &
    wait $! || code=$?
    if ((code != 0)); then
        result=failed
        ((code != 124)) || echo "it has not ended after $limit s"
        cat /run/test.log
    else
        # What it has to say, without the harness's own words: on one processor it begins its line with them.
        sed -i -E 's/^test [^ ]+ \.\.\. //' /run/test.log
        grep -vE '^(running 1 test|ok|test .*|test result: .*|)$' /run/test.log
        ! grep --quiet '^skipped: ' /run/test.log || result=skipped
    fi
    echo "---- $result after $((SECONDS - began)) s"
    printf '%s\t%s\t%s\n' "$name" "$result" "$((SECONDS - began))" >&3
}

main
journalctl --sync
kill "$journal"
systemctl poweroff
