"""The code in the documentation, run as its reader would: block after block, in one namespace.

A ```text block that follows a ```python block is what that block prints, or the error it ends
with. Time passes while a page is read, so numbers may differ a little.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_CLOSE = 0.02
_MOMENT = 1_000_000_000  # larger than this is a time since the epoch


@dataclass(frozen=True)
class Block:
    """One block of code, where it stands, and what it is said to print."""

    page: Path
    line: int
    code: str
    prints: str | None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def run(self, names: dict[str, Any]) -> None:
        """Runs it in these names, and holds what it prints against what the page says."""
        # Blank lines before it make the line numbers of a traceback those of the page.
        source = compile("\n" * (self.line - 1) + self.code, str(self.page), "exec")
        output = io.StringIO()
        with redirect_stdout(output):
            try:
                exec(source, names)  # noqa: S102 - the documentation is ours
            except Exception as error:
                if self.prints is None:
                    raise
                kind = type(error)
                output.write(f"{kind.__module__}.{kind.__name__}: {error}\n")
        if self.prints is not None:
            assert alike(self.prints, output.getvalue()), f"{self} printed:\n{output.getvalue()}"


def python_blocks(page: str) -> list[Block]:
    """The Python of a page, in order. `page` is its path in the repository."""
    path = ROOT / page
    text = path.read_text()
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        language, content = match.groups()
        if language == "python":
            line = text.count("\n", 0, match.start(2)) + 1
            found.append(Block(path, line, content, None))
        elif language == "text" and found and not text[end : match.start()].strip():
            last = found.pop()
            found.append(Block(last.page, last.line, last.code, content))
        end = match.end()
    return found


def alike(said: str, printed: str) -> bool:
    """Whether two texts are the same but for numbers that differ by little, as times do."""
    left, right = _NUMBER.split(said), _NUMBER.split(printed)
    return left[::2] == right[::2] and all(
        _near(float(a), float(b)) for a, b in zip(left[1::2], right[1::2], strict=True)
    )


def _near(said: float, printed: float) -> bool:
    return min(said, printed) > _MOMENT or abs(said - printed) <= _CLOSE * said
