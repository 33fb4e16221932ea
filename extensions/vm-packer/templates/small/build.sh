#!/bin/sh
# Builds a small virtual machine image into ./output, without root and without starting a machine.
#
#   KERNEL   a kernel of this machine (`6.1.0-54-cloud-amd64`); without it the newest cloud kernel in /boot, and where
#            there is none, Debian's current one, downloaded by apt
#   TOOLS    further programs of the build host that the image gets
#   DISK_MB  the size of the root file system
set -eu
umask 022
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

fail() { echo "small: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing: install the package $2"; }
need busybox busybox-static
need sshd openssh-server
need mke2fs e2fsprogs
need cpio cpio

echo "small: the kernel"
kernel=${KERNEL:-$(cd /boot && ls -v vmlinuz-*-cloud-* 2>/dev/null | tail -n 1 | sed 's/^vmlinuz-//')}
if [ -n "$kernel" ]; then
    boot=/boot modules=/lib/modules/$kernel
else
    need apt-get apt
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || fail "apt knows no linux-image-cloud-amd64: run apt-get update"
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb kernel)
    kernel=${package#linux-image-}
    boot=$work/kernel/boot modules=$work/kernel/lib/modules/$kernel
fi
[ -r "$boot/vmlinuz-$kernel" ] && [ -d "$modules" ] || fail "there is no kernel $kernel"

# The files of modules and of what they depend on, in the order in which they are loaded.
modules_for() {
    for name; do
        file=$(find "$modules" -name "$name.ko" | head -n 1)
        [ -n "$file" ] || continue # it is built into this kernel
        # shellcheck disable=SC2046 # a list of names
        (modules_for $(grep -a -o 'depends=[a-z0-9_,-]*' "$file" | head -n 1 | sed 's/depends=//; s/,/ /g'))
        echo "$file"
    done
}

echo "small: the initial ramdisk"
ram=$work/ram
mkdir -p "$ram/bin" "$ram/dev" "$ram/proc" "$ram/modules" "$ram/root" output
cp "$(command -v busybox)" "$ram/bin/busybox"
install -m 755 "$here/init" "$ram/init"
number=100
for file in $(modules_for virtio_pci virtio_blk virtio_net virtio-rng nls_cp437 nls_ascii vfat | awk '!seen[$0]++'); do
    number=$((number + 1))
    cp "$file" "$ram/modules/$number-$(basename "$file")"
done
(cd "$ram" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >output/initrd
cp "$boot/vmlinuz-$kernel" output/vmlinuz
echo "console=ttyS0 panic=-1 quiet" >output/cmdline

echo "small: the root file system"
root=$work/root
mkdir -p "$root"
for folder in dev proc sys run tmp etc/ssh root/.ssh home mnt var/tmp var/empty usr/bin usr/sbin usr/lib usr/lib64; do
    mkdir -p "$root/$folder"
done
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
chmod 700 "$root/root/.ssh"

# Puts a program of this machine into the image, with the libraries that it needs.
put() {
    for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ )]*'); do
        [ -e "$root$file" ] || install -D -m 755 "$(readlink -f "$file")" "$root$file"
    done
}
for tool in sh bash awk cat chmod chown cp cut date dd df du env expr false find flock grep head id install kill ln ls \
    mkdir mkfifo mktemp mv nohup nproc od printf ps pwd readlink realpath rm rmdir sed setpriv setsid sha256sum sleep sort \
    stat stty sync tail tar tee test timeout touch tr true tty uname uniq wc xargs gzip ${TOOLS:-}; do
    path=$(command -v "$tool" || true)
    case $path in /*) put "$(readlink -f "$(dirname "$path")")/$(basename "$path")" ;; esac
done
for path in /usr/sbin/sshd /usr/sbin/resize2fs /usr/lib/openssh/sftp-server; do
    [ ! -e "$path" ] || put "$path"
done
# Everything else is busybox.
put "$(readlink -f "$(command -v busybox)")"
for applet in $(busybox --list-full); do
    [ -e "$root/usr/${applet#usr/}" ] || ln -s /usr/bin/busybox "$root/usr/${applet#usr/}"
done

install -m 755 "$here/rc" "$root/etc/rc"
cat >"$root/etc/inittab" <<'END'
::sysinit:/etc/rc
::respawn:/usr/sbin/sshd -D -e
::ctrlaltdel:/sbin/poweroff
END
cat >"$root/etc/passwd" <<'END'
root:*:0:0:root:/root:/bin/sh
sshd:*:100:65534::/run/sshd:/bin/false
user:*:1000:1000::/home/user:/bin/sh
nobody:*:65534:65534::/:/bin/false
END
printf 'root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n' >"$root/etc/group"
printf '127.0.0.1 localhost sandbox\n' >"$root/etc/hosts"
printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
cat >"$root/etc/ssh/sshd_config" <<'END'
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxSessions 100
Subsystem sftp /usr/lib/openssh/sftp-server
END
# Files belong to root in the image, whoever builds it.
as_root=
[ "$(id -u)" -eq 0 ] || as_root="unshare --user --map-root-user"
$as_root mke2fs -q -t ext4 -E root_owner=0:0 -J size=4 -m 0 -d "$root" output/disk.raw "${DISK_MB:-512}M"
echo "small: done"
