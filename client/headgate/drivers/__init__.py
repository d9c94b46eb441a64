"""What runs flows: over boto3 and over aiobotocore. The simulator's is with the tests."""
