"""What goes into the layer and the functions: files of the environment that synthesizes.

No Docker, no network, no compiler: sources are copied as they are installed. The same sources
give the same folder, whose name is the digest of its contents, and so the same asset.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

# The functions' packages beyond what the Lambda runtime has (boto3, botocore, jmespath, ...).
PACKAGES = ("aws-lambda-powertools", "aws-xray-sdk", "typing-extensions", "wrapt")
PROVIDED = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")

# Has everything in Python as well, and uses it where its compiled half is missing.
FALLS_BACK = frozenset({"wrapt"})

SOURCES = frozenset({".py", ".json"})
COMPILED = frozenset({".so", ".pyd", ".dylib", ".dll"})

Files = Mapping[str, Path]
"""Name in the asset -> file to copy there."""


class NotStageable(RuntimeError):
    """A package cannot go into an asset: says which, why, and what to do."""


# The command line and the engine that it starts: for a terminal, not for a function.
AT_THE_DESK = ("python/headgate/cli/", "python/headgate/local.py")


def client_files() -> Files:
    """The layer: the client, where Lambda puts `python/` on the path."""
    spec = importlib.util.find_spec("headgate")
    if spec is None or not spec.submodule_search_locations:
        raise NotStageable("the headgate package is not installed: pip install 'headgate[cdk]'")
    files = _tree(Path(next(iter(spec.submodule_search_locations))), "python/headgate")
    return {name: file for name, file in files.items() if not name.startswith(AT_THE_DESK)}


def function_files(name: str, *, packages: tuple[str, ...] = PACKAGES) -> Files:
    """A function: its own package and those that it needs."""
    files = dict(_tree(_lambdas() / name, name))
    for package in packages:
        files.update(package_files(package))
    return files


def package_files(name: str) -> Files:
    """The Python sources of an installed distribution."""
    try:
        installed = metadata.files(name)
    except metadata.PackageNotFoundError:
        installed = None
    if installed is None:
        raise NotStageable(f"{name} is not installed here: pip install 'headgate[cdk]'")
    files = {}
    for file in installed:
        if file.suffix in COMPILED and name not in FALLS_BACK:
            raise NotStageable(
                f"{name} has a compiled file, {file}: it was built for this machine, and the "
                "functions run on another"
            )
        if file.suffix in SOURCES and not _beside_the_package(file):
            files[file.as_posix()] = Path(str(file.locate()))
    return files


def stage(files: Files, root: Path) -> Path:
    """A folder under `root` with these files and nothing else, named after what is in it."""
    folder = root / f"headgate.{digest(files)}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    # Filled aside and renamed: another process may be synthesizing into the same place.
    aside = Path(tempfile.mkdtemp(prefix=".headgate-", dir=root))
    try:
        for name, source in files.items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        aside.chmod(0o755)
        os.rename(aside, folder)  # noqa: PTH104  (Path.rename's result would go unused)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def digest(files: Files) -> str:
    """Names and contents, in order: nothing of times, modes or places."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0".encode())
        total.update(hashlib.sha256(files[name].read_bytes()).digest())
    return total.hexdigest()[:32]


def _tree(folder: Path, prefix: str) -> Files:
    if not folder.is_dir():
        raise NotStageable(f"{folder} is missing: the headgate package is incomplete")
    return {
        (PurePosixPath(prefix) / file.relative_to(folder).as_posix()).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.suffix in SOURCES or file.name == "py.typed"
    }


def _beside_the_package(file: metadata.PackagePath) -> bool:
    """Scripts, metadata and whatever else installers put next to the modules."""
    return file.parts[0] == ".." or file.parts[0].endswith((".dist-info", ".data"))


def _lambdas() -> Path:
    """In the wheel the functions lie in the package, in the repository beside it."""
    here = Path(__file__).resolve().parent
    bundled = here / "_lambdas"
    return bundled if bundled.is_dir() else here.parents[1] / "lambdas"
