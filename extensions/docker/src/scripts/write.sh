# Replaces a file by its input at once or not at all. Arguments: the path, the mode, the mark that ends the data.
if [ -d "$1" ]; then exit 45; fi
folder=${1%/*}
mkdir -p -- "${folder:=/}" || exit 1
new=$(mktemp "$folder/.sandboxer-XXXXXX") || exit 1
trap 'rm -f -- "$new"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$new" || exit 1
size=$(wc -c <"$new")
keep=$((size - ${#3}))
[ "$keep" -ge 0 ] || exit 46
[ "$(tail -c "${#3}" "$new" 2>/dev/null | tr -d '\0')" = "$3" ] || exit 46
# Cuts the mark off again.
dd if=/dev/null of="$new" bs=1 seek="$keep" count=0 2>/dev/null || exit 1
chmod "$2" "$new" && mv -fT -- "$new" "$1"
