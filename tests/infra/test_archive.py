"""The archive: private, encrypted, versioned, and it ages."""

import pytest
from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from headgate_cdk import ArchiveOptions, ArchiverOptions, InvalidOption, RateLimiter

BUCKET = "AWS::S3::Bucket"


def archived(stack, **options):
    return RateLimiter(stack, "Limiter", aggregator=False, alarms=False, dashboard=False, **options)


def test_by_default_the_archive_is_private_encrypted_versioned_and_stays(default):
    bucket = default.only(BUCKET)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    for kind in (BUCKET, "AWS::S3::BucketPolicy"):
        (resource,) = default.of(kind).values()
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"


def test_only_tls_reaches_the_archive(default):
    statements = default.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    denied = [s["Condition"] for s in statements if s["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_by_default_events_go_to_glacier_after_90_days_and_away_after_seven_years(default):
    age, leftovers = default.only(BUCKET)["LifecycleConfiguration"]["Rules"]
    assert age["Prefix"] == "audit/"
    assert age["Transitions"] == [{"StorageClass": "GLACIER_IR", "TransitionInDays": 90}]
    assert age["ExpirationInDays"] >= 7 * 365
    assert leftovers["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert leftovers["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}


def test_every_option_of_the_archive_reaches_it(stack, template_of):
    archived(
        stack,
        encryption_key=kms.Key(stack, "Key"),
        removal_policy=RemovalPolicy.DESTROY,
        archive=ArchiveOptions(
            bucket_name="the-archive",
            prefix="team=a/audit/",
            cold_after=Duration.days(10),
            cold_class=s3.StorageClass.DEEP_ARCHIVE,
            expire_after=Duration.days(400),
            auto_delete_objects=True,
            access_logs=s3.Bucket.from_bucket_name(stack, "Logs", "the-logs"),
        ),
    )
    template = template_of(stack)
    bucket = template.only(BUCKET)
    assert bucket["BucketName"] == "the-archive"
    assert bucket["LoggingConfiguration"]["DestinationBucketName"] == "the-logs"
    age = bucket["LifecycleConfiguration"]["Rules"][0]
    assert (age["Prefix"], age["ExpirationInDays"]) == ("team=a/audit/", 400)
    assert age["Transitions"] == [{"StorageClass": "DEEP_ARCHIVE", "TransitionInDays": 10}]
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"] is True
    assert template.count("Custom::S3AutoDeleteObjects") == 1
    archiver = template.only("AWS::Lambda::Function", "Archiver")
    assert archiver["Environment"]["Variables"]["HEADGATE_ARCHIVE_PREFIX"] == "team=a/audit/"


def test_events_can_be_kept_warm_and_for_ever(stack, template_of):
    archived(stack, archive=ArchiveOptions(cold_after=None, expire_after=None))
    (leftovers,) = template_of(stack).only(BUCKET)["LifecycleConfiguration"]["Rules"]
    assert leftovers["Id"] == "Leftovers"


def test_a_bucket_of_your_own_is_left_as_it_is(stack, template_of):
    mine = s3.Bucket.from_bucket_name(stack, "Mine", "mine")
    limiter = archived(stack, archive=ArchiveOptions(bucket=mine))
    template = template_of(stack)
    assert limiter.archive is mine
    assert template.count(BUCKET) == 0
    archiver = template.only("AWS::Lambda::Function", "Archiver")
    assert archiver["Environment"]["Variables"]["HEADGATE_ARCHIVE_BUCKET"] == "mine"


def test_the_archiver_may_add_objects_under_the_prefix_and_nothing_else(default):
    on_s3 = [
        statement
        for statement in default.statements("Archiver")
        if "s3:" in str(statement["Action"])
    ]
    assert [statement["Action"] for statement in on_s3] == ["s3:PutObject"]
    assert on_s3[0]["Resource"].endswith(".Arn/audit/*")


def test_without_an_archive_there_is_no_bucket_and_no_archiver(stack, template_of):
    limiter = RateLimiter(stack, "Limiter", archive=False)
    template = template_of(stack)
    assert limiter.archive is limiter.archiver is None
    assert template.count(BUCKET) == 0
    assert template.count("AWS::Lambda::EventSourceMapping") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": "/audit/"}, "archive.prefix is '/audit/': must be empty"),
        ({"prefix": "audit"}, "archive.prefix is 'audit'"),
        ({"cold_after": Duration.hours(1)}, "archive.cold_after is .*: must be from"),
        ({"expire_after": Duration.days(0)}, "archive.expire_after is"),
        ({"expire_after": Duration.days(90)}, "must be later than archive.cold_after"),
    ],
)
def test_what_s3_would_refuse_is_refused_at_once(options, message):
    with pytest.raises(InvalidOption, match=message):
        ArchiveOptions(**options)


def test_a_bucket_and_a_name_for_one_are_one_too_many(stack):
    mine = s3.Bucket.from_bucket_name(stack, "Mine", "mine")
    with pytest.raises(InvalidOption, match=r"archive.bucket_name is 'name'"):
        ArchiveOptions(bucket=mine, bucket_name="name")


def test_an_archive_that_stays_is_not_emptied(stack):
    with pytest.raises(InvalidOption, match="needs removal_policy DESTROY, which is RETAIN"):
        archived(stack, archive=ArchiveOptions(auto_delete_objects=True))


def test_an_archiver_without_an_archive_is_refused(stack):
    with pytest.raises(InvalidOption, match="nothing to write to: archive is False"):
        archived(stack, archive=False, archiver=ArchiverOptions())
