//! What runs on the host for each operation: POSIX shell with coreutils or busybox.

pub(super) const NO_ROOT: i32 = 43;
pub(super) const NOT_FOUND: i32 = 44;
pub(super) const WRONG_KIND: i32 = 45;
pub(super) const ESCAPE: i32 = 46;
pub(super) const EXISTS: i32 = 47;
pub(super) const BROKEN_OFF: i32 = 48;

/// The walk: `$1` is the root, `$2` a directory below it, `$3` a name. `enter DIR MAKE` goes there step by step.
macro_rules! below {
    ($body:literal) => {
        concat!(
            r#"
r=$1; case $r in "~") r=$HOME;; "~/"*) r=$HOME/${r#"~/"};; esac
cd -P -- "$r" 2>/dev/null || exit 43
r=$PWD; case $r in /) in=/;; *) in=$r/;; esac
enter() {
  m=$2; IFS=/; set -f; set -- $1; set +f; unset IFS
  for c; do
    case $c in ''|.) continue;; esac
    if [ "$m" ] && [ ! -e "./$c" ] && [ ! -L "./$c" ]; then mkdir -- "./$c" 2>/dev/null || [ -d "./$c" ] || mkdir -- "./$c" || exit 50; fi
    [ -e "./$c" ] || exit 44
    [ -d "./$c" ] || exit 45
    cd -P -- "./$c" || exit 50
    case $PWD/ in "$in"*) ;; *) exit 46;; esac
  done
}
there() { [ -e "$1" ] || [ -L "$1" ] || exit 44; }
dir=$2 name=$3
"#,
            $body
        )
    };
}

/// Names with NUL, an empty one, what `stat` says of them line by line, NUL, then the targets of the links among them.
/// A name that vanishes meanwhile is missing in the second part.
pub(super) const STAT: &str = below!(
    r#"
enter "$dir"; there "./$name"
printf '%s\0' "./$name"; printf '\0'
stat -c '%f %s %u %g %Y %n' -- "./$name" || exit 50
printf '\0'; [ -L "./$name" ] && { readlink -- "./$name"; printf '\0'; }
exit 0
"#
);

pub(super) const LIST: &str = below!(
    r#"
enter "$dir/$name"
set -- ./* ./.[!.]* ./..?*
n=$#; while [ $n -gt 0 ]; do n=$((n-1)); f=$1; shift; if [ -e "$f" ] || [ -L "$f" ]; then set -- "$@" "$f"; fi; done
[ $# -eq 0 ] && exit 0
printf '%s\0' "$@"; printf '\0'
printf '%s\0' "$@" | xargs -0 stat -c '%f %s %u %g %Y %n' -- 2>/dev/null
printf '\0'
for f; do [ -L "$f" ] && { readlink -- "$f"; printf '\0'; }; done
exit 0
"#
);

pub(super) const MKDIR: &str = below!(r#"enter "$dir/$name" 1"#);

pub(super) const DELETE: &str = below!(
    r#"
enter "$dir"; [ "$name" = . ] && exit 45
there "./$name"
if [ "$4" ]; then chmod -R u+rwX -- "./$name" 2>/dev/null; rm -rf -- "./$name" || exit 50
elif [ -d "./$name" ] && [ ! -L "./$name" ]; then rmdir -- "./$name" 2>/dev/null || exit 47
else rm -f -- "./$name" || exit 50; fi
"#
);

pub(super) const RENAME: &str = below!(
    r#"
enter "$dir"; [ "$name" = . ] && exit 45
there "./$name"; from=$PWD/$name
cd -P -- "$r" || exit 43
[ "$5" = . ] && exit 47
enter "$4" 1; to=$PWD/$5
if [ -d "$to" ] && [ ! -L "$to" ]; then
  [ -d "$from" ] && [ ! -L "$from" ] || exit 47
  rmdir -- "$to" 2>/dev/null || exit 47
elif [ -L "$to" ]; then rm -f -- "$to" || exit 50; fi
mv -f -- "$from" "$to" || exit 50
"#
);

pub(super) const READ: &str = below!(
    r#"
enter "$dir"; there "./$name"; f=./$name
if [ -L "$f" ]; then f=$(readlink -f -- "$f") || exit 44; case $f in "$in"*) ;; *) exit 46;; esac; [ -e "$f" ] || exit 44; fi
[ -f "$f" ] || exit 45
exec cat <"$f"
"#
);

/// `$4` the temporary name, `$5` how many bytes, `$6` the mode.
pub(super) const WRITE: &str = below!(
    r#"
enter "$dir" 1; [ "$name" = . ] && exit 45
[ -d "./$name" ] && exit 45
umask 077
cat >"./$4" || { rm -f -- "./$4"; exit 50; }
if [ "$(($(wc -c <"./$4")))" != "$5" ]; then rm -f -- "./$4"; exit 48; fi
chmod -- "$6" "./$4" && mv -f -- "./$4" "./$name" || { rm -f -- "./$4"; exit 50; }
"#
);

/// The first half of a write whose length is not known before.
pub(super) const WRITE_STAGE: &str = below!(
    r#"
enter "$dir" 1; [ "$name" = . ] && exit 45
[ -d "./$name" ] && exit 45
umask 077
cat >"./$4" || { rm -f -- "./$4"; exit 50; }
"#
);

pub(super) const WRITE_PUBLISH: &str = below!(
    r#"
enter "$dir"
[ -f "./$4" ] || exit 48
if [ "$(($(wc -c <"./$4")))" != "$5" ]; then rm -f -- "./$4"; exit 48; fi
chmod -- "$6" "./$4" && mv -f -- "./$4" "./$name" || { rm -f -- "./$4"; exit 50; }
"#
);

pub(super) const WRITE_DISCARD: &str = below!(r#"enter "$dir"; rm -f -- "./$4""#);

pub(super) const TAR_OUT: &str = below!(
    r#"
enter "$dir"; there "./$name"
if [ -d "./$name" ]; then enter "$name"; exec tar -cf - .; fi
[ -f "./$name" ] || exit 45
exec tar -cf - -- "./$name"
"#
);

pub(super) const TAR_IN: &str = below!(
    r#"
enter "$dir/$name" 1
umask 022
exec tar -xopf -
"#
);
