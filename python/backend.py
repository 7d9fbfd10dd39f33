#!/usr/bin/env python3
"""Builds the wheels of neap-malloc: backend.py TREE DIRECTORY, or as a PEP 517 backend.

TREE is what ci/packages/stage.sh lays out. The Python code is the same in both wheels:

- With the library and the command, for the glibc that the command needs.
- With the library only, for older glibc and for musl. The library names no C library.

The same files and SOURCE_DATE_EPOCH give the same bytes.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# What every glibc has that a wheel of manylinux may run on.
SYSTEM_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


class Elf:
    """What an ELF file needs."""

    def __init__(self, path):
        words = ["readelf", "--wide", "--file-header", "--dynamic", "--version-info", str(path)]
        text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        machines = {"X86-64": "x86_64", "AArch64": "aarch64"}
        self.machine = next(
            name for key, name in machines.items() if re.search(f"Machine:.*{key}", text)
        )
        self.needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", text)
        self.glibc = max(((int(a), int(b)) for a, b in versions), default=None)


def platforms(tree):
    """The platform tags of the wheel with the command, and of that without."""
    command, library = Elf(tree / "bin/neap"), Elf(tree / "lib/libneap.so")
    if not command.needed <= SYSTEM_LIBRARIES:
        sys.exit(f"backend.py: neap needs {command.needed}, not all of which every system has")
    if library.needed or library.glibc:
        sys.exit("backend.py: libneap.so names a C library: build it by ci/dist.sh")
    machine = library.machine
    with_command = ["manylinux_{}_{}_{}".format(*command.glibc, machine)]
    without = [f"{name}_{machine}" for name in ("manylinux_2_17", "manylinux2014", "musllinux_1_2")]
    return with_command, without


def own_version():
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return manifest["workspace"]["package"]["version"]


def metadata(project, licences):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {own_version()}",
        f"Summary: {project['description']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in licences),
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / project["readme"]).read_text()


class Wheel:
    """A wheel in the making."""

    def __init__(self, directory, project, tags):
        name = re.sub("[-_.]+", "_", project["name"])
        self.info = f"{name}-{own_version()}.dist-info"
        self.path = Path(directory) / f"{name}-{own_version()}-py3-none-{'.'.join(tags)}.whl"
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        self.date = time.gmtime(epoch)[:6]
        self.records = []
        self.archive = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        entry.create_system = 3  # Unix
        self.archive.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")

    def close(self):
        record = f"{self.info}/RECORD"
        self.records.append(f"{record},,")
        self.add(record, ("\n".join(self.records) + "\n").encode())
        self.archive.close()


def build(tree, directory, tags, with_command):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    wheel = Wheel(directory, project, tags)
    for source in sorted((HERE / "neap").iterdir()):
        if source.suffix == ".py" or source.name == "py.typed":
            wheel.add(f"neap/{source.name}", source.read_bytes())
    wheel.add("neap/files/libneap.so", (tree / "lib/libneap.so").read_bytes(), 0o755)
    if with_command:
        wheel.add("neap/files/neap", (tree / "bin/neap").read_bytes(), 0o755)

    doc = tree / "share/doc/neap"
    licences = ["LICENSE-APACHE", "LICENSE-MIT", "third-party-crates.txt"]
    for name in licences:
        wheel.add(f"{wheel.info}/licenses/{name}", (doc / name).read_bytes())
    wheel.add(f"{wheel.info}/sboms/neap.cdx.json", (doc / "neap.cdx.json").read_bytes())
    wheel.add(f"{wheel.info}/METADATA", metadata(project, licences).encode())
    heads = ["Wheel-Version: 1.0", "Generator: neap", "Root-Is-Purelib: false"]
    heads += [f"Tag: py3-none-{tag}" for tag in tags]
    wheel.add(f"{wheel.info}/WHEEL", ("\n".join(heads) + "\n").encode())
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    wheel.add(f"{wheel.info}/entry_points.txt", ("[console_scripts]\n" + scripts).encode())
    wheel.close()
    return wheel.path.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: the wheel with the command, from the files of ci/dist.sh."""
    with tempfile.TemporaryDirectory() as room:
        tree = Path(room) / "tree"
        subprocess.run([ROOT / "ci/packages/stage.sh", tree], check=True)
        return build(tree, wheel_directory, platforms(tree)[0], with_command=True)


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: there is none, because the wheel's files are built by cargo."""
    raise NotImplementedError(
        "neap-malloc is built from Neap's sources: run ci/dist.sh and ci/release.sh"
    )


def main():
    tree, directory = map(Path, sys.argv[1:])
    with_command, without = platforms(tree)
    print(build(tree, directory, with_command, with_command=True))
    print(build(tree, directory, without, with_command=False))


if __name__ == "__main__":
    main()
