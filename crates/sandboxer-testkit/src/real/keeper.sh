# Holds the namespaces of a test's dockerd and ends everything in them when the test process is gone, however it went.
# Arguments: the directory of the daemon, the name of its cgroup. Standard input closes when the test process ends.
trap '' INT TERM HUP
directory=$1
cgroup=$2
mine=$(readlink /proc/self/ns/mnt)

ip link set lo up
# Shims keep their sockets here whatever the daemon is told; a private mount keeps the machine's own folder clean.
mkdir -p /run/containerd && mount -t tmpfs tmpfs /run/containerd
echo ready
cat >/dev/null

is_ours() {
    [ "$(readlink "/proc/$1/ns/mnt" 2>/dev/null)" = "$mine" ]
}

daemon=$(cat "$directory/pid" 2>/dev/null)
if [ -n "$daemon" ] && is_ours "$daemon"; then
    kill -TERM "$daemon"
    tries=0
    while [ -d "/proc/$daemon" ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
fi
# What a daemon that was killed left running: its containers by their cgroup, its shims by their namespace.
for round in 1 2 3; do
    find /sys/fs/cgroup -path "*/$cgroup/*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u |
        while read -r pid; do kill -KILL "$pid" 2>/dev/null; done
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        if [ "$pid" != $$ ] && is_ours "$pid"; then kill -KILL "$pid" 2>/dev/null; fi
    done
    sleep 0.05
done
grep -F " $directory/" /proc/self/mounts | cut -d' ' -f2 | sort -r | while read -r mount; do umount -l "$mount"; done
find /sys/fs/cgroup -depth -type d \( -name "$cgroup" -o -path "*/$cgroup/*" \) -exec rmdir {} \; 2>/dev/null
rm -rf "$directory"
