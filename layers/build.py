"""Write the layer as a zip file, for deployments that do not use the CDK.

python layers/build.py headgate-layer.zip

The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

from headgate_cdk.staging import client_files, digest

# The earliest time that a zip file can hold.
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write(target: Path) -> str:
    """Write the layer and return the digest of what is in it."""
    files = client_files()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name].read_bytes())
    return digest(files)


def main() -> None:
    """Write where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target
    written = write(target)
    sys.stdout.write(f"{target}: {target.stat().st_size / 1024:.0f} KB, sources {written}\n")


if __name__ == "__main__":
    main()
