//! What a hostile workload tries. Each attempt is made as `user` and as root inside.

use sandboxer_runtime::ExecSpec;

use crate::common::{Fixture, run, sh, sh_root};

/// The script must fail or print nothing, for both users.
async fn refused(control: &sandboxer_runtime::Control, script: &str) {
    for root in [false, true] {
        let ran = if root { sh_root(control, script).await } else { sh(control, script).await };
        assert!(
            ran.exit.code != 0 || ran.stdout.is_empty(),
            "as root {root}: `{script}` gave {:?}",
            ran.stdout
        );
    }
}

#[tokio::test]
async fn the_host_is_not_to_be_seen() {
    let fixture = Fixture::new();
    let secret = tempfile::NamedTempFile::new().unwrap();
    let launched = fixture.launch("unseen").await;
    let control = &launched.control;
    let processes = sh(control, "ps -e -o comm= | sort -u").await.stdout;
    for name in processes.lines() {
        assert!(["sbx-init", "sbx-exec", "ps", "sh", "sort"].contains(&name), "{processes}");
    }
    assert!(!sh(control, "ls /root /home /home/user 2>/dev/null").await.stdout.contains(".ssh"));
    assert_eq!(sh(control, "ls /home").await.stdout, "user\n");
    refused(control, &format!("cat {}", secret.path().display())).await;
    refused(control, "cat /etc/shadow").await;
    refused(control, "ls -d /etc/ssh /etc/ssl/private /etc/gshadow").await;
    assert_eq!(sh(control, "ls -A /sys /boot 2>/dev/null | grep -v :").await.stdout.trim(), "");
    assert_eq!(
        sh(control, "cat /proc/net/route | tail -n +2; ls /sys/class/net 2>/dev/null").await.stdout,
        ""
    );
    refused(control, "grep -v -e '^ *lo:' /proc/net/dev | grep :").await;
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(sh(control, "hostname").await.stdout, hostname);
    assert!(!sh(control, "cat /proc/mounts").await.stdout.contains("sandboxes"));
    assert_eq!(
        sh(control, "cat /proc/self/cgroup | cut -d: -f3 | sort -u | grep sandboxer").await.stdout,
        ""
    );
    let environment = sh(control, "env | cut -d= -f1 | sort | tr '\\n' ' '").await.stdout;
    assert_eq!(environment, "HOME LANG LOGNAME PATH PWD SHELL USER ");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn init_and_monitors_cannot_be_touched() {
    let fixture = Fixture::new();
    let launched = fixture.launch("init").await;
    let control = &launched.control;
    for attempt in [
        "ls /proc/1/root/",
        "cat /proc/1/environ",
        "ls -l /proc/1/fd",
        "cat /proc/1/maps",
        "echo x > /proc/1/mem",
        "cat /proc/$PPID/environ",
        "echo x > /proc/1/oom_score_adj",
    ] {
        refused(control, attempt).await;
    }
    // Signals to init are lost; it answers afterwards.
    sh(control, "kill -9 1; kill -STOP 1; kill -TERM 1").await;
    sh_root(control, "kill -9 1; kill -STOP 1; kill -TERM 1").await;
    control.ping().await.unwrap();
    refused(control, "kill -9 $PPID && sleep 1").await;
    // Descriptors: the three streams and the one `ls` opens.
    assert_eq!(sh(control, "ls /proc/self/fd | tr '\\n' ' '").await.stdout, "0 1 2 3 ");
    let limits = sh(control, "ulimit -c; umask").await.stdout;
    assert_eq!(limits, "0\n0022\n");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn privileges_are_gone_for_good() {
    let fixture = Fixture::new();
    let launched = fixture.launch("privileges").await;
    let control = &launched.control;
    let status = "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | awk '{print $2}' | tr '\\n' ' '";
    let none = "0000000000000000 ".repeat(5);
    for ran in [sh(control, status).await, sh_root(control, status).await] {
        assert_eq!(ran.stdout, format!("{none}1 2 "));
    }
    for attempt in [
        "mount -t tmpfs x /mnt",
        "umount /proc",
        "umount -l /usr",
        "unshare -U true",
        "unshare -r true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "chroot / true",
        "hostname evil",
        "date -s 2001-01-01",
        "mknod /tmp/sda b 8 0",
        "echo evil > /proc/sys/kernel/core_pattern",
        "echo evil > /proc/sys/kernel/hostname",
        "echo b > /proc/sysrq-trigger",
        "dmesg",
        "chown 12 /workspace",
        "cat /proc/kcore | head -c 1",
        "ip link set lo down",
    ] {
        refused(control, attempt).await;
    }
    // A setuid file gains nothing: the tree is nosuid and no_new_privs is set.
    sh_root(control, "cp /usr/bin/id /var/tmp/id; chmod 4755 /var/tmp/id").await;
    assert_eq!(sh(control, "/var/tmp/id -u").await.stdout, "1000\n");
    refused(control, "su -c id root").await;
    fixture.end(&launched).await;
}

/// System calls by number, because no tool makes them.
#[tokio::test]
async fn dangerous_system_calls_are_refused() {
    if !std::path::Path::new("/usr/bin/perl").exists() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let fixture = Fixture::new();
    let launched = fixture.launch("syscalls").await;
    const EPERM: i32 = 1;
    const ENOSYS: i32 = 38;
    const EAFNOSUPPORT: i32 = 97;
    let calls: [(&str, &str, i32); 22] = [
        ("ptrace", "101, 0, 0, 0, 0", EPERM),
        ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0", EPERM),
        ("bpf", "321, 0, 0, 0", EPERM),
        ("perf_event_open", "298, 0, 0, 0, 0, 0", EPERM),
        ("io_uring_setup", "425, 8, 0", EPERM),
        ("keyctl", "250, 0, 0, 0", EPERM),
        ("add_key", "248, 0, 0, 0, 0, 0", EPERM),
        ("userfaultfd", "323, 0", EPERM),
        ("open_by_handle_at", "304, 0, 0, 0", EPERM),
        ("init_module", "175, 0, 0, 0", EPERM),
        ("kexec_load", "246, 0, 0, 0, 0", EPERM),
        ("setns", "308, 0, 0", EPERM),
        ("pivot_root", "155, 0, 0", EPERM),
        ("move_mount", "429, 0, 0, 0, 0, 0", EPERM),
        ("iopl", "172, 3", EPERM),
        ("clone with NEWUSER", "56, 0x10000011, 0, 0, 0, 0", EPERM),
        ("clone with NEWNET", "56, 0x40000011, 0, 0, 0, 0", EPERM),
        ("clone3", "435, 0, 0", ENOSYS),
        ("an unknown call", "999, 0", ENOSYS),
        ("TIOCSTI", "16, 0, 0x5412, 0", EPERM),
        ("a packet socket", "41, 17, 3, 0", EAFNOSUPPORT),
        ("a netlink audit socket", "41, 16, 3, 9", EAFNOSUPPORT),
    ];
    for (name, arguments, expected) in calls {
        let script = format!("my $r = syscall({arguments}); print $r == -1 ? $!+0 : 'done'");
        let ran = run(&launched.control, ExecSpec::new(["perl", "-e", &script])).await;
        assert_eq!(ran.stdout, expected.to_string(), "{name}: {}", ran.stderr);
    }
    fixture.end(&launched).await;
}

#[tokio::test]
async fn sandboxes_and_the_host_do_not_share_sockets_or_memory() {
    use std::os::linux::net::SocketAddrExt as _;
    let fixture = Fixture::new();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(b"sandboxer-escape-test").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let launched = fixture.launch("sockets").await;
    let other = fixture.launch("sockets").await;
    let perl = r#"use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, pack_sockaddr_un("\0sandboxer-escape-test")) or die; print "in""#;
    let ran = run(&launched.control, ExecSpec::new(["perl", "-e", perl])).await;
    assert_eq!(ran.stdout, "");
    refused(&launched.control, &format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo in'")).await;
    refused(&launched.control, "bash -c 'exec 3<>/dev/tcp/1.1.1.1/53 && echo in'").await;
    sh(&launched.control, "echo x > /tmp/mine; echo x > /dev/shm/mine; echo x > /workspace/mine").await;
    assert_eq!(sh(&other.control, "ls /tmp /dev/shm /workspace | grep mine").await.stdout, "");
    fixture.end(&launched).await;
    fixture.end(&other).await;
}

#[tokio::test]
async fn memory_file_systems_and_system_directories_are_bounded_or_closed() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("bounded");
    spec.limits.tmp_mb = Some(4);
    let launched = fixture.runtime.launch(spec).await.unwrap();
    refused(&launched.control, "head -c 8m /dev/zero > /tmp/big && echo fits").await;
    refused(&launched.control, "head -c 100m /dev/zero > /dev/shm/big && echo fits").await;
    let ran = sh(&launched.control, "touch /usr/bin/evil /etc/evil /bin/evil /lib/evil").await;
    assert_ne!(ran.exit.code, 0);
    assert!(!std::path::Path::new("/usr/bin/evil").exists());
    fixture.end(&launched).await;
}
