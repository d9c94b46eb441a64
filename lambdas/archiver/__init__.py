"""Expired audit events: to the archive in S3."""
