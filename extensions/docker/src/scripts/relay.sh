# Relays between its streams and a port of the loopback. Argument: the port.
# A line of `ss` would need a tool; the kernel's own table tells who listens (state 0A).
command -v nc >/dev/null || exit 127
wanted=$(printf '%04X' "$1")
found=
for table in /proc/net/tcp /proc/net/tcp6; do
    while read -r _ address _ state _; do
        case "$address $state" in *":$wanted 0A") found=1 ;; esac
    done 2>/dev/null <"$table"
done
[ -n "$found" ] || exit 44
printf '+'
exec nc 127.0.0.1 "$1"
