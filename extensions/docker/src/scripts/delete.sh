# Removes a file, an empty folder or, with `all`, whatever is below. Arguments: the path, `one` or `all`.
if [ ! -e "$1" ] && [ ! -L "$1" ]; then exit 44; fi
if [ "$2" = all ]; then exec rm -rf -- "$1"; fi
if [ -d "$1" ] && [ ! -L "$1" ]; then exec rmdir -- "$1"; fi
exec rm -f -- "$1"
