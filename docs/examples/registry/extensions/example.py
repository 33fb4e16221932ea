"""ext.example: a sandbox is a folder on this machine; commands are ordinary processes that start in it.

It isolates nothing and says so. What it does show is every duty of an extension: one sandbox per tag, an end at the
deadline with nobody there, commands that end with all that they started, files that stay inside, and a clean end.
Only the standard library is used.
"""

import contextlib
import datetime
import fcntl
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from protocol import VERSION, Cancelled, Failure, Server

ROOT = os.path.abspath(os.environ.get("EXAMPLE_ROOT") or os.path.expanduser("~/.local/share/sandboxer-example"))
CAPABILITY = {name: False for name in """exec_tty exec_background exec_user port workspace_access persistence mounts
    egress secrets pause snapshot restore fork gpu only_by_name host_ssh backend_logs image_oci image_rootfs_tar""".split()}
CAPABILITY |= {name: True for name in """exec exec_split_streams exec_stdin files archive extend_ttl idle_reap
    self_hosted host_local image_host""".split()}
CAPABILITY["isolation"] = "network"
# Marks in the environment by which every process of a sandbox or of a command is found, wherever it was forked to.
TAG_MARK, EXEC_MARK = "EXAMPLE_SANDBOX", "EXAMPLE_EXEC"


@contextlib.contextmanager
def locked(tag):
    """One change of a sandbox at a time, whichever process makes it."""
    os.makedirs(os.path.join(ROOT, ".locks"), mode=0o700, exist_ok=True)
    with open(os.path.join(ROOT, ".locks", tag), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def state_of(tag):
    """What is written about a sandbox that is complete, or nothing."""
    try:
        with open(os.path.join(ROOT, tag, "state.json")) as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_state(tag, state):
    with tempfile.NamedTemporaryFile("w", dir=os.path.join(ROOT, tag), delete=False) as file:
        json.dump(state, file)
    os.replace(file.name, os.path.join(ROOT, tag, "state.json"))


def alive(tag):
    state = state_of(tag)
    return state is not None and time.time() < state["deadline"]


def end_note(tag):
    """A file whose time is when a sandbox ended by itself: whoever charges for it wants to know."""
    return os.path.join(ROOT, ".ended", tag)


def life(tag):
    if alive(tag):
        return {"alive": True}
    try:
        at = datetime.datetime.fromtimestamp(os.stat(end_note(tag)).st_mtime, datetime.timezone.utc)
    except FileNotFoundError:
        return {"alive": False}
    return {"alive": False, "ended_at": at.isoformat()}


def seconds(timestamp):
    """RFC 3339 as seconds; its fraction may be finer than Python takes."""
    head, _, fraction = timestamp.rstrip("Z").partition(".")
    whole = datetime.datetime.fromisoformat(head).replace(tzinfo=datetime.timezone.utc).timestamp()
    return whole + float("0." + (fraction or "0"))


def marked(mark, value):
    """The processes that carry a mark."""
    wanted = f"{mark}={value}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    yield int(name)


def kill_marked(mark, value, number=signal.SIGKILL):
    """Signals everything that carries a mark; a KILL is repeated until nothing is left."""
    for _ in range(200):
        found = False
        for pid in marked(mark, value):
            found = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if not found or number != signal.SIGKILL:
            return
        time.sleep(0.02)


def remove(tag):
    """Ends everything of a sandbox and removes its folder. The state goes first: what is half removed is not alive."""
    folder = os.path.join(ROOT, tag)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, "state.json"))
    kill_marked(TAG_MARK, tag)

    def open_up(function, path, _):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        function(path)

    if os.path.isdir(folder):
        shutil.rmtree(folder, onerror=open_up)


def watch(tag):
    """The watcher of one sandbox, a process of its own: it ends the sandbox at its deadline, whoever lives then."""
    while True:
        state = state_of(tag)
        if state is None:
            return
        over = time.time() >= state["deadline"]
        if state["idle"] is not None and not over:
            used = os.stat(os.path.join(ROOT, tag, "used")).st_mtime
            over = time.time() - used > state["idle"] and not any(marked(TAG_MARK, tag))
        if over:
            with locked(tag):
                if state_of(tag) == state:
                    os.makedirs(os.path.dirname(end_note(tag)), mode=0o700, exist_ok=True)
                    open(end_note(tag), "w").close()
                    return remove(tag)
        time.sleep(0.2)


class Example:
    def describe(self, _, protocol):
        return {"protocol": VERSION, "id": "ext.example", "summary": "folders on this machine",
                "capability": CAPABILITY, "pricing": "self-hosted", "configuration": {}}

    def ping(self, _):
        return None

    def check(self, _, host):
        self._local(host)
        os.makedirs(ROOT, mode=0o700, exist_ok=True)
        item = {"name": "folder", "ok": os.access(ROOT, os.W_OK), "required": True, "detail": ROOT}
        return {"ok": item["ok"], "items": [item]}

    # Life and death

    def provision(self, request, tag, host, spec, seed, expires_at, idle_reap_ms, **_):
        self._local(host)
        if spec["image"] != "host":
            raise Failure("unsupported", "ext.example has no images", "use `image: host`")
        folder = os.path.join(ROOT, tag)
        os.makedirs(ROOT, mode=0o700, exist_ok=True)
        with locked(tag):
            if request.cancelled:
                raise Cancelled()
            if state_of(tag) is None:
                # Remains of an attempt that broke off are not trusted.
                remove(tag)
                os.makedirs(os.path.join(folder, "workspace"))
                open(os.path.join(folder, "used"), "w").close()
                if seed:
                    request.event("progress", line="unpacking the workspace")
                    with open(seed, "rb") as file:
                        self._unpack(os.path.join(folder, "workspace"), "", file)
                write_state(tag, {"deadline": seconds(expires_at), "variables": spec["variables"],
                                  "idle": idle_reap_ms and idle_reap_ms / 1000})
                self._spawn_watcher(tag)
        control = {"name": "isolation", "outcome": "missing",
                   "detail": "commands are ordinary processes of this machine's user"}
        return {"tag": tag, "host": host, "effective": "network", "controls": [control], "degraded": False,
                "data": {"workspace": os.path.join(folder, "workspace")}}

    def _spawn_watcher(self, tag):
        # A session of its own: it must outlive this process and its group.
        subprocess.Popen([sys.executable, os.path.abspath(__file__), "watch", tag], start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def wait_ready(self, _, handle):
        workspace = self._workspace(handle)
        subprocess.run(["true"], cwd=workspace, check=True)
        return {"method": "exec", "endpoint": workspace, "probe": "a command ran in the folder"}

    def teardown(self, _, host, tag, handle):
        self._local(host)
        with locked(tag):
            known = os.path.isdir(os.path.join(ROOT, tag))
            remove(tag)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(end_note(tag))
        return {"removed": [f"directory {ROOT}/{tag}"] if known else [], "left": []}

    def list(self, _, host, tag_prefix):
        self._local(host)
        names = os.listdir(ROOT) if os.path.isdir(ROOT) else []
        return [{"tag": name, "alive": alive(name), "parts": [f"directory {ROOT}/{name}"]}
                for name in names if name.startswith(tag_prefix) and not name.startswith(".")]

    def is_alive(self, _, handle):
        return life(handle["tag"])

    def status(self, _, handle):
        tag = handle["tag"]
        return {**life(tag), "detail": {"processes": sum(1 for _ in marked(TAG_MARK, tag))}}

    def extend(self, _, handle, expires_at):
        self._workspace(handle)
        with locked(handle["tag"]):
            write_state(handle["tag"], {**state_of(handle["tag"]), "deadline": seconds(expires_at)})

    # Commands

    def exec(self, request, handle, spec):
        workspace = self._workspace(handle)
        cwd = os.path.join(workspace, spec["cwd"] or ".")
        if not os.path.isdir(cwd):
            raise Failure("not_found", f"there is no folder {cwd}")
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = {**keep, "HOME": workspace, **state_of(handle["tag"])["variables"], **spec["env"],
               TAG_MARK: handle["tag"], EXEC_MARK: spec["exec_id"]}
        try:
            process = subprocess.Popen(
                spec["argv"], cwd=cwd, env=env, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                stdin=subprocess.PIPE if spec["stdin"] else subprocess.DEVNULL)
        except FileNotFoundError:
            request.event("started")
            return {"exit_code": 127}
        except OSError:
            request.event("started")
            return {"exit_code": 126}
        request.process, request.exec_id = process, spec["exec_id"]
        request.on_cancel = lambda: kill_marked(EXEC_MARK, spec["exec_id"])
        request.event("started")
        pumps = [threading.Thread(target=self._pump, args=(request, name, getattr(process, name)), daemon=True)
                 for name in ("stdout", "stderr")]
        for pump in pumps:
            pump.start()
        if spec["stdin"]:
            threading.Thread(target=self._feed, args=(request, process.stdin), daemon=True).start()
        try:
            code, timed_out = process.wait(spec["timeout_ms"] and spec["timeout_ms"] / 1000), False
        except subprocess.TimeoutExpired:
            kill_marked(EXEC_MARK, spec["exec_id"])
            process.wait()
            code, timed_out = 124, True
        for pump in pumps:
            pump.join()
        self._used(handle["tag"])
        outcome = {"exit_code": 128 - code if code < 0 else code, "timed_out": timed_out}
        return {**outcome, "signal": -code} if code < 0 else outcome

    def signal(self, _, request, signal, whole_tree):
        running = self.server.requests.get(request)
        if not hasattr(running, "process"):
            raise Failure("exec_not_found", "the command has ended")
        if whole_tree:
            kill_marked(EXEC_MARK, running.exec_id, signal)
        else:
            running.process.send_signal(signal)

    def _pump(self, request, name, pipe):
        with contextlib.suppress(Cancelled):
            while data := pipe.read1(65536):
                request.write(name, data)

    def _feed(self, request, pipe):
        with contextlib.suppress(Cancelled, BrokenPipeError):
            with pipe:
                while data := request.read():
                    pipe.write(data)
                    pipe.flush()

    # Files

    def file_stat(self, _, handle, path):
        return self._info(self._inside(handle, path, follow=False))

    def file_list(self, _, handle, path):
        with self._typed_errors(path):
            folder = self._inside(handle, path)
            return [self._info(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]

    def file_read(self, request, handle, path):
        with self._typed_errors(path), open(self._inside(handle, path), "rb") as file:
            request.event("started")
            while data := file.read(65536):
                request.write("data", data)

    def file_write(self, request, handle, path, mode):
        with self._typed_errors(path):
            target = self._inside(handle, path, follow=False)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._replace(target, mode, request.read)

    def _replace(self, target, mode, read):
        """A new file takes the place of the old one when it is complete."""
        staging = tempfile.mkstemp(dir=os.path.join(ROOT, os.path.relpath(target, ROOT).split(os.sep)[0]))
        try:
            with os.fdopen(staging[0], "wb") as file:
                while data := read():
                    file.write(data)
                os.fchmod(file.fileno(), mode)
            os.replace(staging[1], target)
        except BaseException:
            os.unlink(staging[1])
            raise

    def file_delete(self, _, handle, path, recursive):
        with self._typed_errors(path):
            target = self._inside(handle, path, follow=False)
            if os.path.isdir(target) and not os.path.islink(target):
                shutil.rmtree(target) if recursive else os.rmdir(target)
            else:
                os.unlink(target)

    def file_mkdir(self, _, handle, path):
        with self._typed_errors(path):
            os.makedirs(self._inside(handle, path), exist_ok=True)

    def file_rename(self, _, handle, **params):
        with self._typed_errors(params["from"]):
            source = self._inside(handle, params["from"], follow=False)
            target = self._inside(handle, params["to"], follow=False)
            os.lstat(source)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)

    # Archives

    def archive_get(self, request, handle, path):
        with self._typed_errors(path):
            source = self._inside(handle, path)
            os.stat(source)
            request.event("started")
            with tarfile.open(fileobj=Pipe(write=lambda data: request.write("data", data)), mode="w|") as tar:
                tar.add(source, arcname=".")

    def archive_put(self, request, handle, path):
        with self._typed_errors(path):
            self._unpack(self._workspace(handle), path, Pipe(read=request.read))

    def _unpack(self, workspace, path, file):
        """Files, folders and links, each below the target; anything else is refused."""
        top = self._resolve(workspace, path or ".")
        os.makedirs(top, exist_ok=True)
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                target = self._resolve(top, member.name, follow=False)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if member.isdir():
                    os.makedirs(target, exist_ok=True)
                elif member.isfile():
                    data = tar.extractfile(member)
                    self._replace(target, member.mode & 0o777, lambda: data.read(65536))
                elif member.issym():
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(target)
                    os.symlink(member.linkname, target)
                else:
                    raise Failure("invalid_input", f"{member.name} is neither a file, a folder nor a link")

    # What the rest uses

    def _local(self, host):
        if host != "local":
            raise Failure("host_not_found", f"ext.example works on this machine only, not on {host}")

    def _used(self, tag):
        with contextlib.suppress(FileNotFoundError):
            os.utime(os.path.join(ROOT, tag, "used"))

    def _workspace(self, handle):
        if not alive(handle["tag"]):
            raise Failure("sandbox_not_found", f"sandbox {handle['tag']} is not running")
        self._used(handle["tag"])
        return os.path.join(os.path.realpath(ROOT), handle["tag"], "workspace")

    def _inside(self, handle, path, follow=True):
        return self._resolve(self._workspace(handle), path, follow)

    def _resolve(self, top, path, follow=True):
        """The real place of a path, which must be below `top`; without `follow` the last link is itself meant."""
        path = os.path.normpath(os.path.join(top, path))
        if not follow and path != top:
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        else:
            path = os.path.realpath(path)
        if path != top and not path.startswith(top + os.sep):
            raise Failure("denied", "the path leads out of the sandbox")
        return path

    @contextlib.contextmanager
    def _typed_errors(self, path):
        try:
            yield
        except FileNotFoundError:
            raise Failure("not_found", f"there is no {path!r}") from None
        except (NotADirectoryError, IsADirectoryError, tarfile.TarError) as error:
            raise Failure("invalid_input", f"{path!r}: {error}") from None
        except PermissionError as error:
            raise Failure("denied", f"{path!r}: {error}") from None

    def _info(self, path):
        with self._typed_errors(os.path.basename(path)):
            about = os.lstat(path)
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
        kind = kinds.get(stat.S_IFMT(about.st_mode), "other")
        modified = datetime.datetime.fromtimestamp(about.st_mtime, datetime.timezone.utc)
        return {"name": os.path.basename(path), "path": path, "kind": kind, "size": about.st_size,
                "mode": f"{stat.S_IMODE(about.st_mode):04o}", "uid": about.st_uid, "gid": about.st_gid,
                "modified_at": modified.strftime("%Y-%m-%dT%H:%M:%SZ"),
                **({"link_target": os.readlink(path)} if kind == "symlink" else {})}


class Pipe(io.RawIOBase):
    """A request's stream as the file that `tarfile` wants."""

    def __init__(self, read=None, write=None):
        self.take, self.give, self.rest = read, write, b""

    def read(self, size=-1):
        while len(self.rest) < size:
            piece = self.take()
            if not piece:
                break
            self.rest += piece
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def write(self, data):
        self.give(data)
        return len(data)


if __name__ == "__main__":
    if sys.argv[1:2] == ["watch"]:
        watch(sys.argv[2])
    else:
        server = Server(Example())
        server.backend.server = server
        server.serve()
