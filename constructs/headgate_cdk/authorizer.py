"""A Lambda authorizer: an API's requests are limited before its backend is reached.

| API  | too many                                  | without the table, policy "block" |
|------|-------------------------------------------|-----------------------------------|
| REST | 429 and headers, by a gateway response    | 503, by a gateway response        |
| HTTP | 403: nothing else can be made of a denial | 500                               |

Answers are never cached (ADR 0056), and claims count only if they are verified (ADR 0057).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import Duration, Names, Stack
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2_authorizers as http_authorizers
from constructs import Construct

from headgate import schema
from headgate.costs import Consume, checked_consume
from headgate.errors import ValidationError
from headgate.several import MAX_BUCKETS
from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption
from headgate_cdk.functions import make_function
from headgate_cdk.options import FunctionOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import aws_apigatewayv2 as http
    from aws_cdk import aws_lambda as lambda_

    from headgate_cdk.base import RateLimiterBase
    from headgate_cdk.grants import Namespace

# A cached "yes" would be free requests for as long as it is kept.
NO_CACHE = Duration.seconds(0)

# Lambda refuses an environment of more than 4 KB; the rest is for the limiter and Powertools.
MOST_SETTINGS = 3_000

# Headers of a refusal <- what the function put into the authorizer's context.
REFUSAL_HEADERS = {
    "Retry-After": "retryAfter",
    "RateLimit-Policy": "policy",
    "RateLimit": "standing",
    "X-RateLimit-Limit": "limit",
    "X-RateLimit-Remaining": "remaining",
    "X-RateLimit-Reset": "reset",
    "X-RateLimit-Scope": "scope",
}
# In quotes, so that it stays JSON where another authorizer of the API has denied.
REFUSAL_BODY = {
    name: f"$context.authorizer.{value}"
    for name, value in {"error": "error", "retry_after": "retryAfter", "scope": "scope"}.items()
}
UNAVAILABLE_BODY = {"error": "rate_limiter_unavailable"}


@dataclass(frozen=True)
class Caller:
    """Whose bucket a request draws from. Made by its methods: `Caller.ip()`.

    Requests that do not say who calls share one bucket, `anonymous`.
    """

    settings: Mapping[str, Any]
    """For the function."""

    @classmethod
    def api_key(cls, *, required: bool = False) -> Caller:
        """The header `x-api-key`. The table gets a digest of it, never the key.

        Args:
            required: Whether requests without one are refused. Default: they are anonymous.
        """
        return cls.header("x-api-key", required=required)

    @classmethod
    def usage_plan_key(cls, *, required: bool = False) -> Caller:
        """The id that a REST API's usage plan has for the key, for methods that need one."""
        return cls({"by": "api_key_id", "required": required})

    @classmethod
    def header(cls, name: str, *, hashed: bool = True, required: bool = False) -> Caller:
        """A header that something has verified, or verifies later.

        Args:
            name: The header's name.
            hashed: Whether the table gets a digest of the value. False for values that are no
                secrets, if their limits are to be set by name.
            required: Whether requests without it are refused. Default: they are anonymous.
        """
        allowed = "must be the name of a header: letters, digits and -"
        checks.matches("key.header", name, r"[A-Za-z0-9-]{1,100}", allowed)
        return cls({"by": "header", "name": name, "hashed": hashed, "required": required})

    @classmethod
    def claim(cls, name: str) -> Caller:
        """A claim of the caller's token, such as `sub`: needs the authorizer's `token`."""
        checks.matches("key.claim", name, r".{1,200}", "must be the name of a claim, such as sub")
        return cls({"by": "claim", "name": name})

    @classmethod
    def ip(cls) -> Caller:
        """The address that API Gateway saw; of IPv6 the /64."""
        return cls({"by": "ip"})

    @classmethod
    def everyone(cls) -> Caller:
        """All callers together."""
        return cls({"by": "everyone"})


@dataclass(frozen=True, kw_only=True)
class TokenOptions:
    """Whose JSON web tokens count. They are verified: RS256 by the issuer's keys, and the claims
    `iss`, `aud` (or `client_id`), `exp` and `nbf`.
    """

    issuer: str
    """As it stands in the claim `iss`, such as `https://example.auth0.com/`."""
    audience: str | Sequence[str]
    """For whom tokens must be made out: any one of these."""
    jwks_url: str | None = None
    """Where the issuer's keys are. Default: `/.well-known/jwks.json` under the issuer."""
    header: str = "authorization"
    """Where the token is, with or without `Bearer` before it."""
    required: bool = False
    """Whether requests without a valid token are refused. Default: they are anonymous."""
    pass_on: Sequence[str] = ()
    """Claims that the backend gets in the authorizer's context, under their own names."""

    def __post_init__(self) -> None:
        https = "must be an address that starts with https://"
        checks.matches("token.issuer", self.issuer, r"https://[^\s?#]+", https)
        checks.matches("token.jwks_url", self.jwks_url, r"https://[^\s#]+", https)
        checks.matches(
            "token.header",
            self.header,
            r"[A-Za-z0-9-]{1,100}",
            "must be the name of a header: letters, digits and -",
        )
        if not self.audience or not all(_several(self.audience)):
            raise InvalidOption(
                "token.audience", self.audience, "must name whom tokens are made out for"
            )

    def settings(self) -> dict[str, Any]:
        """For the function."""
        several = {"audience": _several(self.audience), "pass_on": _several(self.pass_on)}
        return {name: value for name, value in (asdict(self) | several).items() if value}


@dataclass(frozen=True, kw_only=True)
class AuthorizerScope:
    """One more bucket that each request draws from."""

    key: Caller
    """Whose."""
    resource: str
    """Of which resource."""
    cost: Consume
    """Amounts by limit, a number (of every limit), or the name of an operation that the resource
    has costs for."""
    name: str | None = None
    """What callers are told blocked them. Default: the resource."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, Caller):
            raise InvalidOption("key", self.key, "must be a Caller, such as Caller.ip()")
        checks.by_client("resource", self.resource, schema.checked_resource)
        checks.matches("name", self.name, r"[A-Za-z0-9_. -]{1,60}", "must be a few plain words")
        try:
            checked_consume(self.cost)
        except ValidationError as error:
            raise InvalidOption("cost", self.cost, str(error)) from error

    def settings(self) -> dict[str, Any]:
        """For the function."""
        cost = self.cost if isinstance(self.cost, str | int) else dict(self.cost)
        scope = {"key": dict(self.key.settings), "resource": self.resource, "cost": cost}
        return scope if self.name is None else {**scope, "name": self.name}


class RateLimitAuthorizer(Construct):
    """Limits an API's requests before its backend is reached.

        gate = RateLimitAuthorizer(
            self, "Gate", limiter=limiter, key=Caller.api_key(), resource="api", cost={"rpm": 1}
        )
        items.add_method("GET", integration, authorizer=gate.for_rest(api))
        http_api.add_routes(..., authorizer=gate.for_http(http_api))

    Whatever the limits are is set as always: `limiter.add_limits([...], resource="api")`.
    """

    function: lambda_.Function
    """The function that decides. It may acquire from the limiter's table, and nothing else."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        limiter: RateLimiterBase,
        key: Caller,
        resource: str,
        cost: Consume,
        name: str | None = None,
        also: Sequence[AuthorizerScope] = (),
        token: TokenOptions | None = None,
        namespace: Namespace | str | None = None,
        on_unavailable: str | None = None,
        memory: int = 512,
        functions: FunctionOptions | None = None,
    ) -> None:
        """Define an authorizer.

        Args:
            scope: The stack, or a construct in it.
            id: The construct's id in its scope.
            limiter: Whose limits hold.
            key: Whose bucket a request draws from.
            resource: Of which resource.
            cost: Amounts by limit, a number (of every limit), or the name of an operation that the
                resource has costs for.
            name: What callers are told blocked them. Default: the resource.
            also: More buckets, all or nothing: by address beside by key, everyone together.
            token: Whose tokens count, for `Caller.claim(...)`.
            namespace: As `limiter.attach` takes it.
            on_unavailable: "allow" or "block" when the table cannot be reached. Default: what
                the stored limits say, else "block".
            memory: Megabytes of the function. With more of them it has more CPU as well.
            functions: Runtime, architecture, logs and tracing.
        """
        super().__init__(scope, id)
        first = AuthorizerScope(key=key, resource=resource, cost=cost, name=name)
        checks.whole("memory", memory, least=128, most=10_240)
        self.function = make_function(
            self,
            "authorizer",
            description="Headgate: limits an API's requests before its backend is reached",
            options=functions or FunctionOptions(),
            memory=memory,
            # An HTTP API waits 10 s for an answer, and the limiter decides within two.
            timeout=Duration.seconds(10),
            environment={"HEADGATE_AUTHORIZER": self._settings([first, *also], token)},
        )
        limiter.attach(self.function, namespace=namespace, on_unavailable=on_unavailable)
        self._rest: dict[str, rest.RequestAuthorizer] = {}
        self._http: dict[str, http_authorizers.HttpLambdaAuthorizer] = {}

    def for_rest(
        self,
        api: rest.RestApiBase,
        *,
        responses: bool = True,
        response_headers: Mapping[str, str] | None = None,
    ) -> rest.RequestAuthorizer:
        """The authorizer for methods of a REST API of the same stack.

        Args:
            api: The API.
            responses: Whether to set the API's gateway responses: 429 where access is denied
                and 503 where an authorizer fails, whichever authorizer of the API that is.
            response_headers: More headers of these responses, such as those of CORS, as API
                Gateway takes them: `{"Access-Control-Allow-Origin": "'*'"}`.
        """
        path = api.node.path
        if path not in self._rest:
            if Stack.of(api) != Stack.of(self):
                raise InvalidOption(
                    "api",
                    path,
                    "must be in the stack of the authorizer: each refers to the other. The "
                    "limiter may be in another one",
                )
            self._rest[path] = self._request_authorizer(api)
        if responses:
            _set_responses(api, dict(response_headers or {}))
        return self._rest[path]

    def for_http(self, api: http.IHttpApi) -> http_authorizers.HttpLambdaAuthorizer:
        """The authorizer for routes of an HTTP API."""
        path = api.node.path
        if path not in self._http:
            self._http[path] = http_authorizers.HttpLambdaAuthorizer(
                Names.node_unique_id(self.node),
                self.function,
                identity_source=[],
                response_types=[http_authorizers.HttpLambdaResponseType.SIMPLE],
                results_cache_ttl=NO_CACHE,
            )
        return self._http[path]

    def _request_authorizer(self, api: rest.RestApiBase) -> rest.RequestAuthorizer:
        made = rest.RequestAuthorizer(
            self,
            f"For{Names.node_unique_id(api.node)}",
            handler=self.function,
            # None, so that requests which do not say who calls come to the function too.
            identity_sources=[],
            results_cache_ttl=NO_CACHE,
        )
        resource = made.node.default_child
        if isinstance(resource, rest.CfnAuthorizer):
            # The CDK writes an empty text where there are none.
            resource.add_property_deletion_override("IdentitySource")
        return made

    def _settings(self, scopes: Sequence[AuthorizerScope], token: TokenOptions | None) -> str:
        if len(scopes) > MAX_BUCKETS:
            raise InvalidOption("also", len(scopes) - 1, f"at most {MAX_BUCKETS - 1} more scopes")
        if token is None and any(scope.key.settings["by"] == "claim" for scope in scopes):
            raise InvalidOption("token", token, "is needed where callers are told by a claim")
        settings: dict[str, Any] = {"scopes": [scope.settings() for scope in scopes]}
        if token is not None:
            settings["token"] = token.settings()
        if (size := len(json.dumps(settings))) > MOST_SETTINGS:
            raise InvalidOption(
                "settings",
                size,
                f"what the function is told must fit into {MOST_SETTINGS} characters",
            )
        return Stack.of(self).to_json_string(settings)


def _set_responses(api: rest.RestApiBase, more: dict[str, str]) -> None:
    """Once for each API: it has one response of a kind."""
    if api.node.try_find_child("HeadgateDenied") is not None:
        return
    told = {name: f"context.authorizer.{value}" for name, value in REFUSAL_HEADERS.items()}
    api.add_gateway_response(
        "HeadgateDenied",
        type=rest.ResponseType.ACCESS_DENIED,
        status_code="429",
        response_headers={**told, **more},
        templates={"application/json": json.dumps(REFUSAL_BODY)},
    )
    # Two kinds: the function raised, or could not be called.
    for name, kind in {
        "HeadgateFailed": rest.ResponseType.AUTHORIZER_FAILURE,
        "HeadgateUncalled": rest.ResponseType.AUTHORIZER_CONFIGURATION_ERROR,
    }.items():
        api.add_gateway_response(
            name,
            type=kind,
            status_code="503",
            response_headers={"Retry-After": "'1'", **more},
            templates={"application/json": json.dumps(UNAVAILABLE_BODY)},
        )


def _several(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
