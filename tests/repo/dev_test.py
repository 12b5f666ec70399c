"""./dev from outside: its help, its errors, and what it installs, with dpkg-query, apt-cache and apt-get replaced."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Each reads its little world from files beside it: `installed` and `known` (package names, one a line), `log`.
TOOLS = {
    "dpkg-query": 'for p; do grep -qx -- "$p" "$here/installed" && echo "installed $p"; done; exit 1',
    "apt-cache": 'if grep -qx -- "$2" "$here/known"; then echo "  Candidate: 1"; else echo "  Candidate: (none)"; fi; '
    "yes '     500 a mirror' | head -n 20000",
    "apt-get": """echo "$@" >>"$here/log"
case " $* " in
  *" update "*) cp "$here/known-after-update" "$here/known" ;;
  *" install "*)
    if [ -e "$here/fail-until-update" ]; then
      if ! grep -q update "$here/log"; then echo "404 Not Found"; exit 100; fi
    fi
    if [ -e "$here/fail" ]; then echo "disk full"; exit 100; fi ;;
esac""",
    "sudo": 'exec "$@"',
}


class DevTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        for name, body in TOOLS.items():
            tool = self.here / name
            tool.write_text(f'#!/bin/sh\nhere="{self.here}"\n{body}\n')
            tool.chmod(0o755)
        self.packages = self.run_shell("printf '%s\\n' ${build_packages[@]} ${test_packages[@]} ${demo_packages[@]}")
        self.optional = self.run_shell("printf '%s\\n' ${optional_packages[@]}")
        self.assertIn("g++", self.packages)
        self.write("installed", self.packages + self.optional)
        self.write("known", self.packages + self.optional)
        self.write("known-after-update", self.packages + self.optional)

    def run_shell(self, command):
        """Runs a command among dev's own definitions (the file without its last line, which starts it)."""
        script = (ROOT / "dev").read_text().rstrip().removesuffix('main "$@"').replace('"${BASH_SOURCE[0]}"', f"'{ROOT}/dev'")
        done = subprocess.run(["bash", "-c", script + command], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.split()

    def write(self, name, lines):
        (self.here / name).write_text("".join(line + "\n" for line in lines))

    def dev(self, *arguments):
        path = f"{self.here}:{os.environ['PATH']}"
        return subprocess.run(
            [str(ROOT / "dev"), *arguments],
            env={**os.environ, "PATH": path},
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def apt_calls(self):
        log = self.here / "log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def test_help_names_every_command(self):
        done = self.dev("--help")
        self.assertEqual(done.returncode, 0)
        for command in ("demo", "test", "build", "bench", "lint", "format", "clean", "setup"):
            self.assertRegex(done.stdout, rf"(?m)^  {command}\b")

    def test_bad_commands(self):
        for arguments, status, words in (
            ([], 2, "usage"),
            (["biuld"], 2, "unknown command 'biuld'"),
            (["build", "--preset", "fast"], 1, "no such preset"),
            (["build", "--jobs", "0"], 1, "--jobs 0"),
            (["build", "--jobs"], 1, "--jobs needs a value"),
        ):
            done = self.dev(*arguments)
            self.assertEqual((done.returncode, words in done.stdout), (status, True), (arguments, done.stdout))

    def test_nothing_missing_calls_no_apt(self):
        self.assertEqual(self.dev("setup").returncode, 0)
        self.assertEqual(self.apt_calls(), [])

    def test_installs_exactly_what_is_missing(self):
        self.write("installed", [p for p in self.packages + self.optional if p not in ("ccache", "libfmt-dev")])
        done = self.dev("setup")
        self.assertEqual(done.returncode, 0, done.stdout)
        (call,) = self.apt_calls()
        self.assertEqual(call[-3:], ["--no-install-recommends", "ccache", "libfmt-dev"])
        self.assertIn("installing 2 packages: ccache libfmt-dev", done.stdout)

    def test_bare_machine_updates_the_lists_first(self):
        self.write("installed", [])
        self.write("known", [])
        self.assertEqual(self.dev("setup").returncode, 0)
        update, install = self.apt_calls()
        self.assertIn("update", update)
        self.assertEqual(install[install.index("--no-install-recommends") + 1 :], self.packages + self.optional)

    def test_old_lists_are_updated_once(self):
        self.write("installed", [])
        (self.here / "fail-until-update").touch()
        self.assertEqual(self.dev("setup").returncode, 0)
        kinds = [next(word for word in call if word in ("update", "install")) for call in self.apt_calls()]
        self.assertEqual(kinds, ["install", "update", "install"])

    def test_optional_package_that_does_not_exist(self):
        self.write("installed", self.packages)
        self.write("known", self.packages)
        self.write("known-after-update", self.packages)
        self.assertEqual(self.dev("setup").returncode, 0)
        self.assertEqual(self.apt_calls(), [])

    def test_required_package_that_does_not_exist(self):
        self.write("installed", [])
        known = [p for p in self.packages if p != "libcli11-dev"]
        self.write("known", known)
        self.write("known-after-update", known)
        done = self.dev("setup")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such package here: libcli11-dev", done.stdout)

    def test_failing_installation_shows_why(self):
        self.write("installed", [])
        (self.here / "fail").touch()
        done = self.dev("setup")
        self.assertEqual(done.returncode, 1)
        self.assertIn("disk full", done.stdout)
        self.assertIn("installing packages failed", done.stdout)


if __name__ == "__main__":
    unittest.main()
