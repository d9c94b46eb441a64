"""Reading CloudFormation templates as tests want to: by type, with references filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ACCOUNT = "111122223333"
REGION = "eu-central-1"


@dataclass(frozen=True)
class Template:
    raw: dict[str, Any]

    @property
    def resources(self) -> dict[str, Any]:
        return self.raw["Resources"]

    def of(self, kind: str) -> dict[str, Any]:
        """Logical id -> resource, of one type."""
        return {name: found for name, found in self.resources.items() if found["Type"] == kind}

    def only(self, kind: str, containing: str = "") -> dict[str, Any]:
        """The properties of the one resource of this type (whose logical id contains a word)."""
        found = [item for name, item in self.of(kind).items() if containing in name]
        assert len(found) == 1, f"{len(found)} of {kind} contain {containing!r}"
        return found[0]["Properties"]

    def count(self, kind: str) -> int:
        return len(self.of(kind))

    def resolve(self, value: Any) -> Any:
        """Intrinsic functions as a deployment would fill them in, near enough to compare."""
        match value:
            case {"Ref": str(name)}:
                return self._ref(name)
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                return self._att(name, attribute)
            case {"Fn::Join": [str(between), list(parts)]}:
                return between.join(str(self.resolve(part)) for part in parts)
            case dict():
                return {key: self.resolve(item) for key, item in value.items()}
            case list():
                return [self.resolve(item) for item in value]
        return value

    def statements(self, containing: str) -> list[dict[str, Any]]:
        """All statements of the inline policies whose logical id contains a word."""
        return [
            self.resolve(statement)
            for name, policy in self.of("AWS::IAM::Policy").items()
            if containing in name
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        ]

    def _ref(self, name: str) -> str:
        pseudo = {
            "AWS::AccountId": ACCOUNT,
            "AWS::Region": REGION,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
        }
        if name in pseudo:
            return pseudo[name]
        if self.resources.get(name, {}).get("Type") == "AWS::DynamoDB::Table":
            return self.resources[name]["Properties"].get("TableName", name)
        return name

    def _att(self, name: str, attribute: str) -> str:
        kind = self.resources.get(name, {}).get("Type")
        if kind == "AWS::DynamoDB::Table" and attribute == "Arn":
            return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{self._ref(name)}"
        if kind == "Custom::HeadgateNamespace" and attribute == "NamespaceId":
            # As long as a real id, and different for each namespace.
            return f"{self.resources[name]['Properties']['Name']}-id-0123456789"[:11]
        return f"{name}.{attribute}"
