"""What runs inside a sandbox: standard library only, imported there and never by the package outside."""
