"""Real servers for tests and benchmarks: S3 from Debian's packages, and a proxy that breaks things."""
