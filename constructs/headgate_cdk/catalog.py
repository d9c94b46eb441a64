"""The archive as a table of Athena's: which columns it has, and where each day lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack
from aws_cdk import aws_glue as glue

if TYPE_CHECKING:
    from aws_cdk import aws_s3 as s3
    from constructs import Construct

TABLE = "audit"
COLUMNS = (
    "event_id at namespace_id subject action principal resource before after".split()
)  # what a line holds; `before` and `after` are JSON in text
DATE = {"year": "2024,2100", "month": "1,12", "day": "1,31"}


def make_catalog(scope: Construct, archive: s3.IBucket, *, prefix: str, database: str) -> None:
    """A Glue database with one table. Its partitions are computed from the date, so nobody has to
    add a day, and no crawler runs.
    """
    location = f"s3://{archive.bucket_name}/{prefix}"
    account = Stack.of(scope).account
    made = glue.CfnDatabase(
        scope,
        "AuditDatabase",
        catalog_id=account,
        database_input=glue.CfnDatabase.DatabaseInputProperty(
            name=database, description="Headgate: audit events that have expired in the table"
        ),
    )
    table = glue.CfnTable(
        scope,
        "AuditTable",
        catalog_id=account,
        database_name=database,
        table_input=glue.CfnTable.TableInputProperty(
            name=TABLE,
            table_type="EXTERNAL_TABLE",
            partition_keys=[glue.CfnTable.ColumnProperty(name=n, type="string") for n in DATE],
            parameters=_projection(location),
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                location=location,
                columns=[glue.CfnTable.ColumnProperty(name=n, type="string") for n in COLUMNS],
                compressed=True,
                input_format="org.apache.hadoop.mapred.TextInputFormat",
                output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
                serde_info=glue.CfnTable.SerdeInfoProperty(
                    serialization_library="org.openx.data.jsonserde.JsonSerDe"
                ),
            ),
        ),
    )
    table.add_dependency(made)


def _projection(location: str) -> dict[str, str]:
    settings = {
        "projection.enabled": "true",
        "storage.location.template": location + "/".join(f"{n}=${{{n}}}" for n in DATE) + "/",
    }
    for name, values in DATE.items():
        settings[f"projection.{name}.type"] = "integer"
        settings[f"projection.{name}.range"] = values
        if name != "year":
            settings[f"projection.{name}.digits"] = "2"
    return settings
