"""DynamoDB in memory: atomic, instant and honest, for flows that are run without I/O.

It takes the calls that the core yields and gives the outcomes that a driver would. Every
change passes `on_change`, which is how the simulator watches.
"""

from __future__ import annotations

from headgate.effects import Answer, Call, ConditionFailed, Refused, TransactionFailed
from tests.simulation.expressions import Malformed, check_used, compiled, holds, plain, updated

WRITES = {"Put", "Update", "Delete", "ConditionCheck"}


class Engine:
    """One table."""

    def __init__(self, table="table", on_change=None):
        self.table = table
        self.items = {}
        self.on_change = on_change or (lambda place, old, new: None)
        self.tokens = {}

    def send(self, call: Call):
        """The outcome of a call."""
        try:
            return getattr(self, f"_{call.operation}")(call.params)
        except Malformed as error:
            return Refused(error)

    def expire(self, now):
        """Removes what TTL may remove at this time; returns the images."""
        due = [
            (place, item)
            for place, item in self.items.items()
            if "ttl" in item and int(item["ttl"]["N"]) * 1000 < now
        ]
        for place, _ in due:
            self._put(place, None)
        return [item for _, item in due]

    # ------------------------------------------------------------ writes

    def _put(self, place, new):
        old = self.items.get(place)
        if new is None:
            self.items.pop(place, None)
        else:
            self.items[place] = new
        self.on_change(place, old, new)

    def _write(self, kind, params):
        """The item's place, its old and its new image; None if the condition fails."""
        self._check_table(params)
        used = set()
        for field, language in (
            ("ConditionExpression", "condition"),
            ("UpdateExpression", "update"),
        ):
            if field in params:
                used |= compiled(language, params[field])[1]
        check_used(params, used)
        place = _place(params["Item"] if kind == "Put" else params["Key"])
        old = self.items.get(place)
        if not holds(params, old):
            return place, old, None
        if kind == "Put":
            return place, old, dict(params["Item"])
        if kind == "Update":
            return place, old, updated(params, old)
        return place, old, {} if kind == "Delete" else old

    def _single(self, kind, params):
        place, old, new = self._write(kind, params)
        if new is None:
            returns = params.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            return ConditionFailed(dict(old) if returns and old else None)
        self._put(place, new or None)
        wanted = params.get("ReturnValues")
        if wanted == "ALL_NEW":
            return Answer({"Attributes": dict(new)})
        if wanted == "ALL_OLD" and old:
            return Answer({"Attributes": dict(old)})
        return Answer({})

    def _PutItem(self, params):
        return self._single("Put", params)

    def _UpdateItem(self, params):
        return self._single("Update", params)

    def _DeleteItem(self, params):
        return self._single("Delete", params)

    def _TransactWriteItems(self, params):
        token = params.get("ClientRequestToken")
        if token is not None and token in self.tokens:
            return self.tokens[token]
        results, reasons = [], []
        for action in params["TransactItems"]:
            ((kind, inner),) = action.items()
            place, old, new = self._write(kind, inner)
            results.append((kind, place, new))
            returns = inner.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            failed = new is None
            reasons.append(
                ("ConditionalCheckFailed", dict(old) if returns and old else None)
                if failed
                else ("None", None)
            )
        places = [place for _, place, _ in results]
        if len(set(places)) < len(places) or len(places) > 100:
            raise Malformed("a transaction names an item twice, or too many")
        if any(code != "None" for code, _ in reasons):
            return TransactionFailed(tuple(reasons))
        for kind, place, new in results:
            if kind != "ConditionCheck":
                self._put(place, new or None)
        answer = Answer({})
        if token is not None:
            self.tokens[token] = answer
        return answer

    def _BatchWriteItem(self, params):
        for request in params["RequestItems"][self.table]:
            ((kind, inner),) = request.items()
            if kind == "PutRequest":
                self._put(_place(inner["Item"]), dict(inner["Item"]))
            else:
                self._put(_place(inner["Key"]), None)
        return Answer({"UnprocessedItems": {}})

    # ------------------------------------------------------------ reads

    def _GetItem(self, params):
        self._check_table(params)
        item = self.items.get(_place(params["Key"]))
        return Answer({"Item": dict(item)} if item else {})

    def _BatchGetItem(self, params):
        ((table, wanted),) = params["RequestItems"].items()
        keys = wanted["Keys"]
        if table != self.table or not 1 <= len(keys) <= 100:
            raise Malformed(f"BatchGetItem of {len(keys)} keys from {table}")
        if len({_place(key) for key in keys}) < len(keys):
            raise Malformed("BatchGetItem names a key twice")
        found = [dict(self.items[_place(key)]) for key in keys if _place(key) in self.items]
        return Answer({"Responses": {self.table: found}, "UnprocessedKeys": {}})

    def _TransactGetItems(self, params):
        places = [_place(action["Get"]["Key"]) for action in params["TransactItems"]]
        if len(places) > 100 or len(set(places)) < len(places):
            raise Malformed("TransactGetItems names a key twice, or too many")
        return Answer(
            {
                "Responses": [
                    {"Item": dict(self.items[place])} if place in self.items else {}
                    for place in places
                ]
            }
        )

    def _Query(self, params):
        self._check_table(params)
        index = params.get("IndexName")
        test, used = compiled("condition", params["KeyConditionExpression"])
        if "FilterExpression" in params:
            used |= compiled("condition", params["FilterExpression"])[1]
        check_used(params, used)
        pk, sk = (f"{index}PK", f"{index}SK") if index else ("PK", "SK")
        names = params.get("ExpressionAttributeNames", {})
        values = params["ExpressionAttributeValues"]
        found = [
            item
            for item in self.items.values()
            if pk in item and sk in item and test(item, names, values)
        ]
        found.sort(key=lambda item: (plain(item[sk]), _place(item)))
        if not params.get("ScanIndexForward", True):
            found.reverse()
        start = params.get("ExclusiveStartKey")
        if start:
            places = [_place(item) for item in found]
            found = found[places.index(_place(start)) + 1 :] if _place(start) in places else []
        limit = params.get("Limit")
        last = None
        if limit and len(found) > limit:
            found = found[:limit]
            last = {"PK": found[-1]["PK"], "SK": found[-1]["SK"]}
        if index and index != "GSI1":
            keep = {"PK", "SK", pk, sk}
            found = [{k: v for k, v in item.items() if k in keep} for item in found]
        body = {"Items": [dict(item) for item in found], "Count": len(found)}
        return Answer({**body, "LastEvaluatedKey": last} if last else body)

    def _GetCallerIdentity(self, _):
        return Answer({"Arn": "arn:aws:iam::000000000000:user/simulated"})

    def _check_table(self, params):
        if params["TableName"] != self.table:
            raise Malformed(f"no table {params['TableName']!r}")


def _place(item):
    return item["PK"]["S"], item["SK"]["S"]
