"""The wheel alone: installed into an empty environment, elsewhere, it synthesizes."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

APP = """\
import aws_cdk as cdk
from headgate_cdk import RateLimiter
app = cdk.App()
RateLimiter(cdk.Stack(app, "Limits"), "Limiter")
app.synth()
"""


def run(*command, **options):
    ran = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("headgate-*.whl")
    return built


def test_the_wheel_carries_client_construct_and_functions_and_no_more(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {"/".join(Path(name).parts[:2]) for name in names if ".dist-info" not in name}
    assert {"headgate/__init__.py", "headgate/py.typed", "headgate_cdk/py.typed"} <= tops
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "headgate",
        "headgate_cdk",
    }
    for function in ("aggregator", "archiver", "provisioner"):
        assert f"headgate_cdk/_lambdas/{function}/handler.py" in names
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_a_five_line_app_synthesizes_in_an_empty_environment_in_any_folder(wheel, tmp_path):
    home = tmp_path / "home"
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"),
        *("--constraint", ROOT / "constraints.txt", f"{wheel}[cdk]"),
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "app.py").write_text(APP)
    clean = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    run(python, "app.py", cwd=elsewhere, env={**clean, "HOME": str(tmp_path), "CDK_OUTDIR": "out"})

    template = json.loads((elsewhere / "out/Limits.template.json").read_text())
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert kinds.count("AWS::DynamoDB::Table") == 1
    assert kinds.count("AWS::Lambda::Function") == 2
    assets = json.loads((elsewhere / "out/Limits.assets.json").read_text())["files"]
    folders = [
        elsewhere / "out" / asset["source"]["path"]
        for asset in assets.values()
        if asset["source"]["packaging"] == "zip"
    ]
    assert len(folders) == 3
    held = [sorted(entry.name for entry in folder.iterdir()) for folder in folders]
    assert ["python"] in held
    for function in ("aggregator", "archiver"):
        assert any(function in names and "aws_lambda_powertools" in names for names in held)
