#!/usr/bin/env python3
"""sauropod launch with programs that only pretend to train: what ranks are told, what becomes of them when one dies, stops
or hangs, when the launcher dies, and what is said about it.

    launch_test.py SAUROPOD [CHECK…]      in an empty folder

Most of the time is spent waiting, so each check runs in a process of its own, four at a time.
"""
import atexit
import concurrent.futures
import fcntl
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

program = str(pathlib.Path(sys.argv[1]).resolve())
probe = str(pathlib.Path(program).parent / "tests" / "rank_probe")
checks = sys.argv[2:]
folder = pathlib.Path("work", *checks[:1]).resolve()
LIMIT = 180  # seconds for one launch, on a machine that does much else


def script(name, text):
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def clean_environment(**more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "SAUROPOD_"))}
    return {**environment, "SAUROPOD_LOG": "info", **{k: str(v) for k, v in more.items()}}


class Launch:
    """A running launcher."""

    def __init__(self, *arguments, environment=None, **options):
        self.errors = open(folder / "stderr", "w+b")
        self.process = subprocess.Popen([program, "launch", *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=options.pop("stderr", self.errors), stdin=subprocess.DEVNULL,
                                        env=environment or clean_environment(), **options)
        atexit.register(self.process.kill)  # after a failure; its ranks end with it

    def stderr(self):
        return (folder / "stderr").read_text(errors="replace")

    def wait_until(self, condition, what):
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, f"no {what} in {LIMIT} s: {self.stderr()}"
            assert self.process.poll() is None or condition(), f"ended before {what}: {self.stderr()}"
            time.sleep(0.02)

    def wait_for_files(self, *names):
        self.wait_until(lambda: all((folder / n).exists() and (folder / n).read_text().endswith("\n") for n in names),
                        f"files {names}")
        return [[int(word) for word in (folder / n).read_text().split()] for n in names]

    def end(self, expect, says=()):
        try:
            self.stdout = self.process.communicate(timeout=LIMIT)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the launcher did not end: {self.stderr()}")
        errors = self.stderr()
        assert self.process.returncode == expect, f"exit code {self.process.returncode}, not {expect}: {errors}"
        for part in says:
            assert part in errors, f"{part!r} is not in: {errors}"
        return errors


def launch(*arguments, expect=0, says=(), **options):
    running = Launch(*arguments, **options)
    errors = running.end(expect, says)
    return running.stdout, errors


def running(process):
    """Whether a process is there and is no zombie."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def expect_gone(processes, seconds=20):
    end = time.monotonic() + seconds
    while left := [process for process in processes if running(process)]:
        assert time.monotonic() < end, f"processes still there: {left}"
        time.sleep(0.02)


def forget(*names):
    for name in names:
        (folder / name).unlink(missing_ok=True)


# A rank and what it started; both numbers go into a file.
FAMILY = f"""sleep 1000 & echo "$$ $!" > {folder}/family.$SAUROPOD_RANK
"""


def family(launcher, count):
    numbers = launcher.wait_for_files(*[f"family.{rank}" for rank in range(count)])
    forget(*[f"family.{rank}" for rank in range(count)])
    return sum(numbers, [])


def check_environment():
    show = script("show", 'echo "plain $SAUROPOD_RANK"; env | grep -E "^(SAUROPOD|OMP|X)_" >&2\n'
                          'echo "group $(ps -o pgid= -p $$) $$" >&2; echo "arguments $*" >&2; printf "no end" >&2\n')
    stdout, errors = launch("-n", 3, "--env", "X_ONE=a b", "--env", "X_TWO", "--log-dir", folder / "logs", "--program",
                            show, "--", "--flag", "two words", environment=clean_environment(X_TWO="from here"))
    assert stdout == "plain 0\n", stdout  # so that --json can be piped on
    processors = len(os.sched_getaffinity(0))
    for rank in range(3):
        lines = [line[4:] for line in errors.splitlines() if line.startswith(f"[{rank}] ")]
        seen = dict(line.split("=", 1) for line in lines if "=" in line)
        expected = {"SAUROPOD_RANK": rank, "SAUROPOD_LOCAL_RANK": rank, "SAUROPOD_WORLD_SIZE": 3,
                    "SAUROPOD_LOCAL_SIZE": 3, "SAUROPOD_ATTEMPT": 0, "OMP_NUM_THREADS": max(1, processors // 3),
                    "X_ONE": "a b", "X_TWO": "from here"}
        for name, value in expected.items():
            assert seen.get(name) == str(value), f"rank {rank}: {name} is {seen.get(name)}, not {value}"
        assert re.fullmatch(r"127\.0\.0\.1:\d+", seen["SAUROPOD_STORE"]), seen
        assert "SAUROPOD_SUPERVISOR" not in seen
        recorder = pathlib.Path(seen["SAUROPOD_FLIGHT_RECORDER"])
        assert recorder.name == f"{rank}.flight" and not recorder.parent.exists(), recorder
        assert f"arguments --flag two words" in lines and "no end" in lines, lines
        group, process = next(line.split()[1:] for line in lines if line.startswith("group"))
        assert group == process, "ranks have process groups of their own"
        log = (folder / f"logs/{rank}.log").read_text()
        assert f"plain {rank}\n" in log and log.endswith("no end"), log
    assert "[1] plain 1" in errors
    _, errors = launch("-n", 2, "--program", show, "--", environment=clean_environment(OMP_NUM_THREADS=7))
    assert errors.count("OMP_NUM_THREADS=7") == 2, errors
    # A command of this program, and nothing else, without --program.
    stdout, errors = launch("-n", 2, "--", "config", "show", "--json", "/no/such.toml", expect=1,
                            says=["] sauropod: cannot open /no/such.toml", "exited with code 1"])


def check_pins():
    affinity = script("affinity", 'echo "cpus $(taskset -cp $$ | sed "s/.*: //") threads $OMP_NUM_THREADS" >&2\n')
    processors = len(os.sched_getaffinity(0))
    if processors >= 2 and shutil.which("taskset"):
        _, errors = launch("-n", 2, "--pin", "--program", affinity, "--")
        sets = re.findall(r"cpus (\S+) threads (\d+)", errors)
        assert len(sets) == 2 and sets[0][0] != sets[1][0], errors
        assert int(sets[0][1]) == (processors + 1) // 2, errors
    launch("-n", processors + 1, "--pin", "--program", affinity, "--", expect=2,
           says=[f"{processors + 1} ranks on this host have {processors}"])


def check_deaths():
    dies = script("dies", FAMILY + """
if [ $SAUROPOD_RANK = 1 ]; then
  while [ ! -e {0}/go ]; do sleep 0.02; done
  echo "the tank is empty" >&2; $1
fi
[ "$2" = deaf ] && trap '' TERM
touch {0}/deaf.$SAUROPOD_RANK
while :; do sleep 0.1; done
""".format(folder))
    for action, code, text in [("exit 3", 3, "exited with code 3"), ("kill -9 $$", 137, "was killed by SIGKILL"),
                               ("kill -SEGV $$", 139, "was killed by SIGSEGV")]:
        forget("go")
        # "$1" is split into words, not parsed: $$ has to be told apart
        dying = Launch("-n", 3, "--program", "/bin/sh", "--", "-c",
                       pathlib.Path(dies).read_text().replace("$1", action).replace('"$2"', '""'))
        members = family(dying, 3)
        (folder / "go").touch()
        errors = dying.end(code, [text, "its last words:\n    the tank is empty",
                                  "ranks 0, 2: was ended by the launcher (SIGTERM)", "ending the 2 of 3 ranks that are left"])
        assert errors.count("its last words") == 1 and "rank 1 (" in errors
        expect_gone(members, 0.5)
    forget("go", "deaf.0", "deaf.2")
    deaf = Launch("-n", 3, "--grace", "1s", "--program", "/bin/sh", "--", "-c",
                  pathlib.Path(dies).read_text().replace("$1", "exit 3").replace('"$2"', "deaf"))
    members = family(deaf, 3)
    deaf.wait_until(lambda: (folder / "deaf.0").exists() and (folder / "deaf.2").exists(), "deaf ranks")
    (folder / "go").touch()
    deaf.end(3, ["did not end within 1 s of SIGTERM: killing it", "ranks 0, 2: was ended by the launcher (SIGKILL)"])
    expect_gone(members, 0.5)
    # 2 is wrong use; the first to die is to blame, whatever the others say when they are ended.
    forget("rude.1")
    rude = script("rude", 'trap "exit 9" TERM; touch $0.$SAUROPOD_RANK\n'
                          'while :; do sleep 0.1; [ $SAUROPOD_RANK = 0 ] && [ -e $0.1 ] && exit 2; done')
    launch("-n", 2, "--max-restarts", 3, "--program", rude, "--", expect=2, says=["rank 0 (", "rank 1: exited with code 9"])


def check_unkillable():
    """A process that is being traced cannot be waited for by its parent: like one that doesn't end."""
    forget("tracer")
    traced = folder / "traced.py"
    traced.write_text(f"""
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, ctypes.c_ulong(-1 & 0xffffffffffffffff), 0, 0, 0)  # PR_SET_PTRACER, any
me = os.getpid()
if os.environ["SAUROPOD_RANK"] == "1":
    while not os.path.exists({str(folder / 'tracer')!r}): time.sleep(0.02)
    sys.exit(5)
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    traced = libc.ptrace(0x4206, me, None, None) == 0  # PTRACE_SEIZE
    open({str(folder / 'tracer.new')!r}, "w").write(f"{{os.getpid()}} {{int(traced)}}\\n")
    os.rename({str(folder / 'tracer.new')!r}, {str(folder / 'tracer')!r})
time.sleep(1000)
""")
    stuck = Launch("-n", 2, "--grace", "0s", "--program", sys.executable, "--", traced)
    (tracer, traces), = stuck.wait_for_files("tracer")
    try:
        if traces:
            stuck.end(5, ["does not end even by SIGKILL (state Z (zombie))", "rank 0: does not end, even by SIGKILL",
                          "rank 1 (", "exited with code 5"])
        else:
            print("launch: ptrace isn't allowed here: a process that doesn't end is not tried")
            stuck.end(5)
    finally:
        os.kill(tracer, signal.SIGKILL)


def children(process):
    text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def check_dead_launcher():
    waits = script("waits", "trap '' TERM HUP INT\n" + FAMILY + "while :; do sleep 0.1; done\n")
    for victim in ("launcher", "agent"):
        launcher = Launch("-n", 2, "--program", waits, "--")
        members = family(launcher, 2)
        agent, = children(launcher.process.pid)
        os.kill(launcher.process.pid if victim == "launcher" else agent, signal.SIGKILL)
        if victim == "launcher":
            launcher.process.wait()
            expect_gone(members + [agent])
        else:
            launcher.end(1, ["the agent was killed by SIGKILL", "is lost, with rank 0"])
            expect_gone(members[::2])  # the ranks; what they started is beyond reach
            for process in members[1::2]:
                os.kill(process, signal.SIGKILL)


def check_restarts():
    fails = script("fails", """
echo "attempt $SAUROPOD_ATTEMPT: $*" >&2
touch $0.$SAUROPOD_RANK
while [ $SAUROPOD_RANK$SAUROPOD_ATTEMPT = 10 ]; do [ -e $0.0 ] && sleep 0.1 && exit 7; done
[ $SAUROPOD_ATTEMPT -gt 0 ] && exit 0
while :; do sleep 0.1; done
""")
    launch("-n", 2, "--max-restarts", 1, "--log-dir", folder / "logs", "--program", fails, "--", "train", "recipe",
           says=["[0] attempt 0: train recipe\n", "[0] attempt 1: train recipe --resume\n", "exited with code 7",
                 "starting all ranks again in 1 s, restart 1 of 1: with --resume, from the newest intact checkpoint"])
    assert (folder / "logs/1.log").read_text() == ("attempt 0: train recipe\n---- attempt 1 ----\n"
                                                   "attempt 1: train recipe --resume\n")
    always = script("always", f'echo x >> {folder}/count; exit ${{1}}')
    for code, starts in ((4, 2), (2, 1)):  # wrong use stays wrong
        forget("count")
        launch("-n", 1, "--max-restarts", 1, "--program", always, "--", code, expect=code)
        assert (folder / "count").read_text() == "x\n" * starts, code


def make_ssh():
    """What behaves like ssh, for any host but one."""
    return script("ssh", """
host=$1; shift
case $host in
  nowhere) echo "ssh: Could not resolve hostname nowhere" >&2; exit 255;;
  motd) echo "Welcome to motd";;
esac
echo "$$" > {0}/ssh.$host
cd /; exec sh -c "exec $*"
""".format(folder))


def check_hosts():
    ssh = make_ssh()
    show = script("place", 'echo "$SAUROPOD_RANK on $SAUROPOD_HOST, $SAUROPOD_LOCAL_RANK of $SAUROPOD_LOCAL_SIZE in $PWD" >&2\n'
                           'echo "store $SAUROPOD_STORE" >&2\n')
    _, errors = launch("--hosts", "a:2,motd:1", "--ssh", ssh, "--address", "10.1.2.3", "--program", show, "--")
    for text in ("0 on a, 0 of 2", "1 on a, 1 of 2", "2 on motd, 0 of 1"):
        assert f"{text} in {os.getcwd()}" in errors, errors
    assert errors.count("store 10.1.2.3:") == 3, errors
    (folder / "hosts").write_text("a slots=1\nb slots=1 # the other\n")
    launch("--hostfile", folder / "hosts", "--ssh", ssh, "--program", show, "--", says=["1 on b, 0 of 1"])
    launch("--hosts", "a,nowhere", "-n", 2, "--ssh", ssh, "--program", show, "--", expect=1,
           says=["host nowhere:", "exited with code 255", "Could not resolve hostname nowhere", "without a password"])
    launch("--hosts", "a", "-n", 1, "--ssh", ssh, "--remote-binary", "/not/there", "--program", show, "--", expect=1,
           says=["host a:", "exited with code 127", "Is /not/there on that host? --remote-binary"])
    launch("--hosts", "a", "-n", 1, "--ssh", "no-such-ssh", "--program", show, "--", expect=1, says=["no-such-ssh"])
    launch("--hosts", "a,b", "-n", 2, "--ssh", ssh, "--program", "/no/such/program", "--", expect=1,
           says=[": start /no/such/program: No such file"])
    launch("--hosts", "a:2,b:2", "-n", 5, "--program", show, "--", expect=2, says=["5 ranks, and the hosts have 4 slots"])
    # One host is lost: its ranks end there, the others are ended here.
    waits = script("waits", FAMILY + "while :; do sleep 0.1; done\n")
    lost = Launch("--hosts", "a,b", "-n", 4, "--ssh", ssh, "--program", waits, "--")
    members = family(lost, 4)
    os.kill(int((folder / "ssh.b").read_text()), signal.SIGKILL)
    lost.end(1, ["host b: ", "was killed by SIGKILL", "host b is lost, with rank 2", "ranks 0, 1: was ended by the launcher",
                 "rank 3: was on a host that is lost"])
    expect_gone(members[:4] + members[4::2])
    for process in members[5::2]:
        os.kill(process, signal.SIGKILL)


def check_ctrl_c():
    saves = script("saves", "trap 'sleep 0.3; echo saved >&2; exit 0' TERM\n" + FAMILY + "while :; do sleep 0.05; done\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        stopping = Launch("-n", 2, "--program", saves, "--")
        members = family(stopping, 2)
        stopping.process.send_signal(number)
        errors = stopping.end(0, [number.name, "[0] saved", "[1] saved"])
        assert "last words" not in errors
        expect_gone(members, 0.5)
    deaf = Launch("-n", 2, "--program", script("deaf", "trap '' TERM\n" + FAMILY + "while :; do sleep 0.05; done"), "--")
    members = family(deaf, 2)
    deaf.process.send_signal(signal.SIGINT)
    deaf.wait_until(lambda: "Ctrl-C again kills them" in deaf.stderr(), "an answer")
    assert all(running(member) for member in members[::2])
    deaf.process.send_signal(signal.SIGINT)
    deaf.end(130, ["killing the ranks"])
    expect_gone(members, 0.5)
    plain = Launch("-n", 2, "--program", script("plain", FAMILY + "wait"), "--")
    members = family(plain, 2)
    plain.process.send_signal(signal.SIGTERM)
    errors = plain.end(143)
    assert "last words" not in errors, errors


def check_terminal():
    """On a terminal rank 0 has one of its own, and its bar stays below the lines of all ranks."""
    shows = script("shows", """
if [ $SAUROPOD_RANK = 1 ]; then
  test -t 2 && echo "a terminal" >&2
  while [ ! -e {0}/bar ]; do sleep 0.02; done
  echo "line of rank 1" >&2
else
  test -t 2 && echo "columns $(stty size <&2)" >&2
  printf 'Training 10%%' >&2
  while [ ! -e {0}/end ]; do sleep 0.02; done
  printf '\\r\\033[JTraining 20%%\\n' >&2
  echo result
fi
""".format(folder))
    forget("bar", "end")
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 66, 0, 0))
    shown = Launch("-n", 2, "--program", shows, "--", stderr=slave)
    os.close(slave)
    text = b""

    def until(part):
        nonlocal text
        end = time.monotonic() + LIMIT
        while part not in text:
            assert time.monotonic() < end, text
            if select.select([master], [], [], 0.2)[0]:
                text += os.read(master, 4096)

    until(b"Training 10%")
    (folder / "bar").touch()
    until(b"\r\x1b[J[1] line of rank 1\r\nTraining 10%")
    (folder / "end").touch()
    until(b"[0] Training 20%")
    shown.end(0)
    os.close(master)
    assert b"[0] columns 24 66" in text and b"a terminal" not in text and shown.stdout == "result\n", text


def check_stop():
    stops = script("stops", "[ $SAUROPOD_RANK = 1 ] && kill -STOP $$ && sleep 0.5; exit 0")
    stopped = Launch("-n", 2, "--program", stops, "--")
    stopped.wait_until(lambda: "is stopped by a signal" in stopped.stderr(), "word of the stop")
    process = int(re.search(r"rank 1 \(\S+, process (\d+)\) is stopped", stopped.stderr()).group(1))
    os.kill(process, signal.SIGCONT)
    stopped.end(0, ["goes on"])


def check_ranks_that_talk():
    """Real ranks, whose flight recorders tell who is to blame."""
    launch("-n", 2, "--program", probe, "--", "well")
    last = "its last known call there was all-reduce 'step' #5 of group all"
    errors = launch("-n", 3, "--program", probe, "--", "killed", 1, expect=137, says=["was killed by SIGKILL"])[1]
    assert re.search("flight recorder: rank 1 .*" + re.escape(last), errors), errors
    launch("-n", 3, "--program", probe, "--", "failed", 2, expect=1,
           says=["rank 2 (", "failed: the disk of this rank is full", "rank_probe: the disk of this rank is full"])
    # The victims die first; what the launcher says before the time-out is over is on top.
    errors = launch("-n", 3, "--grace", "1s", "--program", probe, "--", "stopped", 1, 6, expect=1)[1]
    for text in ("ranks wait for one another: rank 1 (", "rank 1 (", " is stopped;", last, "holds up the others",
                 "flight recorder: rank 1 ("):
        assert text in errors, f"{text!r} is not in: {errors}"
    launch("-n", 2, "--grace", "1s", "--program", probe, "--", "hung", 0, 6, expect=1,
           says=["rank 0 (", "holds up the others", "flight recorder: rank 0 (", " is late", last])
    launch("--hosts", "a,b", "-n", 2, "--ssh", make_ssh(), "--address", "127.0.0.1", "--program", probe, "--",
           "killed", 1, expect=137, says=["rank 1 (b, process", last])


def check_wrong_use():
    for arguments, says in [(("-n", 0, "--", "train"), "--ranks: Value 0"), (("--", "train", "r"), "how many ranks?"),
                            (("-n", 1, "--", "tarin", "r"), "'tarin' is no command"),
                            (("-n", 1, "--", "launch"), "'launch' is no command"),
                            (("-n", 1), "command"), (("-n", 1, "--grace", "soon", "--", "train"), "--grace"),
                            (("--hosts", "a,a", "-n", 2, "--", "train"), "named twice"),
                            (("--hosts", "a", "--hostfile", "f", "--", "train"), "give one of the two"),
                            (("--hostfile", "/no/such/file", "--", "train"), "/no/such/file")]:
        code = 1 if "/no/such/file" in arguments else 2
        launch(*arguments, expect=code, says=[says])


CHECKS = (check_ranks_that_talk, check_deaths, check_unkillable, check_hosts, check_environment, check_restarts,
          check_ctrl_c, check_dead_launcher, check_pins, check_terminal, check_stop, check_wrong_use)


def run_here(names):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for check in CHECKS:
        if check.__name__ in names:
            began = time.monotonic()
            check()
            print(f"launch: {check.__name__} holds ({time.monotonic() - began:.1f} s)", flush=True)


def run_in_process(check):
    return subprocess.run([sys.executable, __file__, program, check.__name__], timeout=600).returncode


if __name__ == "__main__":
    if checks:
        run_here(checks)
    else:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            sys.exit(any(list(pool.map(run_in_process, CHECKS))))
