"""Which authorities sign the certificates of servers that are trusted: of S3, KFP and the Pushgateway."""

from __future__ import annotations

import os
import ssl

import certifi

from yanmo.common.errors import EnvironmentFault

_CA_FILES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")


def ca_source() -> str:
    """Return the variable that names a file of authorities, and the file; "" for certifi's own."""
    return next((f"{name}={os.environ[name]}" for name in _CA_FILES if os.environ.get(name)), "")


def ca_bundle() -> str:
    """Return the PEM file of the authorities that are trusted: AWS_CA_BUNDLE, SSL_CERT_FILE, else certifi's.

    Raises:
        EnvironmentFault: the variable names a file that cannot be read or holds no certificate.
    """
    name, _, path = ca_source().partition("=")
    if not path:
        return certifi.where()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error) or type(error).__name__
        raise EnvironmentFault(
            f"{name}={path}: expected a PEM file with the server's authority (CA), found: {reason}; "
            f"correct {name}, or unset it to trust the usual authorities"
        ) from error
    return path
