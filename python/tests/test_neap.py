"""Tests of the installed package neap-malloc: ci/packages/wheel-test.sh runs them.

They import nothing of the project, so that what is tested is what pip installed.
"""

import gzip
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import neap

HAS_COMMAND = os.environ.get("WHEEL_UNDER_TEST", "command") == "command"
# No test waits so long unless something hangs. An emulated profile takes minutes.
PATIENCE = 600


def run(*words, code=None, **variables):
    """Runs `python -m neap WORDS`; `code` becomes the program behind them."""
    words = [sys.executable, "-m", "neap", *words]
    if code is not None:
        words += ["-c", textwrap.dedent(code)]
    return subprocess.run(
        words,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def only_with_command(test):
    return unittest.skipUnless(HAS_COMMAND, "this wheel has no command")(test)


class Outside(unittest.TestCase):
    """A process that does not run under Neap."""

    def test_says_how_to_start(self):
        self.assertFalse(neap.is_active())
        for call in neap.version, neap.stats, neap.purge, lambda: neap.profile("never.pb.gz"):
            with self.assertRaisesRegex(neap.NotUnderNeap, "python -m neap run app.py"):
                call()
        self.assertFalse(Path("never.pb.gz").exists())

    def test_files(self):
        self.assertTrue(neap.library().is_file())
        self.assertEqual(neap.command() is not None, HAS_COMMAND)

    def test_usage(self):
        for words in (), ("--help",), ("run", "--help"):
            self.assertIn("python -m neap run", run(*words).stdout)
        self.assertIn("nothing to run", run("run").stderr)
        ended = run("run", "--limit=1G", "app.py")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("write two dashes between", ended.stderr)


class Inside(unittest.TestCase):
    """Programs under Neap."""

    def passes(self, ended):
        self.assertEqual(ended.stderr, "")
        self.assertEqual(ended.returncode, 0)
        return ended.stdout

    def test_figures_follow_the_program(self):
        for variables in {}, {"PYTHONMALLOC": "malloc"}:
            with self.subTest(**variables):
                self.passes(
                    run(
                        "run",
                        code="""
                    import neap, os
                    assert neap.is_active() and neap.version()[0].isdigit()
                    before = neap.stats()
                    rows = [bytes(1000) for _ in range(50_000)]
                    full = neap.stats()
                    assert full.live >= before.live + 50_000_000, (before, full)
                    assert full.live + full.free == full.committed, full
                    assert full.resident >= full.live / 2, full
                    block = bytearray(100_000_000)
                    large = neap.stats()
                    assert large.large_blocks > full.large_blocks, (full, large)
                    assert large.large >= full.large + 100_000_000, (full, large)
                    del rows, block
                    neap.purge()
                    after = neap.stats()
                    assert after.live <= full.live - 50_000_000, (full, after)
                    assert after.dirty <= 4 << 20, after
                    assert after.resident <= full.resident - 40_000_000, (full, after)
                """,
                        **variables,
                    )
                )

    def test_small_objects_with_and_without_pythonmalloc(self):
        code = """
            import neap
            before = neap.stats().live
            rows = [object() for _ in range(100_000)]
            print(neap.stats().live - before - rows.__sizeof__())
        """
        arenas = int(self.passes(run("run", code=code)))
        blocks = int(self.passes(run("run", code=code, PYTHONMALLOC="malloc")))
        self.assertGreaterEqual(blocks, 1_600_000)
        self.assertLess(arenas, blocks / 2)

    def test_a_program_keeps_its_words_its_status_and_its_process(self):
        with tempfile.TemporaryDirectory() as room:
            app = Path(room, "app.py")
            app.write_text(
                "import os, sys, neap\n"
                "print(sys.argv[1:], os.getpid(), neap.is_active())\n"
                "sys.exit(3)\n"
            )
            started = subprocess.Popen(
                [sys.executable, "-m", "neap", "run", str(app), "--limit", "--", "-m"],
                stdout=subprocess.PIPE,
                text=True,
            )
            output, _ = started.communicate(timeout=PATIENCE)
            self.assertEqual(output, f"['--limit', '--', '-m'] {started.pid} True\n")
            self.assertEqual(started.returncode, 3)
        self.passes(run("run", "-m", "timeit", "-n1", "-r1", "pass"))

    def test_children_and_forks(self):
        # From Python 3.12 on, a fork beside another thread warns, and the purge thread is one.
        for variables in (
            {"NEAP_PURGE_THREAD": "never"},
            {"PYTHONWARNINGS": "ignore::DeprecationWarning"},
        ):
            with self.subTest(**variables):
                self.passes(
                    run(
                        "run",
                        code="""
                    import multiprocessing, os, subprocess, sys, neap
                    rows = [bytes(1000) for _ in range(10_000)]
                    subprocess.run([sys.executable, "-c", "import neap; neap.stats()"], check=True)
                    if not (child := os.fork()):
                        more = [bytes(1000) for _ in range(10_000)]
                        os._exit(neap.stats().live < 20_000_000)
                    assert os.waitpid(child, 0)[1] == 0
                    with multiprocessing.Pool(2) as pool:
                        assert pool.map(len, [rows[:7], rows[:8]]) == [7, 8]
                """,
                        **variables,
                    )
                )

    def test_profile(self):
        program = """
            import neap, sys, threading
            rows = [bytearray(100_000) for _ in range(200)]
            try:
                neap.profile(*eval(sys.argv[1]))
            except neap.NeapError as error:
                print(error)
        """
        with tempfile.TemporaryDirectory() as room:
            file = Path(room, "app.pb.gz")
            if not HAS_COMMAND:
                ended = run("run", "-c", textwrap.dedent(program), repr([str(file)]))
                self.assertIn("this package has no command neap", self.passes(ended))
                return
            ended = run("run", "-c", textwrap.dedent(program), repr([str(file)]))
            self.assertIn("python -m neap run --sample=512K", self.passes(ended))
            self.assertFalse(file.exists())
            ended = run(
                "run", "--sample=64K", "--", "-c", textwrap.dedent(program), repr([str(file)])
            )
            self.assertEqual(self.passes(ended), "")
            self.assertIn(b"<module>", gzip.decompress(file.read_bytes()))
            ended = run("run", "-c", textwrap.dedent(program), repr(["/no/such/file", 0.2]))
            self.assertIn("/no/such/file", self.passes(ended))

    @only_with_command
    def test_profile_of_a_time(self):
        with tempfile.TemporaryDirectory() as room:
            self.passes(
                run(
                    "run",
                    "-c",
                    textwrap.dedent("""
                import neap, sys, threading
                done = threading.Event()
                def work():
                    while not done.is_set():
                        bytearray(3_000_000)
                thread = threading.Thread(target=work)
                thread.start()
                neap.profile(sys.argv[1], seconds=0.5)
                done.set()
                thread.join()
                for seconds in 0, -1, 3601:
                    try:
                        neap.profile(sys.argv[1], seconds=seconds)
                    except ValueError:
                        continue
                    raise AssertionError(seconds)
            """),
                    f"{room}/time.pb.gz",
                )
            )
            self.assertIn(b"work", gzip.decompress(Path(room, "time.pb.gz").read_bytes()))

    @only_with_command
    def test_command(self):
        ours = Path(sys.executable).parent / "neap"
        said = subprocess.run([ours, "--version"], stdout=subprocess.PIPE, text=True, check=True)
        self.assertRegex(said.stdout, r"^neap \d")
        self.assertEqual(run("--version").stdout, said.stdout)
        self.assertEqual(self.passes(run("env")), f"ENV LD_PRELOAD={neap.library()}\n")
        self.assertIn(
            "This program can run under Neap.", run("doctor", "--", sys.executable).stdout
        )
        ended = run("run", "--limit=64M", "--", "-c", "bytes(100_000_000)")
        self.assertIn("MemoryError", ended.stderr)

    @unittest.skipIf(HAS_COMMAND, "this wheel has the command")
    def test_without_the_command(self):
        self.assertIn("needs glibc", run("stat", "1").stderr)
        self.assertIn("NEAP_LIMIT=1G", run("run", "--limit=64M", "--", "-c", "").stderr)
        ended = run("run", "-c", "bytes(100_000_000)", NEAP_LIMIT="64M")
        self.assertIn("MemoryError", ended.stderr)


APP = """
import json, os, neap

def app(environ, start_response):
    rows = [bytes(1000) for _ in range(20_000)]
    full = neap.stats().live
    del rows
    neap.purge()
    start_response("200 OK", [("Content-Type", "application/json")])
    figures = {"pid": os.getpid(), "full": full, "live": neap.stats().live}
    return [json.dumps(figures).encode()]
"""


class OverUnix(http.client.HTTPConnection):
    """HTTP over a Unix socket, whose path is the host."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


def listens(path):
    """Whether a server accepts connections at this Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


@unittest.skipUnless(importlib.util.find_spec("gunicorn"), "gunicorn is not installed")
class Gunicorn(unittest.TestCase):
    """A server with two workers, which its first process forks."""

    def serve(self, **variables):
        with tempfile.TemporaryDirectory() as room:
            Path(room, "served.py").write_text(APP)
            path = f"{room}/socket"
            log = open(f"{room}/log", "w+")
            server = subprocess.Popen(
                [sys.executable, "-m", "neap", "run", "-m", "gunicorn", "--workers", "2"]
                + ["--bind", f"unix:{path}", "--chdir", room, "served:app"],
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
            )
            try:
                deadline = time.monotonic() + PATIENCE
                while not listens(path):
                    self.assertIsNone(server.poll(), Path(room, "log").read_text())
                    self.assertLess(time.monotonic(), deadline, Path(room, "log").read_text())
                    time.sleep(0.05)
                for _ in range(20):
                    client = OverUnix(path)
                    client.request("GET", "/")
                    answer = client.getresponse()
                    figures = json.loads(answer.read())
                    client.close()
                    self.assertEqual(answer.status, 200)
                    self.assertGreaterEqual(figures["full"], 20_000_000)
                    self.assertLess(figures["live"], figures["full"] - 19_000_000)
                    self.assertNotEqual(figures["pid"], server.pid)
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(PATIENCE), 0)
            finally:
                server.kill()
                server.wait()
                log.close()

    def test_pymalloc(self):
        self.serve()

    def test_malloc(self):
        self.serve(PYTHONMALLOC="malloc")


@unittest.skipUnless(importlib.util.find_spec("ipykernel"), "ipykernel is not installed")
class Notebook(unittest.TestCase):
    """A notebook's kernel, started as python/README.md says."""

    def test_kernel(self):
        from jupyter_client.manager import KernelManager

        for variables in {}, {"PYTHONMALLOC": "malloc"}:
            with self.subTest(**variables):
                manager = KernelManager()
                words = "-m neap run -m ipykernel_launcher -f {connection_file}"
                manager.kernel_spec.argv[:] = [sys.executable, *words.split()]
                manager.start_kernel(env={**os.environ, **variables})
                client = manager.client()
                try:
                    client.start_channels()
                    client.wait_for_ready(timeout=PATIENCE)
                    said = []
                    reply = client.execute_interactive(
                        "import neap\nrows = [bytes(1000) for _ in range(50_000)]\n"
                        "print(neap.stats().live >= 50_000_000)",
                        timeout=PATIENCE,
                        output_hook=lambda message: said.append(message["content"].get("text")),
                    )
                    self.assertEqual(reply["content"]["status"], "ok")
                    self.assertIn("True\n", said)
                finally:
                    client.stop_channels()
                    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    unittest.main()
