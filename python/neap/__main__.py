"""``python -m neap``: runs Python programs under Neap, and passes all else to the command neap."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import neap

USAGE = """\
usage: python -m neap run [OPTION... --] app.py [ARGUMENT]...
       python -m neap run [OPTION... --] -m MODULE [ARGUMENT]...
       python -m neap COMMAND [ARGUMENT]...

run    starts this Python with the words that it usually takes, under Neap. Before them go options
       of `neap run`, such as --limit=1G or --sample=512K. Two dashes end the options.
COMMAND is any other command of neap, such as stat, top, profile, purge or doctor.
"""


def fail(message: str) -> NoReturn:
    sys.exit(f"neap: {message}")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits the words after ``run`` into options of neap and words for Python."""
    if not words or not words[0].startswith("--"):
        return [], words
    if "--" not in words:
        fail(f"write two dashes between the options and the program: {' '.join(words)}")
    at = words.index("--")
    return words[:at], words[at + 1 :]


def run(words: list[str]) -> NoReturn:
    """Becomes this Python under Neap."""
    options, program = split(words)
    if not program:
        fail("nothing to run: python -m neap run app.py")
    started = [sys.executable, *program]
    command = neap.command()
    if command is not None:
        execute([os.fspath(command), "run", *options, "--", *started])
    if options:
        fail(
            f"options need the command neap, which this package does not have: {options[0]}; set "
            "variables instead, such as NEAP_LIMIT=1G"
        )
    library = os.fspath(neap.library())
    if any(letter in library for letter in " :$"):
        fail(f"a path with a space, a colon or a dollar sign cannot be preloaded: {library}")
    earlier = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = f"{library}:{earlier}" if earlier else library
    os.environ.setdefault("NEAP_STATUS_PAGE", "1")
    execute(started)


def execute(words: list[str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execv(words[0], words)
    except OSError as error:
        fail(f"cannot run {words[0]}: {error}")


def main() -> NoReturn:
    """``python -m neap``."""
    words = sys.argv[1:]
    if words[:1] == ["run"] and not {"-h", "--help"} & set(words[1:2]):
        run(words[1:])
    if not words or words[0] in ("-h", "--help", "run"):
        print(USAGE, end="")
        sys.exit(0)
    program()


def program() -> NoReturn:
    """The command ``neap`` itself, as installed in the environment's bin directory."""
    command = neap.command()
    if command is None:
        fail("this package has no command neap: it needs glibc 2.34 or newer")
    execute([os.fspath(command), *sys.argv[1:]])


if __name__ == "__main__":
    main()
