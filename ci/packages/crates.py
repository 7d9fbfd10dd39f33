#!/usr/bin/env python3
"""Writes what the shipped files contain of other projects' code: crates.py LIBRARY SBOM NOTICES

SBOM is a bill of materials in CycloneDX 1.5, NOTICES the licences of the same crates as text.
cargo says which crates are linked. Macros and build scripts run at build time only and are left
out. The version of Rust's standard library is read from LIBRARY.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

PACKAGES = ["neap-c", "neap-cli"]
LICENCE_FILES = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def cargo(*words):
    return run("cargo", *words, "--locked")


def platform():
    """The target that the files are built for: this machine's, or that of MACHINE."""
    if "MACHINE" in os.environ:
        return f"{os.environ['MACHINE']}-unknown-linux-gnu"
    return re.search("^host: (.+)$", run("rustc", "-vV"), re.MULTILINE)[1]


def linked():
    """The names and versions of all crates that are linked into the shipped files."""
    crates = set()
    for package in PACKAGES:
        tree = cargo(
            "tree",
            "--package",
            package,
            "--edges",
            "normal,no-proc-macro",
            "--target",
            platform(),
            "--prefix",
            "none",
            "--format",
            "{p}",
        )
        for line in tree.splitlines():
            name, version = line.split()[:2]
            crates.add((name, version.removeprefix("v")))
    return crates


def checksums():
    """The SHA-256 of each crate's archive, from Cargo.lock."""
    entry = re.compile(r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"')
    return {
        (name, version): sha for name, version, sha in entry.findall(Path("Cargo.lock").read_text())
    }


def rust_version(library):
    """The version of the compiler that built `library`, and so of the standard library in it."""
    found = re.search(rb"rustc version (\d+\.\d+\.\d+)", library.read_bytes())
    if not found:
        sys.exit(f"crates.py: {library} does not say which rustc built it")
    return found[1].decode()


def source(package):
    return package["repository"] or f"https://crates.io/crates/{package['name']}"


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def expression(package):
    """The licence as SPDX writes it. Old crates write a slash for OR."""
    return " ".join((package["license"] or "NOASSERTION").replace("/", " OR ").split())


def component(package, sha256):
    entry = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "description": " ".join((package["description"] or "").split()),
        "licenses": [{"expression": expression(package)}],
        "purl": purl(package),
    }
    if sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def bill(own_version, packages, edges, rust):
    sums = checksums()
    components = [component(p, sums.get((p["name"], p["version"]))) for p in packages]
    components.append(
        {
            "type": "library",
            "bom-ref": f"rust-std@{rust}",
            "name": "rust-std",
            "version": rust,
            "description": "Rust's standard library",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "externalReferences": [{"type": "vcs", "url": "https://github.com/rust-lang/rust"}],
        }
    )
    when = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    root = f"neap@{own_version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "neap",
                "version": own_version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [
            {
                "ref": root,
                "dependsOn": [purl(p) for p in packages if p["name"] in PACKAGES]
                + [f"rust-std@{rust}"],
            },
            *({"ref": ref, "dependsOn": sorted(to)} for ref, to in sorted(edges.items())),
        ],
    }


def notices(packages, rust):
    """The licences of the crates that are not this project's. Each text stands there once."""
    numbers, texts, lines = {}, [], []
    for package in packages:
        if package["source"] is None:
            continue
        own = []
        for path in sorted(Path(package["manifest_path"]).parent.iterdir()):
            if path.is_file() and LICENCE_FILES.match(path.name):
                text = path.read_text(errors="replace").replace("\r\n", "\n").strip()
                digest = hashlib.sha256(" ".join(text.split()).encode()).digest()
                if digest not in numbers:
                    texts.append(text)
                    numbers[digest] = len(texts)
                own.append(numbers[digest])
        authors = ", ".join(re.sub(r" <.*?>", "", author) for author in package["authors"])
        lines.append(
            f"{package['name']} {package['version']}\n"
            f"  licence: {expression(package)}\n"
            + (f"  authors: {authors}\n" if authors else "")
            + f"  source:  {source(package)}\n"
            + (f"  texts:   {', '.join(map(str, sorted(set(own))))}\n" if own else "")
        )
    head = (
        "libneap.so and neap contain code of these Rust crates, and of Rust's standard library\n"
        f"{rust} (MIT OR Apache-2.0, https://github.com/rust-lang/rust). The texts of their\n"
        "licences follow the list.\n\n"
    )
    bodies = "".join(
        f"\n{'=' * 80}\nText {number}\n{'=' * 80}\n\n{text}\n"
        for number, text in enumerate(texts, 1)
    )
    return head + "\n".join(lines) + bodies


def main():
    library, sbom, text = map(Path, sys.argv[1:])
    words = "metadata", "--format-version", "1", "--filter-platform", platform()
    metadata = json.loads(cargo(*words))
    wanted = linked()
    packages = [p for p in metadata["packages"] if (p["name"], p["version"]) in wanted]
    packages.sort(key=lambda p: (p["name"], p["version"]))
    assert len(packages) == len(wanted), "cargo tree and cargo metadata disagree"
    by_id = {p["id"]: p for p in packages}
    edges = {
        purl(by_id[node["id"]]): {purl(by_id[d]) for d in node["dependencies"] if d in by_id}
        for node in metadata["resolve"]["nodes"]
        if node["id"] in by_id
    }
    rust = rust_version(library)
    own_version = next(p["version"] for p in packages if p["name"] == "neap-cli")
    document = bill(own_version, packages, edges, rust)
    sbom.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    text.write_text(notices(packages, rust))


main()
