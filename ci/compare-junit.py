#!/usr/bin/env python3
"""compare-junit.py REFERENCE OBSERVED...: prints the tests that pass in REFERENCE and in
no OBSERVED; the status is 1 when there are any. A missing OBSERVED passes nothing."""

import collections
import os
import sys
import xml.etree.ElementTree as ElementTree


def passing(path):
    """The names whose every run passed: subtests share their test's name."""
    runs = collections.defaultdict(list)
    for case in ElementTree.parse(path).iter("testcase"):
        clean = case.get("result") == "completed" and len(case) == 0
        runs[case.get("name")].append(clean)
    return {name for name, results in runs.items() if all(results)}


def main():
    reference, *observed = sys.argv[1:]
    expected = passing(reference)
    if not expected:
        sys.exit(f"{reference}: no test passes: nothing to compare")
    passed = set().union(*(passing(path) for path in observed if os.path.exists(path)))
    failed = sorted(expected - passed)
    for name in failed:
        print("FAILS ONLY UNDER THE LIBRARY:", name)
    print(f"{len(expected)} pass under the system's malloc, {len(failed)} of them fail")
    sys.exit(1 if failed else 0)


main()
