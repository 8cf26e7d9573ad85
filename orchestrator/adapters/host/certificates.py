"""The certificates that this host trusts."""

import os
from pathlib import Path

CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def ca_bundle() -> Path | None:
    """The file that the host's own tools are told, else the system's."""
    named = (os.environ.get(variable) for variable in CA_VARIABLES)
    bundle = next((Path(name) for name in named if name), CA_BUNDLE).absolute()
    return bundle if bundle.is_file() else None
