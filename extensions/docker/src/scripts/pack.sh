# Writes a tar of a folder's content, or of one file. Argument: the path.
if [ -d "$1" ]; then exec tar -cf - -C "$1" .; fi
if [ ! -e "$1" ] && [ ! -L "$1" ]; then exit 44; fi
folder=${1%/*}
exec tar -cf - -C "${folder:=/}" -- "${1##*/}"
