# The container's own process: it tells what holds inside, then keeps the deadline. It runs as root without any
# capability, so that the workload, which is another user, can neither signal it nor write its folder.
# Arguments: the deadline in seconds since 1970; how many seconds without a command end it too, or 0; 1 if the kernel is
# another than the machine's, so that it is asked what it can do.
idle=$2
own=/run/sandboxer

tick() { read -r up _ </proc/uptime; up=${up%%.*}; }
fact() { if read -r value 2>/dev/null <"$2"; then echo "$1 $value"; fi; }

umask 022
mkdir "$own" || exit 1
mkdir "$own/execs" && chmod 1777 "$own/execs" || exit 1
echo "$1" >"$own/deadline"
echo $$ >"$own/main"
command -v sleep >/dev/null || { echo "the image has no \`sleep\`" >&2; exit 1; }
wall=$(date +%s) || exit 1
tick
offset=$((wall - up))

while read -r key value; do
    case $key in CapEff: | CapBnd: | NoNewPrivs: | Seccomp: | Uid:) echo "$key $value" ;; esac
done </proc/self/status
while read -r _ target _ options _; do
    case $target in / | /workspace) echo "mount:$target ${options%%,*}" ;; esac
done </proc/self/mounts
while read -r name _; do
    case $name in *:) echo "interface: ${name%:}" ;; esac
done </proc/net/dev
fact kernel: /proc/version
if [ "$3" = 1 ] && ! /sbin/docker-init -s -- true 2>/dev/null; then echo "reaper: 0"; fi
fact memory: /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
fact memory: /sys/fs/cgroup/memory.max 2>/dev/null
fact pids: /sys/fs/cgroup/pids/pids.max 2>/dev/null
fact pids: /sys/fs/cgroup/pids.max 2>/dev/null
fact cpu_quota: /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null
fact cpu_quota: /sys/fs/cgroup/cpu.max 2>/dev/null
echo ready

used=$up
last=0
trap 'exit 0' TERM INT
while :; do
    read -r deadline <"$own/deadline"
    tick
    nap=$((deadline - offset - up))
    [ "$nap" -gt 0 ] || exit 0
    if [ "$idle" -gt 0 ]; then
        # Whatever runs or has run since the last look took a number: the numbers of our own naps follow each other.
        set -- /proc/[0-9]*
        if [ $# -gt 2 ] || [ "$last" != "$((before + 1))" ]; then used=$up; fi
        rest=$((used + idle - up))
        [ "$rest" -gt 0 ] || exit 0
        step=$((idle / 10))
        [ "$step" -gt 0 ] || step=1
        [ "$step" -lt 15 ] || step=15
        [ "$nap" -lt "$step" ] || nap=$step
        [ "$nap" -lt "$rest" ] || nap=$rest
    fi
    before=$last
    # A workload that has used up all processes must not end the shell, so the error of the fork stays in `command`.
    nodded=
    command eval 'sleep "$nap" & last=$!; nodded=1' 2>/dev/null
    if [ -z "$nodded" ]; then
        read -t 1 -r _ 2>/dev/null </dev/zero
        continue
    fi
    echo "$last" >"$own/sleeper"
    # A deadline that moved before the line above could not end this nap.
    read -r moved <"$own/deadline"
    if [ "$moved" = "$deadline" ]; then wait "$last"; else kill "$last"; wait "$last"; fi
done 2>/dev/null
