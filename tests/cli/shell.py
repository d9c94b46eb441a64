"""The console blocks of a page: commands, what they print, and a shell that runs them in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
_BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_PART = re.compile(rf"…|{_NUMBER}|[^…\d]+")
_DONE = "--- done ---"


@dataclass(frozen=True)
class Command:
    """One command of a page, and what the page says that it prints."""

    line: int
    text: str
    prints: str


@dataclass(frozen=True)
class File:
    """A file that the page shows: its first line is a comment with its name."""

    name: str
    content: str


def steps(page: Path) -> list[Command | File]:
    text = page.read_text()
    found: list[Command | File] = []
    for match in _BLOCK.finditer(text):
        kind, content = match.groups()
        start = text.count("\n", 0, match.start(2)) + 1
        if kind == "yaml":
            found.append(File(content.splitlines()[0].removeprefix("# "), content))
            continue
        for number, line in enumerate(content.splitlines()):
            if line.startswith("$ "):
                found.append(Command(start + number, line[2:], ""))
            else:
                last = found.pop()
                found.append(Command(last.line, last.text, f"{last.prints}{line}\n"))
    return found


class Shell:
    """One shell for a whole page: what a command exports, the next one has."""

    def __init__(self, folder: Path, **environment: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEADGATE_"))}
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={
                **kept,
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "COLUMNS": "100",
                "NO_COLOR": "1",
                **environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        """What it prints, on either stream."""
        self._process.stdin.write(f"{command}\necho '{_DONE}'\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line.rstrip("\n").endswith(_DONE):
                lines.append(line.rstrip("\n").removesuffix(_DONE))
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def tidy(printed: str) -> str:
    """Without the space that tables end their lines with, and without empty lines."""
    lines = [line.rstrip() for line in printed.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def alike(said: str, printed: str) -> bool:
    """Line for line, where `…` stands for anything and numbers may differ as time passes."""
    wanted, got = tidy(said).splitlines(), tidy(printed).splitlines()
    return len(wanted) == len(got) and all(
        _line(one, other) for one, other in zip(wanted, got, strict=True)
    )


def _line(said: str, printed: str) -> bool:
    # Columns are as wide as what is in them.
    pattern, numbers = "", []
    for part in _PART.findall(re.sub(r"[\s─]+", " ", said).strip()):
        if part == "…":
            pattern += ".*"
        elif part[0].isdigit():
            pattern += f"({_NUMBER})"
            numbers.append(part)
        else:
            pattern += re.escape(part)
    match = re.fullmatch(pattern, re.sub(r"[\s─]+", " ", printed).strip())
    return match is not None and all(map(_near, numbers, match.groups()))


def _near(said: str, printed: str) -> bool:
    one, other = (float(text.replace(",", "")) for text in (said, printed))
    return abs(one - other) <= max(3.0, 0.02 * one)
