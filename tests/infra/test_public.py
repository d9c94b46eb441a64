"""The contract: public names, their documentation, and ids that data depends on."""

import inspect
from pathlib import Path

import headgate_cdk

STATEFUL = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue"}


def test_public_names_come_and_go_on_purpose():
    assert headgate_cdk.__all__ == [
        "RateLimiter",
        "RateLimiterApi",
        "RateLimiterBase",
        "Namespace",
        "RateLimitAuthorizer",
        "AuthorizerScope",
        "Caller",
        "TokenOptions",
        "AggregatorOptions",
        "AlarmOptions",
        "ArchiveOptions",
        "ArchiverOptions",
        "FunctionOptions",
        "TableOptions",
        "InvalidOption",
    ]


def test_an_editor_shows_types_and_documentation():
    assert (Path(headgate_cdk.__file__).parent / "py.typed").exists()
    for name in headgate_cdk.__all__:
        public = getattr(headgate_cdk, name)
        assert inspect.getdoc(public), name
        for attribute, value in vars(public).items():
            if not attribute.startswith("_") and callable(getattr(value, "__func__", value)):
                assert inspect.getdoc(value), f"{name}.{attribute}"


def test_options_are_given_by_name_and_have_defaults():
    signature = inspect.signature(headgate_cdk.RateLimiter.__init__)
    _self, _scope, _id, *options = signature.parameters.values()
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(option.default is not inspect.Parameter.empty for option in options)


def test_what_holds_data_keeps_its_logical_id(default):
    """A changed id replaces the resource: with it goes the data, or the way to it."""
    held = {
        name: resource["Type"]
        for name, resource in default.resources.items()
        if resource["Type"] in STATEFUL
    }
    assert held == {
        "LimiterTable04AFA56C": "AWS::DynamoDB::Table",
        "LimiterArchive43CA6895": "AWS::S3::Bucket",
        "LimiterDeadLetters69B31D5A": "AWS::SQS::Queue",
    }
