# Keeps the last of what arrives on standard input in the folder $1: `console.1`, and before it `console.0`.
# A read is a block here, so that a half has as many reads as blocks and never more than 4 MiB.
LC_ALL=C
umask 077
while read_in=$(dd of="$1/console.1" bs=1024 count=4096 2>&1); do
    read_in=${read_in%% *}
    [ "$((${read_in%+*} + ${read_in#*+}))" -eq 4096 ] || exit 0
    mv "$1/console.1" "$1/console.0"
done
