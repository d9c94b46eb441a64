"""What is uploaded: the layer and the functions' packages."""

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_

import headgate
from headgate_cdk import RateLimiter, staging

ROOT = Path(__file__).resolve().parents[2]
# Each function, and the packages that it has beyond those of all.
FUNCTIONS = {"aggregator": (), "archiver": (), "authorizer": (), "api": ("fastjsonschema",)}
COMPILED = (".so", ".pyd", ".dylib", ".dll", ".pyc")


def test_the_layer_holds_the_client_and_nothing_else():
    files = staging.client_files()
    assert {Path(name).parts[:2] for name in files} == {("python", "headgate")}
    sources = Path(headgate.__file__).parent
    client = {f for f in sources.rglob("*.py") if "cli" not in f.relative_to(sources).parts}
    client.discard(sources / "local.py")
    assert set(files.values()) == {*client, sources / "py.typed"}


def test_the_layer_as_a_file_is_under_200_kilobytes_and_always_the_same_bytes(tmp_path):
    for name in ("one", "other"):
        run = [sys.executable, ROOT / "layers/build.py", tmp_path / name]
        subprocess.run(run, check=True, capture_output=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert (tmp_path / "one").stat().st_size < 200 * 1024
    with zipfile.ZipFile(tmp_path / "one") as layer:
        assert set(layer.namelist()) == set(staging.client_files())


def test_the_staged_layer_imports_with_nothing_but_what_the_runtime_has(tmp_path):
    folder = staging.stage(staging.client_files(), tmp_path)
    program = "import headgate; headgate.SyncRateLimiter; print(headgate.__file__)"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": str(folder / "python"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(ran.stdout.strip()).is_relative_to(folder)


def test_the_same_sources_make_the_same_folder_wherever_and_whenever(tmp_path):
    files = staging.client_files()
    one, other = (staging.stage(files, tmp_path / name) for name in ("one", "other"))
    assert one.name == other.name

    copied = {}
    for name, source in reversed(files.items()):
        copied[name] = tmp_path / "copy" / name
        copied[name].parent.mkdir(parents=True, exist_ok=True)
        copied[name].write_bytes(source.read_bytes())
        copied[name].chmod(0o600)
    assert staging.digest(copied) == staging.digest(files)

    (tmp_path / "copy/python/headgate/limit.py").write_text("changed")
    assert staging.digest(copied) != staging.digest(files)


def test_staging_again_changes_nothing(tmp_path):
    first = staging.stage(staging.client_files(), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    assert staging.stage(staging.client_files(), tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == times
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_two_stacks_synthesize_the_same_asset(new_stack, template_of):
    keys = set()
    for _ in range(2):
        stack = new_stack()
        assert RateLimiter(stack, "Limiter").layer
        keys.add(template_of(stack).only("AWS::Lambda::LayerVersion")["Content"]["S3Key"])
    assert len(keys) == 1


def packed(function):
    return staging.function_files(function, packages=(*staging.PACKAGES, *FUNCTIONS[function]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_compiled_file_enters_a_function(function):
    files = packed(function)
    assert f"{function}/handler.py" in files
    assert [name for name in files if name.endswith(COMPILED) or "__pycache__" in name] == []


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """What Lambda's runtime has, in a folder of its own."""
    folder = tmp_path_factory.mktemp("runtime")
    for name in staging.PROVIDED:
        for file in metadata.files(name):
            if file.parts[0] == ".." or "__pycache__" in file.parts:
                continue
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).symlink_to(Path(file.locate()))
    return folder


# The tracer loads its SDK when it is first used: here, at once.
START = """
import aws_xray_sdk.core, botocore, wrapt
from {function}.handler import handler
assert callable(handler)
print(botocore.__file__, wrapt.__file__)
"""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_starts_from_its_package_the_layer_and_the_runtime(function, runtime, tmp_path):
    package = staging.stage(packed(function), tmp_path)
    layer = staging.stage(staging.client_files(), tmp_path)
    ran = subprocess.run(
        # -S: without the packages of the environment that synthesizes.
        [sys.executable, "-S", "-P", "-c", START.format(function=function)],
        env={
            "PYTHONPATH": f"{package}:{layer / 'python'}:{runtime}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "POWERTOOLS_SERVICE_NAME": function,
            "POWERTOOLS_TRACE_DISABLED": "true",
            "POWERTOOLS_METRICS_NAMESPACE": "Headgate",
            "HEADGATE_TABLE": "limits",
            "HEADGATE_ARCHIVE_BUCKET": "archive",
            "HEADGATE_ARCHIVE_PREFIX": "audit/",
            "AWS_DEFAULT_REGION": "eu-central-1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert str(runtime) in ran.stdout
    assert str(package) in ran.stdout


def test_everything_that_the_packages_need_is_packed_or_provided():
    def plain(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    known = {plain(name) for name in (*staging.PACKAGES, *staging.PROVIDED)}
    for package in {*staging.PACKAGES, *(each for more in FUNCTIONS.values() for each in more)}:
        needs = [need for need in metadata.requires(package) or [] if "extra ==" not in need]
        for need in needs:
            assert plain(re.match(r"[A-Za-z0-9._-]+", need)[0]) in known, (package, need)


def test_a_package_with_compiled_files_is_refused():
    with pytest.raises(staging.NotStageable, match=r"pydantic.core has a compiled file, .*\.so"):
        staging.package_files("pydantic_core")


def test_a_package_that_is_missing_is_named_with_the_remedy():
    with pytest.raises(staging.NotStageable, match=r"no-such-thing is not installed.*\[cdk\]"):
        staging.package_files("no-such-thing")


def test_functions_of_one_stack_share_the_limiters_layer(stack, template_of):
    limiter = RateLimiter(stack, "Limiter")
    for name in ("One", "Two"):
        limiter.attach(python_function(stack, name))
    template = template_of(stack)
    assert template.count("AWS::Lambda::LayerVersion") == 1


def test_another_stack_gets_a_layer_of_its_own_so_that_the_first_can_change_its(
    new_stack, template_of
):
    first = new_stack("First")
    limiter = RateLimiter(first, "Limiter")
    second = Stack(first.node.scope, "Second")
    for name in ("One", "Two"):
        limiter.attach(python_function(second, name))
    template = template_of(second)
    assert template.count("AWS::Lambda::LayerVersion") == 1
    imports = re.findall(r"First:ExportsOutput(\w+)", str(template.raw))
    assert imports
    assert not [name for name in imports if "Layer" in name]


def python_function(scope, name):
    return lambda_.Function(
        scope,
        name,
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )
