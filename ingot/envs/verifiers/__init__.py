"""Verifiers, one a file: rules and judges that say whether an answer is right."""
