"""The archive: a private bucket for audit events that have expired in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3

from headgate_cdk.acknowledged import acknowledge
from headgate_cdk.checks import InvalidOption

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from headgate_cdk.options import ArchiveOptions

# Versions exist against mistakes: a month to notice one.
KEEP_OLD_VERSIONS = 30


def make_archive(
    scope: Construct,
    *,
    removal: RemovalPolicy,
    key: kms.IKey | None,
    options: ArchiveOptions,
) -> s3.IBucket:
    """The bucket of one limiter, or the one it was given."""
    if options.bucket is not None:
        return options.bucket
    if options.auto_delete_objects and removal != RemovalPolicy.DESTROY:
        raise InvalidOption(
            "archive.auto_delete_objects",
            value=True,
            allowed=f"needs removal_policy DESTROY, which is {removal.name}",
        )
    bucket = s3.Bucket(
        scope,
        "Archive",
        bucket_name=options.bucket_name,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        # Without it, each object of an encrypted archive costs a request to KMS.
        bucket_key_enabled=key is not None or None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        versioned=True,
        server_access_logs_bucket=options.access_logs,
        server_access_logs_prefix="headgate-archive/" if options.access_logs else None,
        lifecycle_rules=_lifecycle(options),
        auto_delete_objects=options.auto_delete_objects,
        removal_policy=removal,
    )
    if bucket.policy is not None:
        # The rule that only TLS may read the archive stays as long as the archive does.
        bucket.policy.apply_removal_policy(removal)
    if options.access_logs is None:
        acknowledge(
            bucket,
            "AwsSolutions-S1",
            "Access logs need a second bucket that outlives this one: archive.access_logs takes it",
        )
    return bucket


def _lifecycle(options: ArchiveOptions) -> list[s3.LifecycleRule]:
    leftovers = s3.LifecycleRule(
        id="Leftovers",
        abort_incomplete_multipart_upload_after=Duration.days(7),
        noncurrent_version_expiration=Duration.days(KEEP_OLD_VERSIONS),
        enabled=True,
    )
    if options.cold_after is None and options.expire_after is None:
        return [leftovers]
    cold = (
        [s3.Transition(storage_class=options.cold_class, transition_after=options.cold_after)]
        if options.cold_after
        else None
    )
    age = s3.LifecycleRule(
        id="Age",
        prefix=options.prefix or None,
        transitions=cold,
        expiration=options.expire_after,
        enabled=True,
    )
    return [age, leftovers]
