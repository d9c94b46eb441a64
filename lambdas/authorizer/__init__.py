"""The Lambda authorizer: requests are limited before they reach the backend."""
