"""What is written reads back the same, and keys name one thing each."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate import ValidationError
from headgate.limit import LimitSet
from headgate.records import (
    config_item,
    config_keys,
    entity_item,
    read_config,
    read_entity,
    read_limits_config,
    resolution_keys,
)
from headgate.schema import (
    Decoder,
    bucket_item,
    checked_entity,
    checked_resource,
    namespace_id,
    parse_bucket_pk,
)
from tests import strategies as some


@given(some.refs, some.buckets(), st.none() | st.integers(1, 10**11))
def test_a_bucket_reads_back_as_it_was_written(ref, bucket, ttl):
    item = bucket_item(ref, bucket, ttl)
    assert Decoder().bucket(item) == bucket
    # A decoder that knows the limits takes them by their fingerprint.
    knowing = Decoder()
    shared = knowing.intern(bucket.limits)
    assert knowing.bucket(item) == bucket
    assert knowing.bucket(item).limits is shared
    assert ("ttl" in item) == (ttl is not None)


@given(some.refs, some.buckets(), st.none() | st.integers(1, 10**11))
def test_all_numbers_of_a_bucket_are_written_as_integers(ref, bucket, ttl):
    item = bucket_item(ref, bucket, ttl)
    assert all(str(int(v["N"])) == v["N"] for v in item.values() if "N" in v)


@given(
    some.namespace_ids, st.none() | some.entity_ids, st.none() | some.resources, some.config_records
)
def test_a_level_reads_back_as_it_was_written(ns, entity_id, resource, record):
    item = config_item(ns, entity_id, resource, record)
    assert read_config(item) == record
    shown = read_limits_config(item)
    assert (shown.entity_id, shown.resource) == (entity_id, resource)
    assert shown.limits == (record.limits.limits if record.limits else ())
    assert (item["PK"]["S"], item["SK"]["S"]) == config_keys(ns, entity_id, resource)


@given(some.namespace_ids, some.entities)
def test_an_entity_reads_back_as_it_was_written(ns, entity):
    assert read_entity(entity_item(ns, entity)) == entity


@given(some.refs, st.integers(0, 63))
def test_a_buckets_key_names_its_bucket_and_shard(ref, shard):
    assert parse_bucket_pk(ref.pk(shard)) == (ref, shard)


@given(some.refs, st.integers(0, 63), some.refs, st.integers(0, 63))
def test_different_buckets_have_different_keys(one, i, other, j):
    assume((one, i) != (other, j))
    assert one.pk(i) != other.pk(j)


@given(some.refs, some.refs)
def test_no_key_of_one_namespace_is_a_key_of_another(one, other):
    assume(one.ns != other.ns)

    def keys(ref):
        levels = {place[0] for place, _ in resolution_keys(*ref)}
        return levels | {value["S"] for value in ref.identity(0).values()} - set(ref[1:])

    def partitions(ref):
        return {key for key in keys(ref) if key.startswith(f"{ref.ns}/")} | {ref.ns}

    assert not partitions(one) & partitions(other)
    assert all(not key.startswith(f"{other.ns}/") for key in partitions(one))


@given(some.entity_ids, some.resources)
def test_ids_that_are_allowed_are_taken_as_they_are(entity_id, resource):
    assert checked_entity(entity_id) == entity_id
    assert checked_resource(resource) == resource


# A separator or a control character anywhere, space at an end, half a surrogate pair.
hostile = st.one_of(
    st.tuples(
        st.text(max_size=5),
        st.sampled_from("#\x00\x01\x1f\x7f\x80\x85\x9f\ud800\udfff\n\r\t"),
        st.text(max_size=5),
    ).map("".join),
    st.tuples(st.sampled_from(" \u00a0\u2003"), st.text(max_size=5)).map("".join),
    st.tuples(st.text(max_size=5), st.sampled_from(" \u00a0\u2028")).map("".join),
)


@given(hostile)
@example("")
@example("a#b")
@example("#STATE")
@example("x" * 257)
@example("é" * 129)
def test_ids_that_could_forge_a_key_are_refused_and_shown(value):
    for check in (checked_entity, checked_resource):
        with pytest.raises(ValidationError) as caught:
            check(value)
        assert repr(value) in str(caught.value)


@given(st.none() | st.integers() | st.floats() | st.binary() | st.lists(st.text()))
def test_an_id_that_is_no_text_is_refused_and_shown(value):
    for check in (checked_entity, checked_resource, namespace_id):
        with pytest.raises(ValidationError) as caught:
            check(value)
        assert repr(value) in str(caught.value)


@given(st.one_of(st.uuids().map(str), st.emails(), st.ip_addresses().map(str)))
@example("arn:aws:iam::123456789012:role/service-role/My+Role=@x,y")
@example("arn:aws:execute-api:us-east-1:123456789012:abc123/prod/GET/pets/*")
@example("fe80::1%eth0")
@example("user name with spaces")
@example("naïve-日本語")
def test_uuids_emails_addresses_and_arns_are_ids(value):
    # RFC 5322 allows `#` in an address; keys do not.
    assume("#" not in value)
    assert checked_entity(value) == value
    assert len(value) > 128 or checked_resource(value) == value


@given(some.limit_sets, some.limit_sets)
def test_a_fingerprint_names_its_limits(one, other):
    assert (one == other) == (one.fingerprint == other.fingerprint)
    assert LimitSet(reversed(one.limits)).fingerprint == one.fingerprint
    assert len(one.fingerprint) == 8
