"""CloudFormation's custom resources: namespaces, entities and limits of a stack."""
